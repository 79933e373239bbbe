"""Processes that share a host."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rp_api.system import host


def test_processes_of_one_host_agree_on_its_id() -> None:
    other = subprocess.run([sys.executable, '-c', 'from rp_api.system import host; print(host.host_id())'],
                           check=True, capture_output=True, text=True).stdout.strip()
    assert other == host.host_id() != ''


def test_without_proc_the_id_is_the_name_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise OSError('no /proc')

    monkeypatch.setattr(os, 'readlink', refuse)
    assert host.host_id.__wrapped__() == os.uname().nodename

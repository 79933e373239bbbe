"""Who shares a host, and whether a process is there."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from rp_api import host


def test_processes_of_one_host_agree_on_its_id() -> None:
    other = subprocess.run([sys.executable, '-c', 'from rp_api import host; print(host.host_id())'],
                           check=True, capture_output=True, text=True).stdout.strip()
    assert other == host.host_id() != ''


def test_without_proc_the_id_is_the_name_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise OSError('no /proc')

    monkeypatch.setattr(os, 'readlink', refuse)
    assert host.host_id.__wrapped__() == os.uname().nodename


def test_a_pidfd_becomes_readable_when_the_process_ends() -> None:
    child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)
    fd = host.pidfd_open(child.pid)
    assert fd is not None
    assert select.select([fd], [], [], 0) == ([], [], [])
    child.communicate(b'\n')
    assert select.select([fd], [], [], 10) == ([fd], [], [])
    os.close(fd)


def test_there_is_no_pidfd_of_a_process_that_is_gone() -> None:
    child = subprocess.Popen([sys.executable, '-c', ''])
    child.wait()
    assert host.pidfd_open(child.pid) is None

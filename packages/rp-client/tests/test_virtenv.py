"""The program that makes environments on the machine: its lock, and what it does where Python is not complete."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from rp_client.bootstrap import virtenv
from rp_client.bootstrap.virtenv import Lock, Refused


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where nobody needs long."""
    monkeypatch.setattr(virtenv, 'POLL_S', 0.01)
    monkeypatch.setattr(virtenv, 'BEAT', 0.02)
    monkeypatch.setattr(virtenv, 'STALE', 0.5)


def test_one_after_the_other(tmp_path: Path) -> None:
    """Also when each of them takes longer than a lock stays without a sign of life."""
    inside: list[int] = []
    most = []

    def work() -> None:
        with Lock(str(tmp_path / 'x.lock'), 30):
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.6)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('owner', [None, 'elsewhere 1\n5\n', f'{os.uname().nodename} 999999999\n5\n'])
def test_owner_is_dead(tmp_path: Path, owner: str | None) -> None:
    """Whether it has said nothing yet, was on another host, or on this one."""
    lock = tmp_path / 'x.lock'
    lock.mkdir()
    if owner:
        (lock / 'owner').write_text(owner)
    with Lock(str(lock), 30):
        assert (lock / 'owner').read_text().startswith(f'{os.uname().nodename} {os.getpid()}\n')
    assert os.listdir(tmp_path) == []


def test_owner_needs_too_long(tmp_path: Path) -> None:
    path = str(tmp_path / 'x.lock')
    with Lock(path, 30), pytest.raises(Refused, match=f'is held by process {os.uname().nodename} {os.getpid()} for'):
        Lock(path, 0.05).__enter__()
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can give directories away')
@pytest.mark.parametrize('bits', [0o1777, 0o755])
def test_environment_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    """It is taken where only some can have made it, and refused where everyone can make one of that name."""
    path = tmp_path / 'shared' / 've'
    path.mkdir(parents=True)
    os.chown(path, 54321, 54321)
    path.parent.chmod(bits)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'argv', ['x', 'create', str(path), '--session', 's', 'rp-agent'])
    monkeypatch.setattr(signal, 'signal', lambda *_: None)
    if bits == 0o755:
        assert virtenv.main() == 0
    else:
        assert virtenv.main() == virtenv.FAILED
        assert capsys.readouterr().out == (f'{path} is not ours alone: it belongs to user 54321, in a directory where '
                                           'every user can make entries\n')


def test_python_without_venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    """As Debian has it without python3-venv; the sentence has the words of each way that was tried."""
    python = tmp_path / 'python3'
    python.write_text('#!/bin/sh\necho "Error: no $2 here"\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, 'executable', str(python))
    monkeypatch.setattr(virtenv, '_can_install_elsewhere', lambda: False)
    monkeypatch.setenv('PATH', str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'argv', ['x', 'create', f'{tmp_path}/ve', '--session', 's', 'rp-agent'])
    monkeypatch.setattr(signal, 'signal', lambda *_: None)
    assert virtenv.main() == virtenv.FAILED
    assert capsys.readouterr().out == (
        f'no virtual environment can be made at {tmp_path}/ve: {python} -m venv: Error: no venv here; {python} -m '
        f'virtualenv: Error: no virtualenv here; virtualenv --python {python}: virtualenv: No such file or directory\n')
    assert sorted(os.listdir(tmp_path)) == ['bootstrap_0.log', 'python3']

"""What happens when a sandbox cannot be written."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import pilot_description, wait_until
from fault_matrix.disk import full_disk
from quotas import use_up, with_quota

import radical.pilot as rp

pytestmark = pytest.mark.fault


@pytest.fixture
def small_disk(base: Path) -> Iterator[Path]:
    """A file system of one megabyte and a hundred files."""
    with file_system(base / 'disk', 'size=1m,nr_inodes=100') as path:
        yield path


@contextmanager
def file_system(path: Path, options: str) -> Iterator[Path]:
    """A file system in memory with these limits."""
    path.mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', '-o', options, 'none', path], check=True)
    try:
        yield path
    finally:
        subprocess.run(['umount', '-l', path], check=True)   # a closed session can still read what its tasks have said


def active_pilot(session: rp.Session, where: Path) -> tuple[rp.Pilot, rp.TaskManager]:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(where))
    tmgr.add_pilots(pilot)
    assert pilot.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE
    return pilot, tmgr


def fill(path: Path) -> Path:
    """Use up all files that the file system can have; gives the directory that holds them."""
    filler = path / 'filler'
    filler.mkdir()
    with pytest.raises(OSError, match='No space'):   # noqa: PT012
        for number in itertools.count():
            (filler / str(number)).touch()
    return filler


def test_full_sandbox(small_disk: Path, base: Path) -> None:
    """A task that cannot get its directory fails with the path and the reason; later tasks run when there is room."""
    with rp.Session(cfg={'base': str(base)}) as session:
        pilot, tmgr = active_pilot(session, small_disk)
        filler = fill(small_disk)
        task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'}))
        assert task.wait(timeout=30) == rp.FAILED
        assert 'No space left on device' in str(task.exception)
        assert str(task.sandbox) in str(task.exception)
        shutil.rmtree(filler)
        assert pilot.state == rp.PMGR_ACTIVE
        task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/echo', 'arguments': ['room']}))
        assert task.wait(timeout=30) == rp.DONE


@pytest.mark.disorder('the profiles of the agent end when its disk is full')
@pytest.mark.parametrize('spawner', ['POPEN', 'SHELL'])
def test_sandbox_without_space(base: Path, monkeypatch: pytest.MonkeyPatch, spawner: str) -> None:
    """Tasks that get a directory, but cannot write to it, fail with the path and the reason; the agent goes on."""
    configs = base / '.radical' / 'pilot' / 'configs'
    configs.mkdir(parents=True)
    (configs / 'resource_local.json').write_text(json.dumps({'exact': {'agent_spawner': spawner}}))
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(base))

    def shell(command: str, **values: Any) -> rp.TaskDescription:
        return rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', command], **values})

    with file_system(base / 'disk', 'size=2m') as path, rp.Session(cfg={'base': str(base)}) as session:
        pilot, tmgr = active_pilot(session, path)
        with full_disk(path):
            tasks = tmgr.submit_tasks([shell('echo much; exit 3'), shell('echo much', pre_exec=['true'])])
            assert tmgr.wait_tasks(timeout=30) == [rp.FAILED, rp.FAILED]
            for task in tasks:
                assert 'No space left on device' in str(task.exception)
                assert str(task.sandbox) in str(task.exception)
            assert tasks[0].exit_code == 3
        task = tmgr.submit_tasks(shell('echo room; exit 3'))
        assert task.wait(timeout=30) == rp.FAILED
        assert (task.stdout, task.exception) == ('room\n', "RuntimeError('task failed')")
        assert pilot.state == rp.PMGR_ACTIVE


def test_sandbox_over_quota(base: Path) -> None:
    """As above, where it is the user's share that is used up."""
    with with_quota(base) as directory, rp.Session(cfg={'base': str(base)}) as session:
        pilot, tmgr = active_pilot(session, directory)
        filler = use_up(directory)
        task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'}))
        assert task.wait(timeout=30) == rp.FAILED
        assert 'Disk quota exceeded' in str(task.exception)
        assert str(task.sandbox) in str(task.exception)
        filler.unlink()
        os.sync()
        assert pilot.state == rp.PMGR_ACTIVE
        task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/echo', 'arguments': ['room']}))
        assert task.wait(timeout=30) == rp.DONE


def test_read_only_sandbox(small_disk: Path, base: Path) -> None:
    """A task that cannot get its directory fails with the path and the reason; the pilot goes on."""
    with rp.Session(cfg={'base': str(base)}) as session:
        pilot, tmgr = active_pilot(session, small_disk)
        # what has been opened for writing stays writable, so only a bind mount can be made read-only now
        subprocess.run(['mount', '--bind', small_disk, small_disk], check=True)
        subprocess.run(['mount', '-o', 'remount,ro,bind', small_disk], check=True)
        try:
            task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'}))
            assert task.wait(timeout=30) == rp.FAILED
            assert 'Read-only file system' in str(task.exception)
            assert str(task.sandbox) in str(task.exception)
            assert pilot.state == rp.PMGR_ACTIVE
        finally:
            subprocess.run(['umount', '-l', small_disk], check=True)


@pytest.mark.disorder('the agent cannot write its profile')
def test_pilot_sandbox_without_space(base: Path) -> None:
    """A pilot that has room for its configuration only fails with the path and the reason."""
    with file_system(base / 'disk', 'size=2m') as path, rp.Session(cfg={'base': str(base)}) as session, full_disk(path):
        os.truncate(path / 'filler', (path / 'filler').stat().st_size - 4096)
        pilot = rp.PilotManager(session).submit_pilots(pilot_description(path))
        assert pilot.wait(timeout=30) == rp.FAILED
        assert f'{pilot.pilot_sandbox}: No space left on device' in pilot.exception


def test_pilot_sandbox_cannot_be_made(base: Path) -> None:
    """A pilot without a directory fails with the path and the reason."""
    (base / 'file').write_text('')
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr = rp.PilotManager(session)
        pilot = pmgr.submit_pilots(pilot_description(base / 'file'))
        assert pilot.wait(timeout=30) == rp.FAILED
        assert str(base / 'file') in pilot.exception
        assert 'Not a directory' in pilot.exception


def test_session_directory_cannot_be_made(base: Path) -> None:
    """A session without a directory is refused at once."""
    (base / 'file').write_text('')
    with pytest.raises(NotADirectoryError, match='file'):
        rp.Session(cfg={'base': str(base / 'file')})


def test_session_directory_with_little_room(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its disk was full, a session needs little more room than its file has."""
    monkeypatch.setenv('RADICAL_PILOT_PROFILE', 'no')
    monkeypatch.setattr('rp_client.service.task_requests.ACCEPTANCE', 0.5)
    with file_system(base / 'disk', 'size=10m') as path:
        with rp.Session(cfg={'base': str(path)}) as session:
            pilot, tmgr = active_pilot(session, base)
            with full_disk(path):
                tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true'}) for _ in range(1500)])
                log = Path(session.path, 'hub.log')
                wait_until(lambda: 'cannot be written' in log.read_text())
            assert set(tmgr.wait_tasks(timeout=60)) == {rp.DONE}, log.read_text()
            assert Path(session.path, 'hub.db-wal').stat().st_size < 6 << 20
        assert pilot.state == rp.CANCELED

"""Directories in shared memory: private, removed with their owners however these end, and with room for others."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rp_api.system import shared_directory
from rp_api.system.shared_directory import Room, SharedDirectory, sweep

OWNER = """
import sys
from rp_api.system import shared_directory
shared_directory.shared_memory = lambda: sys.argv[1]
shared_directory.room = lambda directory: 100
directory = shared_directory.SharedDirectory(sys.argv[2])
paths = [directory.path_for(size) for size in (100, 1000)]
for path in paths:
    open(path, 'x').close()
print(*paths, flush=True)
sys.stdin.read()
"""

FORKED = """
import os, sys
from rp_api.system import shared_directory
shared_directory.shared_memory = lambda: sys.argv[1]
directory = shared_directory.SharedDirectory()
if not os.fork():
    directory.close()
    print('the fork lives', flush=True)
sys.stdin.read()
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in the place of the shared memory."""
    path = tmp_path / 'memory'
    path.mkdir()
    monkeypatch.setattr(shared_directory, 'shared_memory', lambda: str(path))
    return path


@pytest.fixture
def owner(memory: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a directory that has a file in memory and one on disk."""
    with subprocess.Popen([sys.executable, '-c', OWNER, memory, tmp_path / 'disk'], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def files_of(process: subprocess.Popen[str]) -> list[Path]:
    assert process.stdout
    return [Path(path) for path in process.stdout.readline().split()]


def test_a_directory_is_private_and_goes_with_its_object(memory: Path, tmp_path: Path) -> None:
    directory = SharedDirectory(str(tmp_path / 'disk'))
    (path,) = memory.iterdir()
    assert str(path) == directory.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    sweep()
    assert path.exists()
    directory.close()
    directory.close()
    assert not list(memory.iterdir())
    del directory
    SharedDirectory()
    assert not list(memory.iterdir())


def test_files_without_room_in_memory_are_on_disk(
        memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_directory, 'room', lambda directory: 1000)
    directory = SharedDirectory(str(tmp_path / 'disk'))
    first, second, third = (Path(directory.path_for(size)) for size in (600, 600, 1001))
    assert first.is_relative_to(memory)
    assert second.is_relative_to(memory)   # the room was looked at again
    assert third.parent.parent == tmp_path / 'disk'
    assert stat.S_IMODE(third.parent.stat().st_mode) == 0o700
    third.touch()
    directory.close()
    assert not list(memory.iterdir())
    assert not list((tmp_path / 'disk').iterdir())


def test_a_directory_on_disk_is_never_one_that_is_there(
        memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users can read the name in memory, and those names on disk that they have made."""
    monkeypatch.setattr(shared_directory, 'room', lambda directory: 0)
    disk = tmp_path / 'disk'
    directory = SharedDirectory(str(disk))
    planted = disk / Path(directory.path).name
    planted.mkdir(0o777, parents=True)
    path = Path(directory.path_for(1000))
    assert path.parent != planted
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    directory.close()
    assert [each.name for each in disk.iterdir()] == [planted.name]


def test_half_of_the_memory_is_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, 'statvfs', lambda path: os.statvfs_result((4096, 4096, 1000, 600, 600, 0, 0, 0, 0, 255)))
    assert shared_directory.room(str(tmp_path)) == 300 * 4096
    assert shared_directory.room('/dev/shm/directory') == 100 * 4096
    room = Room('/dev/shm/directory')
    assert room.take(100 * 4096)
    assert not room.take(101 * 4096)
    monkeypatch.undo()
    assert shared_directory.room(str(tmp_path / 'missing')) == 0


@pytest.mark.parametrize('how', [signal.SIGKILL, None])
def test_nothing_is_left_of_a_dead_owner(
        owner: subprocess.Popen[str], how: signal.Signals | None, memory: Path, tmp_path: Path) -> None:
    files = files_of(owner)
    sweep()
    assert all(path.exists() for path in files)
    if how:
        owner.send_signal(how)
    else:
        owner.communicate()
    owner.wait()
    directory = SharedDirectory()   # that of the next process
    assert [str(path) for path in memory.iterdir()] == [directory.path]
    assert not list((tmp_path / 'disk').iterdir())


def test_a_link_to_other_files_removes_nothing_there(
        owner: subprocess.Popen[str], memory: Path, tmp_path: Path) -> None:
    file, _ = files_of(owner)
    precious = tmp_path / 'precious'
    precious.mkdir()
    (file.parent / 'overflow').unlink()
    (file.parent / 'overflow').symlink_to(precious)
    owner.kill()
    owner.wait()
    sweep()
    assert not list(memory.iterdir())
    assert precious.exists()


def test_a_fork_neither_removes_nor_keeps_a_directory(memory: Path, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, '-c', FORKED, memory], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == 'the fork lives\n'
        sweep()
        assert len(list(memory.iterdir())) == 1
        owner.kill()
        owner.wait()
        sweep()   # the fork still reads the pipe, which ends with the block
        assert not list(memory.iterdir())


def test_processes_of_a_place_see_the_same_files() -> None:
    code = 'from rp_api.system.shared_directory import place; print(place())'
    done = subprocess.run([sys.executable, '-c', code], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.strip() == shared_directory.place()

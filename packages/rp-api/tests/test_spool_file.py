"""The file of updates that could not be delivered: all that was written whole is read, in order, and nothing else."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rp_api import states
from rp_api.coordination import spool_file
from rp_api.coordination.contract import Update
from rp_api.coordination.spool_file import MAGIC, SpoolFile
from rp_api.errors import CoordinationError, OwnershipError
from rp_api.wire import codec


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'agent_0.updates'


def updates(first: int, count: int) -> list[Update]:
    return [Update(f'task.{number:06d}', states.TMGR_STAGING_OUTPUT_PENDING,
                   {'exit_code': number, 'stdout': 'a line\n', 'target_state': states.DONE})
            for number in range(first, first + count)]


END = Update('pilot.0000', states.DONE, {'reason': 'over'})


def written(path: Path, *bulks: list[Update]) -> SpoolFile:
    file = SpoolFile(path)
    for bulk in bulks:
        file.append(bulk)
    return file


def test_everything_is_read_in_order(path: Path) -> None:
    file = written(path, updates(0, 3), updates(3, 2))
    file.append(pilots=[END])
    file.append([Update('plain', states.AGENT_EXECUTING)])
    file.sync()
    file.close()
    for _ in range(2):   # it stays as it is
        assert spool_file.read(path) == ([*updates(0, 5), Update('plain', states.AGENT_EXECUTING)], [END], 0)


def test_text_from_the_file_system_survives(path: Path) -> None:
    odd = [Update('t', states.FAILED, {'output_files': [os.fsdecode(b'\xff\xfe')]})]
    written(path, odd).close()
    assert spool_file.read(path).tasks == odd


def test_nobody_else_can_read_it(path: Path) -> None:
    path.touch(0o644)
    written(path, updates(0, 1)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_file_without_updates(path: Path) -> None:
    file = SpoolFile(path)
    assert not file.waiting
    file.sync()
    file.remove()
    file.close()
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        spool_file.read(path)


def test_directory_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / 'gone' / 'updates'
    written(path, updates(0, 1)).close()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert spool_file.read(path).tasks == updates(0, 1)


def test_what_was_written_is_taken_bit_by_bit(path: Path) -> None:
    file = written(path, updates(0, 5))
    assert file.waiting
    assert file.take(2) == updates(0, 2)
    file.append(updates(5, 1))
    assert file.take(3) == updates(2, 3)
    assert file.waiting
    assert (file.take(10), file.waiting) == (updates(5, 1), False)
    assert file.take(10) == []
    file.append(updates(6, 1))
    assert file.take(10) == updates(6, 1)
    assert spool_file.read(path).tasks == updates(0, 7)   # it is all there until it is removed
    file.remove()
    assert not path.exists()
    assert not file.waiting


def test_file_is_made_anew_after_it_was_removed(path: Path) -> None:
    file = written(path, updates(0, 2))
    file.remove()
    file.append(updates(2, 1))
    assert file.take(9) == spool_file.read(path).tasks == updates(2, 1)
    path.unlink()
    file.remove()   # somebody else was faster


def test_writer_goes_on_after_what_is_there(path: Path) -> None:
    written(path, updates(0, 2)).close()
    written(path, updates(2, 2)).close()
    assert spool_file.read(path).tasks == updates(0, 4)


def test_record_that_is_not_whole_is_ignored(path: Path) -> None:
    """Whatever is missing of the last one."""
    written(path, updates(0, 3)).close()
    whole = path.read_bytes()
    written(path, updates(3, 1)).close()
    longer = path.read_bytes()
    for size in range(len(whole), len(longer)):
        path.write_bytes(longer[:size])
        assert spool_file.read(path) == (updates(0, 3), [], size - len(whole))
        written(path, updates(7, 1)).close()
        assert spool_file.read(path) == (updates(0, 3) + updates(7, 1), [], 0)


@pytest.mark.parametrize('end', [b'\0' * 5000, b'\xff' * 40, b'\x07\x91\xe3\x02\xff\x80\x11', b'\0\0\0\4abcdefgh'])
def test_end_that_makes_no_sense_is_ignored(path: Path, end: bytes) -> None:
    written(path, updates(0, 3)).close()
    with path.open('ab') as file:
        file.write(end)
    assert spool_file.read(path) == (updates(0, 3), [], len(end))
    written(path, updates(3, 1)).close()
    assert spool_file.read(path).tasks == updates(0, 4)


@pytest.mark.parametrize('size', range(len(MAGIC)))
def test_file_that_has_just_been_begun(path: Path, size: int) -> None:
    path.write_bytes(MAGIC[:size])
    assert spool_file.read(path) == ([], [], 0)
    written(path, updates(0, 1)).close()
    assert spool_file.read(path).tasks == updates(0, 1)


@pytest.mark.parametrize('content', [b'x', b'PK\3\4' * 100, MAGIC.replace(b'1', b'2')])
def test_other_file_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CoordinationError, match=f'{path} is not a spool file of updates'):
        spool_file.read(path)
    if len(content) >= len(MAGIC):
        with pytest.raises(CoordinationError, match='is not a spool file of updates'):
            SpoolFile(path).append(updates(0, 1))
        assert path.read_bytes() == content


@pytest.mark.parametrize('content', [
    7, [], ['task', 'uid', 'DONE'], ['other', 'uid', 'DONE', None], ['task', 7, 'DONE', None],
    ['task', 'uid', None, None], ['task', 'uid', 'DONE', 'text']])
def test_record_of_something_else(path: Path, content: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = codec.pack(content)
    with monkeypatch.context() as patch:
        patch.setattr(codec, 'pack', lambda _: packed)
        written(path, updates(0, 1)).close()
    with pytest.raises(CoordinationError, match=f'{path} has records that are not updates'):
        spool_file.read(path)


def test_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    """Somebody could have it written over a file of ours."""
    (tmp_path / 'precious').write_text('x')
    path.symlink_to(tmp_path / 'precious')
    with pytest.raises(OwnershipError, match='symbolic link'):
        written(path, updates(0, 1))
    assert (tmp_path / 'precious').read_text() == 'x'


def test_disk_that_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bulk is not there at all, and later there is room again."""
    file = written(path, updates(0, 2))
    real = os.pwrite
    room = 50

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, 'No space left on device')
        written = real(fd, data[:room], offset)
        room -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, 'pwrite', pwrite)
        with pytest.raises(OSError, match='No space left'):
            file.append(updates(2, 3))
    assert spool_file.read(path) == (updates(0, 2), [], 0)
    file.append(updates(5, 1))
    assert spool_file.read(path) == (updates(0, 2) + updates(5, 1), [], 0)
    assert file.take(10) == updates(0, 2) + updates(5, 1)
    file.close()


def test_disk_that_was_full_from_the_beginning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(*_: Any) -> int:
        raise OSError(errno.ENOSPC, 'No space left on device')

    file = SpoolFile(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, 'pwrite', pwrite)
        with pytest.raises(OSError, match='No space left'):
            file.append(updates(0, 1))
    file.append(updates(0, 1))
    file.close()
    assert spool_file.read(path).tasks == updates(0, 1)

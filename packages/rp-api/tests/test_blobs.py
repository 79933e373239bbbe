"""Files of large values: what is written is read, and nothing else is."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path

import pytest

from rp_api import blobs
from rp_api.errors import DeserializationError


@pytest.mark.parametrize('other', [b'other', bytearray(b'other')])
@pytest.mark.parametrize('size', [0, 1, 1000, blobs.COPIED, blobs.COPIED + 1])
def test_what_is_written_is_read(tmp_path: Path, size: int, other: bytes | bytearray) -> None:
    path = str(tmp_path / 'value')
    data = bytearray(os.urandom(size))
    buffers = [pickle.PickleBuffer(each) for each in (data, other, *[bytearray(b'x')] * 2000)]
    written = blobs.write(path, b'R', b'body', buffers)
    assert written == os.stat(path).st_size == blobs.size_of(b'body', buffers)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    kind, body, (first, *others) = blobs.read(path)
    assert isinstance(first, memoryview)
    assert size > blobs.COPIED // 2 or type(others[0]) is (bytes if type(other) is bytes else memoryview)
    assert (kind, bytes(body)) == (b'R', b'body')
    assert list(map(bytes, others)) == [b'other', *[b'x'] * 2000]
    assert bytes(first) == data
    if size:
        first[0] ^= 1   # the reader's own memory
        assert bytes(blobs.read(path, written)[2][0]) == data


def test_a_file_is_never_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / 'value')
    blobs.write(path, b'R', b'body')
    with pytest.raises(FileExistsError):
        blobs.write(path, b'R', b'other')
    assert bytes(blobs.read(path)[1]) == b'body'
    blobs.discard(path)
    blobs.discard(path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(DeserializationError, match='No such file'):
        blobs.read(path)


@pytest.mark.parametrize('damage', ['truncated', 'foreign', 'open to others'])
def test_other_files_are_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / 'value'
    size = blobs.write(str(path), b'R', b'body', [pickle.PickleBuffer(bytes(100))])
    if damage == 'truncated':
        os.truncate(path, size - 1)
    elif damage == 'foreign':
        path.write_bytes(bytes(size))
    else:
        path.chmod(0o644)
    with pytest.raises(DeserializationError, match='cannot read the value'):
        blobs.read(str(path))

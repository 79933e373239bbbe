"""Files of large values: what is written is read, and nothing else is."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rp_api import blobs
from rp_api.errors import DeserializationError
from rp_api.system.shared_directory import SharedDirectory


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


def test_a_reader_of_a_version_gets_that_one_or_fails(tmp_path: Path) -> None:
    path = str(tmp_path / 'value')
    blobs.write(path, b'V', b'a long body', (), 1)
    assert bytes(blobs.read(path, version=1)[1]) == b'a long body'
    size = blobs.write_again(path, b'V', b'short', [pickle.PickleBuffer(b'buffer')], 2)
    _, body, buffers = blobs.read(path, size, 2)
    assert [bytes(body), *map(bytes, buffers)] == [b'short', b'buffer']
    for version in (0, 1, 3):
        with pytest.raises(DeserializationError, match='replaced'):
            blobs.read(path, size, version)


@pytest.fixture
def shared() -> Iterator[str]:
    directory = SharedDirectory()
    yield directory.path
    directory.close()
    blobs.unmap()


def maps(directory: str) -> int:
    """Return how many files of the directory this process has mapped."""
    return Path('/proc/self/maps').read_text().count(f' {directory}/')


def test_a_file_that_is_used_again_is_mapped(shared: str) -> None:
    """Contents may be longer and shorter than those before; what was read is the reader's own."""
    path = f'{shared}/value'
    blobs.write(path, b'V', b'body', [pickle.PickleBuffer(bytes(10))], 1)
    kept = []
    for version, size in enumerate([100, 100, 5000, 50, 60_000, 60_000, 300_000, 300_000, 7], 2):
        one, other = bytearray(os.urandom(size)), os.urandom(size)
        given = [pickle.PickleBuffer(one), pickle.PickleBuffer(other)]
        written = blobs.write_again(path, b'V', other[:5], given, version)
        kind, body, buffers = blobs.read(path, written, version)
        assert (kind, bytes(body), [*map(bytes, buffers)]) == (b'V', other[:5], [bytes(one), other])
        assert type(buffers[1]) is bytes
        buffers[0][:1] = b'x'   # type: ignore[index]
        kept.append((one, buffers))
        assert blobs.version_of(path) == version
        with pytest.raises(DeserializationError, match='replaced'):
            blobs.read(path, written, version + 1)
    assert all(bytes(buffers[0][1:]) == one[1:] for one, buffers in kept)
    blobs.release(path, 1)   # of another content
    assert blobs.version_of(path) == version
    blobs.release(path, version)
    assert blobs.version_of(path) == 0
    with pytest.raises(DeserializationError, match='replaced'):
        blobs.read(path, written, version)


def test_few_files_stay_mapped(shared: str) -> None:
    for number in range(200):
        path = f'{shared}/{number}'
        size = blobs.write(path, b'V', bytes(5000), (), 1)
        for _ in range(3):
            assert len(blobs.read(path, size, 1)[1]) == 5000
        assert 0 < maps(shared) <= 64
    blobs.discard(path)
    assert maps(shared) < 64
    blobs.unmap()
    assert not maps(shared)


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

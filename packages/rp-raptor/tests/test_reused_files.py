"""Files that are written again: readers get the version that they expect, maps are few, removed files use no memory."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from rp_api import blobs
from rp_api.errors import DeserializationError
from rp_api.system.shared_directory import SharedDirectory
from rp_raptor.wire import reused_files
from rp_raptor.wire.file_maps import FileMap, FileMaps


def test_a_reader_of_a_version_gets_that_one_or_fails(tmp_path: Path) -> None:
    path = str(tmp_path / 'value')
    size = blobs.write(path, b'V', b'a long body', (), 1)
    assert bytes(reused_files.read(path, size, 1)[1]) == b'a long body'
    size = reused_files.write_again(path, b'V', b'short', [pickle.PickleBuffer(b'buffer')], 2)
    _, body, buffers = reused_files.read(path, size, 2)
    assert [bytes(body), *map(bytes, buffers)] == [b'short', b'buffer']
    for version in (0, 1, 3):
        with pytest.raises(DeserializationError, match='replaced'):
            reused_files.read(path, size, version)


@pytest.fixture
def shared() -> Iterator[str]:
    directory = SharedDirectory()
    yield directory.path
    directory.close()
    reused_files.unmap()


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
        written = reused_files.write_again(path, b'V', other[:5], given, version)
        kind, body, buffers = reused_files.read(path, written, version)
        assert (kind, bytes(body), [*map(bytes, buffers)]) == (b'V', other[:5], [bytes(one), other])
        assert type(buffers[1]) is bytes
        buffers[0][:1] = b'x'   # type: ignore[index]
        kept.append((one, buffers))
        assert reused_files.version_of(path) == version
        with pytest.raises(DeserializationError, match='replaced'):
            reused_files.read(path, written, version + 1)
    assert all(bytes(buffers[0][1:]) == one[1:] for one, buffers in kept)
    reused_files.release(path, 1)   # of another content
    assert reused_files.version_of(path) == version
    reused_files.release(path, version)
    assert reused_files.version_of(path) == 0
    with pytest.raises(DeserializationError, match='replaced'):
        reused_files.read(path, written, version)


def test_mapped_files_have_a_limit(shared: str) -> None:
    found = FileMaps(50_000)
    for number in range(20):
        path = f'{shared}/{number}'
        blobs.write(path, b'V', bytes(9000), (), 1)
        assert found.find(path) is None
        assert [found.uses(path), found.uses(path)] == [False, True]
        file = os.open(path, os.O_RDWR)
        for _ in range(2):   # in place of the first
            found.add(path, FileMap(file, 9000))
        os.close(file)
        assert maps(shared) == min(number + 1, 5)
    assert not found.find(f'{shared}/14')
    kept = found.find(f'{shared}/15')   # is the latest now
    file = os.open(path, os.O_RDWR)
    found.add('other', FileMap(file, 9000))
    os.close(file)
    assert found.find(f'{shared}/15') is kept is not None
    assert not found.find(f'{shared}/16')
    found.clear()
    del kept
    assert maps(shared) == 0
    for number in range(5000):   # files that are used once are not kept in mind for ever
        found.uses(str(number))
    assert found.uses('4999')
    assert not found.uses('1')


def test_a_removed_file_gives_back_its_memory_whoever_has_mapped_it(shared: str) -> None:
    path = f'{shared}/value'
    size = blobs.write(path, b'V', bytes(500_000), (), 1)
    file = os.open(path, os.O_RDWR)
    other = FileMap(file, size)
    for version in (1, 1, 2):
        if version == 2:
            reused_files.write_again(path, b'V', bytes(500_000), (), 2)
        assert len(reused_files.read(path, size, version)[1]) == 500_000
    assert os.fstat(file).st_blocks
    reused_files.discard(path)
    assert os.fstat(file).st_blocks == 0
    os.close(file)
    assert other.version == 0   # as all of its bytes
    assert maps(shared) == 1   # the other
    with pytest.raises(DeserializationError, match='No such file'):
        reused_files.read(path, size, 2)

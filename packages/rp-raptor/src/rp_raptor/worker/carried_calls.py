"""Large arguments and results on their way from and to a manager on another node: files travel beside the message.

The first manager opens the files of calls (see `rp_raptor.wire.large_calls`) that the caller has written on its node.
The other manager gives its copies names in a directory of its own, until the calls have ended. For results see
`rp_raptor.wire.carried_results`.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from rp_api import blobs
from rp_api.system import private
from rp_api.system.shared_directory import SharedDirectory, place
from rp_api.wire import codec
from rp_raptor.carriers.channel import OpenFile, content_of, link
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.carried_results import CARRIED, CONTENT, carried_result
from rp_raptor.wire.large_calls import LARGE_CALL
from rp_raptor.wire.payload import filed_result
from rp_raptor.wire.protocol import WORKER, parse, parse_from_master

_CALLS = codec.pack(['calls', 0, 0, 0])[:-3]   # how messages with calls begin
_RESULTS = codec.pack(['results', 0, 0])[:-2]
_MAX_FILES = 100   # of a message, above which no call is added
_ELSEWHERE = ''    # the path of a file that travels beside the message


def with_files(data: bytes) -> Iterator[tuple[bytes, list[OpenFile]]]:
    """Yield a message of or for the master as messages with the files that belong to them."""
    found = _parsed(data)
    if found is None:
        yield data, []
        return
    operation, ids, payloads, attributes = found
    first = 0
    files: list[OpenFile] = []
    packed: list[bytes] = []
    for index, call in enumerate(payloads):
        packed.append(_opened(call, files))
        if len(files) >= _MAX_FILES or index == len(ids) - 1:
            part = ids[first:index + 1]
            each = [{id: all[id] for id in part if id in all} if all else None for all in attributes]
            yield pack_message([operation, part, Payloads(packed), *each]), files
            first, files, packed = index + 1, [], []


def results_placed(data: bytes, files: list[OpenFile], master: str) -> bytes:
    """Return a message with results for a master whose directory for them is `master`, as `ValueStore.results`."""
    found = _parsed(data) if files else None
    if found is None:
        return data
    left = iter(files)
    operation, ids, payloads, _ = found
    return pack_message([operation, ids, Payloads([_placed_result(each, left, master) for each in payloads])])


class CarriedFiles:
    """The files of calls that have no result yet."""

    def __init__(self) -> None:
        self._directory: SharedDirectory | None = None
        self._paths: dict[int, list[str]] = {}

    def placed(self, data: bytes, files: list[OpenFile]) -> bytes:
        """Return the message with the paths of its files."""
        found = _parsed(data) if files else None
        if found is None:
            return data
        left = iter(files)
        operation, ids, payloads, attributes = found
        packed = [self._with_paths(id, call, left) for id, call in zip(ids, payloads, strict=True)]
        return pack_message([operation, ids, Payloads(packed), *attributes])

    def done(self, ids: Iterable[int]) -> None:
        """Remove the files of calls that have ended."""
        if self._paths:
            for id in ids:
                for path in self._paths.pop(id, ()):
                    with suppress(FileNotFoundError):
                        os.unlink(path)

    def clear(self) -> None:
        """Remove all files."""
        self.done([*self._paths])

    def close(self) -> None:
        """Remove the directory."""
        if self._directory is not None:
            self._directory.close()

    def _with_paths(self, id: int, call: bytes, files: Iterator[OpenFile]) -> bytes:
        if call[:1] != LARGE_CALL:
            return call
        start, body, buffers = codec.unpack(call[1:])
        for part in (body, *buffers):
            if _is_filed(part) and part[0] == _ELSEWHERE:
                part[0] = self._linked(next(files))
                self._paths.setdefault(id, []).append(part[0])
        return LARGE_CALL + codec.pack([start, body, buffers])

    def _linked(self, file: OpenFile) -> str:
        if self._directory is None:
            self._directory = SharedDirectory()
        path = f'{self._directory.path}/{os.urandom(8).hex()}'
        link(file, path)
        return path


def _parsed(data: bytes) -> tuple[str, array[int], Payloads, list[dict[int, Any] | None]] | None:
    """Return operation, ids, payloads and attributes of a message with calls or results, if any; None for others.

    One of the payloads is in files.
    """
    if data.startswith(_CALLS):
        kind, (operation, (ids, payloads, *attributes)) = LARGE_CALL, parse_from_master(data, WORKER)
    elif data.startswith(_RESULTS):
        kind, (operation, (ids, payloads, *attributes)) = CARRIED, parse(data, WORKER)
    else:
        return None
    return (operation, ids, payloads, attributes) if payloads.has(kind[0]) else None


def _opened(call: bytes, files: list[OpenFile]) -> bytes:
    """Open the files of a call, which is unchanged if the caller has left: the rank will fail with it; or of a result.

    That of a result is removed.
    """
    if call[:1] == CARRIED:
        path, size, results = codec.unpack(call[1:])
        try:
            files.append(OpenFile(private.open_file(path)))
        except OSError:
            return call
        blobs.discard(path)
        return carried_result(_ELSEWHERE, size, results)
    if call[:1] != LARGE_CALL:
        return call
    start, body, buffers = codec.unpack(call[1:])
    found: list[OpenFile] = []
    try:
        for part in (body, *buffers):
            if _is_filed(part):
                found.append(OpenFile(private.open_file(part[0])))
                part[0] = _ELSEWHERE
    except OSError:
        return call
    files += found
    return LARGE_CALL + codec.pack([start, body, buffers])


def _placed_result(result: bytes, files: Iterator[OpenFile], master: str) -> bytes:
    """Give the file of a result a name where the caller sees it, or the master."""
    if result[:1] != CARRIED:
        return result
    path, size, results = codec.unpack(result[1:])
    if path != _ELSEWHERE:   # it was not there
        return result
    file = next(files)
    if path := _linked(file, results):
        return filed_result(path, size)
    if path := _linked(file, master):
        return carried_result(path, size, results)
    return CONTENT + content_of(file)


def _linked(file: OpenFile, results: str) -> str:
    """Return the path of a file in a directory for results; empty if it is elsewhere, or has no room."""
    where, _, directory = results.partition('\n')
    path = f'{directory}/{os.urandom(12).hex()}'
    if not directory or where != place():
        return ''
    try:
        link(file, path)
    except OSError:   # its owner has left
        return ''
    return path


def _is_filed(part: Any) -> bool:
    return isinstance(part, list) and len(part) > 1

"""Calls with large arguments on their way to a manager on another node: their files travel beside the message.

The first manager opens the files of calls (see `rp_raptor.wire.large_calls`) that the caller has written on its node.
The other manager gives its copies names in a directory of its own, until the calls have ended.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from rp_api.system import private
from rp_api.system.shared_directory import SharedDirectory
from rp_api.wire import codec
from rp_raptor.carriers.channel import OpenFile, link
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.large_calls import LARGE_CALL
from rp_raptor.wire.protocol import WORKER, parse_from_master

_CALLS = codec.pack(['calls', 0, 0, 0])[:-3]   # how messages with calls begin
_MAX_FILES = 100   # of a message, above which no call is added
_ELSEWHERE = ''    # the path of a file that travels beside the message


def with_files(data: bytes) -> Iterator[tuple[bytes, list[OpenFile]]]:
    """Yield a message of the master as messages with the files that belong to them."""
    calls = _parsed(data)
    if calls is None:
        yield data, []
        return
    ids, payloads, attributes = calls
    first = 0
    files: list[OpenFile] = []
    packed: list[bytes] = []
    for index, call in enumerate(payloads):
        packed.append(_opened(call, files))
        if len(files) >= _MAX_FILES or index == len(ids) - 1:
            part = ids[first:index + 1]
            each = {id: attributes[id] for id in part if id in attributes} if attributes else None
            yield pack_message(['calls', part, Payloads(packed), each]), files
            first, files, packed = index + 1, [], []


class CarriedFiles:
    """The files of calls that have no result yet."""

    def __init__(self) -> None:
        self._directory: SharedDirectory | None = None
        self._paths: dict[int, list[str]] = {}

    def placed(self, data: bytes, files: list[OpenFile]) -> bytes:
        """Return the message with the paths of its files."""
        calls = _parsed(data) if files else None
        if calls is None:
            return data
        left = iter(files)
        ids, payloads, attributes = calls
        packed = [self._with_paths(id, call, left) for id, call in zip(ids, payloads, strict=True)]
        return pack_message(['calls', ids, Payloads(packed), attributes])

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


def _parsed(data: bytes) -> tuple[array[int], Payloads, dict[int, Any] | None] | None:
    """Return ids, payloads and attributes of a message with calls of which one is large; None for other messages."""
    if not data.startswith(_CALLS):
        return None
    _, (ids, payloads, attributes) = parse_from_master(data, WORKER)
    return (ids, payloads, attributes) if payloads.has(LARGE_CALL[0]) else None


def _opened(call: bytes, files: list[OpenFile]) -> bytes:
    """Open the files of a call, which is unchanged if the caller has left: the rank will fail with it."""
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


def _is_filed(part: Any) -> bool:
    return isinstance(part, list) and len(part) > 1

"""Large results on their way from the rank of a manager that carriers reach: kinds K and I.

Such a rank writes the result to a file in a directory of its manager: K and a packed list `[path, size, results]`, with
the place and the directory of the caller (`ValueStore.results`). The file travels beside the message. The first manager
gives it a name in the directory of the caller, which makes it a result of kind L, or else in that of the master, if it
sees the files there. Otherwise, and from the master on, the content travels in the message: I and the content.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from rp_api import blobs
from rp_api.system import private
from rp_api.wire import codec
from rp_raptor.wire.batch import Payloads

CARRIED, CONTENT = b'K', b'I'


def carried_result(path: str, size: int, results: str) -> bytes:
    """Return the result in a file; an empty path is that of one that travels beside the message."""
    return CARRIED + codec.pack([path, size, results])


def with_content(payload: bytes) -> bytes:
    """Return a result with the content of its file, which is removed; one without the file cannot be decoded."""
    if payload[:1] != CARRIED:
        return payload
    path, size, _ = codec.unpack(payload[1:])
    try:
        file = private.open_file(path)
    except OSError:
        return payload
    try:
        blobs.discard(path)
        with mmap.mmap(file, size, access=mmap.ACCESS_READ) as content:
            return b''.join((CONTENT, content))
    finally:
        os.close(file)


def with_contents(payloads: Payloads) -> Sequence[bytes]:
    """Return results with the contents of their files, which are removed."""
    return [*map(with_content, payloads)] if payloads.has(CARRIED[0]) else payloads

"""The part that described tasks have in common: sent to workers once for all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

from rp_raptor.wire.payload import FID_BYTES

MAX_UNUSED_PARTS = 16
"""Unused parts that stay with the workers, as later tasks may have the same part."""

LARGE = 64 << 10
"""Bytes at which a part is too large to stay."""


class SharedDescription:
    """The packed part that tasks share; `calls` counts those without a result."""

    __slots__ = ('calls', 'fid', 'size')

    def __init__(self, fid: bytes, size: int) -> None:
        self.fid = fid
        self.size = size
        self.calls = 0


class SharedDescriptions:
    """The parts that workers have; `define(fid, data)` and `forget(fid)` send and remove one."""

    def __init__(self, define: Callable[[bytes, bytes], object], forget: Callable[[bytes], object]) -> None:
        self._define = define
        self._forget = forget
        self._parts: dict[bytes, SharedDescription] = {}
        self._idle: OrderedDict[bytes, SharedDescription] = OrderedDict()

    def hold(self, data: bytes, calls: int) -> SharedDescription:
        """Return the part for `calls` further calls, and send it to the workers if needed."""
        fid = blake2b(data, digest_size=FID_BYTES).digest()
        part = self._parts.get(fid)
        if part is None:
            part = self._parts[fid] = SharedDescription(fid, len(data))
            self._define(fid, data)
        self._idle.pop(fid, None)
        part.calls += calls
        return part

    def rest(self, part: SharedDescription) -> None:
        """Keep a part that no call uses, or remove it from the workers."""
        if part.size < LARGE:
            self._idle[part.fid] = part
            if len(self._idle) <= MAX_UNUSED_PARTS:
                return
            _, part = self._idle.popitem(last=False)
        del self._parts[part.fid]
        self._forget(part.fid)

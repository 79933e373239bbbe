"""What described tasks have in common, on its way to the workers: once for all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

from rp_raptor.wire.payload import FID_BYTES

KEPT = 16
"""Parts that stay with the workers when no call needs them any more: the next tasks may have the same in common."""

LARGE = 64 << 10
"""Bytes from which on a part does not stay: to send it again with a thousand tasks costs little."""


class SharedDescription:
    """What tasks have in common, packed; `calls` counts those that have no result yet."""

    __slots__ = ('calls', 'fid', 'size')

    def __init__(self, fid: bytes, size: int) -> None:
        self.fid = fid
        self.size = size
        self.calls = 0


class SharedDescriptions:
    """The parts that workers know; `define(fid, data)` and `forget(fid)` tell them."""

    def __init__(self, define: Callable[[bytes, bytes], object], forget: Callable[[bytes], object]) -> None:
        self._define = define
        self._forget = forget
        self._parts: dict[bytes, SharedDescription] = {}
        self._idle: OrderedDict[bytes, SharedDescription] = OrderedDict()

    def hold(self, data: bytes, calls: int) -> SharedDescription:
        """The part for so many calls, which workers know from now on."""
        fid = blake2b(data, digest_size=FID_BYTES).digest()
        part = self._parts.get(fid)
        if part is None:
            part = self._parts[fid] = SharedDescription(fid, len(data))
            self._define(fid, data)
        self._idle.pop(fid, None)
        part.calls += calls
        return part

    def rest(self, part: SharedDescription) -> None:
        """No call needs the part any more, for now."""
        if part.size < LARGE:
            self._idle[part.fid] = part
            if len(self._idle) <= KEPT:
                return
            _, part = self._idle.popitem(last=False)
        del self._parts[part.fid]
        self._forget(part.fid)

"""Pickles whose large contents stay beside them without a copy: buffers of protocol 5, and `bytes` of any object.

`pickle` writes the content of a large `bytes` or `bytearray` to its file as it is, between two pieces of the pickle.
Here it becomes a buffer, and the pickle refers to it: `bytes(buffer)` copies nothing if the reader has it as `bytes`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pickle import PickleBuffer
from types import SimpleNamespace
from typing import Any

BUFFER_BYTES = 32 << 10
"""Size in bytes from which on a buffer is kept out of a pickle; a `bytes` is from 64 KB on, a constant of `pickle`."""

Dump = Callable[[Any, list[PickleBuffer]], bytes]

_PROTOCOL = 5
_FRAME, _FRAME_HEAD = 0x95, 9   # the opcode that begins a piece, and its bytes with the length of the piece
_SHORT_HEAD, _LONG_HEAD = 5, 9   # bytes of opcode and length before a content
_REFERENCES = {ord('B'): b'cbuiltins\nbytes\n\x97\x85R', 0x8e: b'cbuiltins\nbytes\n\x97\x85R',
               0x96: b'cbuiltins\nbytearray\n\x97\x85R'}
"""The opcodes that make an object of the next buffer, by the opcode that has the content in the pickle."""


def out_of_band_pickler(kind: Callable[..., Any] = pickle.Pickler, smallest: int = BUFFER_BYTES) -> Dump:
    """Return a function that returns a pickled object, and adds its large contents to the list that it is given.

    These are buffers of at least `smallest` bytes, and large `bytes`. It may be used by one thread at a time, and not
    any more when it has raised an exception. `kind` is the class of the pickler.
    """
    written: list[Any] = []

    def leaves_in(buffer: PickleBuffer) -> bool:
        if buffer.raw().nbytes < smallest:
            return True
        written.append(buffer)
        return False

    pickler = kind(SimpleNamespace(write=written.append), _PROTOCOL, buffer_callback=leaves_in)
    write, forget = pickler.dump, pickler.clear_memo

    def dump(value: Any, buffers: list[PickleBuffer]) -> bytes:
        write(value)
        data: bytes = written[0] if len(written) == 1 else _assembled(written, buffers)
        written.clear()
        forget()
        return data
    return dump


def _assembled(written: Sequence[bytes | bytearray | PickleBuffer], buffers: list[PickleBuffer]) -> bytes:
    """Return the pickle that was written, with references in place of its contents, which are added to `buffers`."""
    pieces: list[bytes | bytearray] = []
    head = b''   # opcode and length of the content that is next
    for piece in written:
        if isinstance(piece, PickleBuffer):
            buffers.append(piece)
        elif not head:
            end = len(piece) - _head_bytes(piece, 0 if pieces else 2)
            pieces.append(piece[:end])
            head = bytes(piece[end:])
        elif head[0] in _REFERENCES:
            pieces.append(_REFERENCES[head[0]])
            buffers.append(PickleBuffer(piece))
            head = b''
        else:   # a text
            pieces += head, piece
            head = b''
    return b''.join(pieces)


def _head_bytes(piece: bytes | bytearray, start: int) -> int:
    """Return how many bytes at the end of a piece are the head of a content; fewer than 4 others have no frame."""
    if piece[start] == _FRAME:
        start += _FRAME_HEAD + int.from_bytes(piece[start + 1:start + _FRAME_HEAD], 'little')
    rest = len(piece) - start
    return _LONG_HEAD if rest >= _LONG_HEAD else _SHORT_HEAD if rest >= _SHORT_HEAD else 0

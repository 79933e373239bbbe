"""Results of calls with the output of the call before them: O, the length of the output, the output, the result."""

from __future__ import annotations

from rp_api.wire import codec

OUTPUT = ord('O')
"""The first byte of a result with output."""

MAX_OUTPUT_CHARS = 1 << 20
"""Characters of each stream that travel with a result, from its end."""

_KIND = bytes([OUTPUT])
_START = 1 + 4   # offset of the output


def with_output(payload: bytes, out: str, err: str) -> bytes:
    """Return a result that also has this output of the call: the ends of standard output and error."""
    payload, *before = split_output(payload)
    out, err = before[0] + out, before[1] + err
    said = codec.pack([_sendable(out), _sendable(err)])
    return _KIND + len(said).to_bytes(4, 'little') + said + payload


def split_output(payload: bytes) -> tuple[bytes, str, str]:
    """Return a result without output, and the output, which is empty for most calls."""
    if payload[:1] != _KIND:
        return payload, '', ''
    end = _START + int.from_bytes(payload[1:_START], 'little')
    out, err = codec.unpack(payload[_START:end])
    return payload[end:], out, err


def _sendable(text: str) -> str:
    text = text[-MAX_OUTPUT_CHARS:]
    return text if text.isascii() else text.encode(errors='replace').decode()

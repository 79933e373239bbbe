"""The form of messages that are msgpack lists of an operation and its arguments: checked before anything is done.

A table has for each operation one check per argument. A peer with the right keys may still be of another version or
broken: what gets past `parse` has the types that its table asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from reprlib import repr as short  # also for what is long or nested deeply
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.wire import codec

Check = Callable[[Any], bool]
Table = Mapping[str, tuple[Check, ...]]

_MAX = 2**62   # with a count on top it can still be stored and sent


def parse(data: bytes, table: Table, sender: str) -> tuple[str, list[Any]]:
    """Operation and arguments of a message; CoordinationError if that is none which the sender may send."""
    message = codec.unpack(data)
    if not isinstance(message, list) or not message or not isinstance(message[0], str):
        raise CoordinationError(f'malformed message of {sender}: {short(message)}')
    operation, *arguments = message
    check(operation, arguments, table, sender)
    return operation, arguments


def check(operation: str, arguments: list[Any], table: Table, sender: str) -> None:
    """Return if the sender may send this operation with these arguments; else raise CoordinationError."""
    checks = table.get(operation)
    if checks is None:
        raise CoordinationError(f'malformed message: operation {short(operation)} of {sender} is unknown')
    if len(checks) != len(arguments) or not all(fits(value) for fits, value in zip(checks, arguments, strict=True)):
        raise CoordinationError(f'malformed message of {sender}: wrong arguments of {operation!r}')


def is_a(*kinds: type) -> Check:
    """A check for a value of one of these types."""
    return lambda value: type(value) in kinds


def are_all(*kinds: type) -> Check:
    """A check for a list of such values."""
    allowed = frozenset(kinds)
    return lambda value: type(value) is list and allowed.issuperset(map(type, value))


def is_anything(_: Any) -> bool:
    """The check that everything passes."""
    return True


def is_number(value: Any) -> bool:
    """Whether it is an integer that is not negative, and not too large to be stored."""
    return type(value) is int and 0 <= value <= _MAX


is_text = is_a(str)
is_bytes = is_a(bytes)
is_dict = is_a(dict)
is_list = is_a(list)
is_flag = is_a(bool)
are_texts = are_all(str)

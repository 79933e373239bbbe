"""The form of messages that are msgpack lists of an operation and its arguments, checked before they are processed.

A table has, for each operation, one check per argument. A peer with valid keys may have another version or be broken:
messages that pass `parse` have the types in its table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from reprlib import repr as short  # handles long and deeply nested values
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.wire import codec

Check = Callable[[Any], bool]
Table = Mapping[str, tuple[Check, ...]]

_MAX = 2**62   # leaves room for additions within 64 bits


def parse(data: bytes, table: Table, sender: str) -> tuple[str, list[Any]]:
    """Return operation and arguments of a message; raise CoordinationError if it is malformed."""
    message = codec.unpack(data)
    if not isinstance(message, list) or not message or not isinstance(message[0], str):
        raise CoordinationError(f'malformed message of {sender}: {short(message)}')
    operation, *arguments = message
    check(operation, arguments, table, sender)
    return operation, arguments


def check(operation: str, arguments: list[Any], table: Table, sender: str) -> None:
    """Raise CoordinationError unless the table allows this operation with these arguments."""
    checks = table.get(operation)
    if checks is None:
        raise CoordinationError(f'malformed message: operation {short(operation)} of {sender} is unknown')
    if len(checks) != len(arguments) or not all(fits(value) for fits, value in zip(checks, arguments, strict=True)):
        raise CoordinationError(f'malformed message of {sender}: wrong arguments of {operation!r}')


def is_a(*kinds: type) -> Check:
    """Return a check for a value of one of these types."""
    return lambda value: type(value) in kinds


def are_all(*kinds: type) -> Check:
    """Return a check for a list of values of these types."""
    allowed = frozenset(kinds)
    return lambda value: type(value) is list and allowed.issuperset(map(type, value))


def is_anything(_: Any) -> bool:
    """Accept any value."""
    return True


def is_number(value: Any) -> bool:
    """Return whether it is a non-negative integer within the supported range."""
    return type(value) is int and 0 <= value <= _MAX


is_text = is_a(str)
is_bytes = is_a(bytes)
is_dict = is_a(dict)
is_list = is_a(list)
is_flag = is_a(bool)
are_texts = are_all(str)

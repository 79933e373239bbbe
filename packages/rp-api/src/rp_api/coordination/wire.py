"""The messages that peers send to the hub: their form, checked before anything is done with them.

A peer with the right keys may still be of another version or broken, and must not be able to harm the session. So what
gets past this module has the types that the hub relies on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.mesh import codec

_MAX = 2**63 - 1
"""Largest number that the hub can store."""

_PID_MAX = 2**31 - 1

Check = Callable[[Any], bool]


def parse(data: bytes) -> tuple[int, str, list[Any]]:
    """Number, operation and arguments of a message; `CoordinationError` if it does not have them."""
    message = codec.unpack(data)
    if not isinstance(message, list) or len(message) < 2:
        raise CoordinationError('malformed message: a number and an operation are needed')
    number, operation, *arguments = message
    if not _is_number(number) or not isinstance(operation, str):
        raise CoordinationError(f'malformed message: it starts with {number!r:.20}, {operation!r:.20}')
    return number, operation, arguments


def check(operation: str, arguments: list[Any]) -> None:
    """Return if this is an operation with the arguments that belong to it; else raise `CoordinationError`."""
    checks = _ARGUMENTS.get(operation)
    if checks is None:
        raise CoordinationError(f'malformed message: operation {operation!r:.20} is unknown')
    if len(checks) != len(arguments) or not all(map(_fits, checks, arguments)):
        raise CoordinationError(f'malformed message: wrong arguments of {operation!r}')


def check_hello(hello: dict[str, Any]) -> None:
    """Return if somebody of this protocol's version says hello properly; else raise `CoordinationError`."""
    for name, fits in _HELLO.items():
        if not fits(hello.get(name)):
            raise CoordinationError(f'malformed message: hello with {name}={hello.get(name)!r:.20}')


def _fits(fits: Check, value: Any) -> bool:
    return fits(value)


def _is(kind: type) -> Check:
    return lambda value: type(value) is kind


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX


def _rows(*kinds: tuple[type, ...]) -> Check:
    """A check for a list of rows, each of which has one of these combinations of types."""
    allowed = set(kinds)
    return lambda value: (type(value) is list and all(type(row) is list for row in value)
                          and {tuple(map(type, row)) for row in value} <= allowed)


_NEW = _rows((str, bytes))
_UPDATES = _rows((str, str, bytes), (str, str, type(None)))

_ARGUMENTS: dict[str, tuple[Check, ...]] = {
    'hello': (_is(dict),), 'ping': (), 'seen': (), 'bye': (),
    'pilots': (_NEW,), 'tasks': (_is(str), _is(bytes), _NEW), 'command': (_is(str), _is(bytes)),
    'update_pilots': (_UPDATES,), 'update_tasks': (_UPDATES,)}

_HELLO: dict[str, Check] = {
    'role': lambda value: value in ('client', 'agent'), 'uid': _is(str), 'host': _is(str), 'instance': _is(str),
    'pid': lambda value: _is_number(value) and 0 < value <= _PID_MAX, 'since': _is_number, 'settled': _is_number}

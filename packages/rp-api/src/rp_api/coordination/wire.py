"""The messages that peers send to the hub: their form, checked before anything is done with them.

A peer with the right keys may still be of another version or broken, and must not be able to harm the session. So what
gets past this module has the types that the hub relies on.
"""

from __future__ import annotations

from collections.abc import Callable
from reprlib import repr as short  # also for what is long or nested deeply
from typing import Any

from rp_api.coordination.contract import PackedInfo
from rp_api.errors import CoordinationError
from rp_api.wire import codec

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
        raise CoordinationError(f'malformed message: it starts with {short(number)}, {short(operation)}')
    return number, operation, arguments


def check(role: str, operation: str, arguments: list[Any]) -> None:
    """Return if this is an operation of that role with the right arguments; else raise `CoordinationError`."""
    checks = _ARGUMENTS[role].get(operation)
    if checks is None:
        raise CoordinationError(f'malformed message: operation {short(operation)} of a {role} is unknown')
    if len(checks) != len(arguments) or not all(map(_fits, checks, arguments)):
        raise CoordinationError(f'malformed message: wrong arguments of {operation!r}')


def check_hello(hello: dict[str, Any]) -> None:
    """Return if somebody of this protocol's version says hello properly; else raise `CoordinationError`."""
    for name, fits in _HELLO.items():
        if not fits(hello.get(name)):
            raise CoordinationError(f'malformed message: hello with {name}={short(hello.get(name))}')


def unpack_info(data: bytes | None) -> dict[str, Any] | None:
    """What is known with a state, None if that is nothing; of what cannot be read, only that it cannot be.

    It comes from agents, and the hub passes it on as it is.
    """
    return PackedInfo(data).as_dict() if data else None


def _fits(fits: Check, value: Any) -> bool:
    return fits(value)


def _is(kind: type) -> Check:
    return lambda value: type(value) is kind


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX


def _are_texts(value: Any) -> bool:
    return type(value) is list and {type(each) for each in value} <= {str}


def _rows(*columns: set[type]) -> Check:
    """A check for a list of rows, each of which has these columns with one of these types."""
    def check(value: Any) -> bool:
        if type(value) is not list or not set(map(type, value)) <= {list} or not set(map(len, value)) <= {len(columns)}:
            return False
        found = [set(map(type, column)) for column in zip(*value, strict=True)]
        return all(types <= allowed for types, allowed in zip(found, columns, strict=False))
    return check


_NEW = _rows({str}, {bytes})
_UPDATES = _rows({str}, {str}, {bytes, type(None)})

_BOTH: dict[str, tuple[Check, ...]] = {
    'hello': (_is(dict),), 'ping': (_is_number, _is_number, _is_number, _is(bool)), 'seen': (_is_number, _is_number),
    'clock': (_is_number,), 'moment': (_is(str), _is_number), 'bye': (),
    'update_pilots': (_UPDATES,), 'update_tasks': (_UPDATES,)}

_ARGUMENTS: dict[str, dict[str, tuple[Check, ...]]] = {
    'agent': {**_BOTH, 'hold': (_is(bool),)},
    'client': {
        **_BOTH, 'pilots': (_is(str), _NEW), 'tasks': (_is(str), _is(str), _is(bytes), _NEW),
        'bind': (_is(str), _are_texts), 'forget': (_are_texts,),
        'command': (_is(str), _is(bytes)), 'note': (_is(str), _is(bytes)), 'recover': (_is_number,), 'detach': (),
        'acknowledge': (_are_texts, _is_number, _is_number), 'listen': (_is(str),)}}

_HELLO: dict[str, Check] = {
    'role': lambda value: value in ('client', 'agent'), 'uid': _is(str), 'agent': _is(str), 'instance': _is(str),
    'host': _is(str), 'host_name': _is(str), 'pid': lambda value: _is_number(value) and 0 < value <= _PID_MAX,
    'started': lambda value: value is None or _is_number(value),   # version 2.0.0 does not tell
    'since': _is_number, 'others': _is_number, 'settled': _is_number, 'hold': _is(bool), 'recover': _is(bool)}

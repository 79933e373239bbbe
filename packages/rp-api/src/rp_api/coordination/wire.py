"""The form of messages from peers to the hub, checked before they are processed.

A peer with valid keys may have another version or be broken, and must not be able to harm the session. Messages that
pass this module have the types that the hub relies on.
"""

from __future__ import annotations

from reprlib import repr as short  # handles long and deeply nested values
from typing import Any

from rp_api.coordination.contract import PackedInfo
from rp_api.errors import CoordinationError
from rp_api.wire import codec, form
from rp_api.wire.form import Check, are_texts, is_bytes, is_dict, is_flag, is_number, is_text

_PID_MAX = 2**31 - 1


def parse(data: bytes) -> tuple[int, str, list[Any]]:
    """Return number, operation and arguments of a message; raise `CoordinationError` if it is malformed."""
    message = codec.unpack(data)
    if not isinstance(message, list) or len(message) < 2:
        raise CoordinationError('malformed message: a number and an operation are needed')
    number, operation, *arguments = message
    if not is_number(number) or not isinstance(operation, str):
        raise CoordinationError(f'malformed message: it starts with {short(number)}, {short(operation)}')
    return number, operation, arguments


def check(role: str, operation: str, arguments: list[Any]) -> None:
    """Raise `CoordinationError` unless this is an operation of that role with valid arguments."""
    form.check(operation, arguments, _ARGUMENTS[role], f'a {role}')


def check_hello(hello: dict[str, Any]) -> None:
    """Raise `CoordinationError` unless a hello of this protocol version is valid."""
    for name, fits in _HELLO.items():
        if not fits(hello.get(name)):
            raise CoordinationError(f'malformed message: hello with {name}={short(hello.get(name))}')


def unpack_info(data: bytes | None) -> dict[str, Any] | None:
    """Return the information of an update, or None if it is empty; an error text replaces what cannot be read.

    The hub forwards the information of agents unchecked.
    """
    return PackedInfo(data).as_dict() if data else None


def _rows(*columns: set[type]) -> Check:
    """Return a check for a list of rows, each with these columns of one of these types."""
    def check(value: Any) -> bool:
        if type(value) is not list or not set(map(type, value)) <= {list} or not set(map(len, value)) <= {len(columns)}:
            return False
        found = [set(map(type, column)) for column in zip(*value, strict=True)]
        return all(types <= allowed for types, allowed in zip(found, columns, strict=False))
    return check


_NEW = _rows({str}, {bytes})
_UPDATES = _rows({str}, {str}, {bytes, type(None)})

_BOTH: form.Table = {
    'hello': (is_dict,), 'ping': (is_number, is_number, is_number, is_flag), 'seen': (is_number, is_number),
    'clock': (is_number,), 'moment': (is_text, is_number), 'bye': (),
    'update_pilots': (_UPDATES,), 'update_tasks': (_UPDATES,)}

_ARGUMENTS: dict[str, form.Table] = {
    'agent': {**_BOTH, 'hold': (is_flag,), 'follow': (are_texts,)},
    'client': {
        **_BOTH, 'pilots': (is_text, _NEW), 'tasks': (is_text, is_text, is_bytes, _NEW),
        'chunk': (is_text, is_text, is_bytes, is_text, is_number, is_bytes), 'withdraw': (are_texts,),
        'bind': (is_text, are_texts), 'forget': (are_texts,),
        'command': (is_text, is_bytes), 'note': (is_text, is_bytes), 'recover': (is_number,), 'detach': (),
        'acknowledge': (are_texts, is_number, is_number), 'listen': (is_text,)}}

_HELLO: dict[str, Check] = {
    'role': lambda value: value in ('client', 'agent'), 'uid': is_text, 'agent': is_text, 'instance': is_text,
    'host': is_text, 'host_name': is_text, 'pid': lambda value: is_number(value) and 0 < value <= _PID_MAX,
    'started': lambda value: value is None or is_number(value),   # version 2.0.0 does not send it
    'since': is_number, 'others': is_number, 'settled': is_number, 'hold': is_flag, 'recover': is_flag}

"""Messages have the form that a table asks for, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from rp_api.errors import CoordinationError
from rp_api.wire import codec, form

TABLE: form.Table = {
    'stop': (), 'count': (form.is_number, form.is_a(int, float)), 'names': (form.are_texts, form.are_all(bytes, int)),
    'any': (form.is_anything,)}


@pytest.mark.parametrize('message', [
    ['stop'], ['count', 0, 1.5], ['names', [], []], ['names', ['a'], [b'', 1]], ['any', None], ['any', {'a': [1]}]])
def test_messages(message: list[Any]) -> None:
    operation, arguments = form.parse(codec.pack(message), TABLE, 'somebody')
    assert [operation, *arguments] == message


@pytest.mark.parametrize('message', [
    None, 7, {}, [], [1], [['stop']], ['begin'], ['stop', 1], ['count', 1], ['count', -1, 1],
    ['count', 2**62 + 1, 1], ['count', True, 1], ['count', 1, True], ['names', ['a', 1], []], ['names', 'a', []],
    ['names', [], ['a']], ['any'], ['any', 1, 2]])
def test_everything_else_is_refused(message: Any) -> None:
    with pytest.raises(CoordinationError, match='malformed message'):
        form.parse(codec.pack(message), TABLE, 'somebody')


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(CoordinationError, match='malformed message'):
        form.parse(b'\xc1', TABLE, 'somebody')

"""Descriptions with placeholders, which the rows of a sweep fill in.

A placeholder is a field of `str.format`: `{seed}` is the column of that name, `{1}` the first column of rows without
names, `{}` the only column, and `{i}` the number of the row, from 0. It may have a format (`{seed:04d}`). `{{` and `}}`
are braces.

What a row fills in stands for itself also where `$` of the description is active. Such a placeholder has a conversion,
which users cannot write: `!s` where values get backslashes, `!r` where they are quoted for a shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from shlex import quote
from string import Formatter
from typing import Any

from rp_api.description import task as names
from rp_api.errors import DescriptionError
from rp_api.record import Cast
from rp_api.system.shell_text import escaped, is_command

ATTRIBUTES = (names.NAME, names.EXECUTABLE, names.ARGUMENTS, names.SANDBOX, names.ENVIRONMENT, names.STDOUT,
              names.STDERR, names.INPUT_STAGING, names.OUTPUT_STAGING, names.CACHE)
"""The attributes that may have placeholders."""

INDEX = 'i'
"""The placeholder for the number of a row."""

Row = Sequence[Any]
Render = Callable[[Row], Any]

_parse = Formatter().parse
_WHOLE = re.compile(r'\{(\d+)(?:!([sr]))?\}')

_CONVERSIONS = {names.ARGUMENTS: '!s', names.ENVIRONMENT: '!s', names.EXECUTABLE: '!r'}


class Fields:
    """The placeholders that a description may have: the `columns` of the rows by name, or their number.

    A rendered row is a sequence: the value of each column, and the number of the row.
    """

    def __init__(self, columns: Sequence[str] | int) -> None:
        names = [str(number) for number in range(1, columns + 1)] if isinstance(columns, int) else columns
        self._positions = {name: position for position, name in enumerate([*names, INDEX])}
        if len(names) == 1:
            self._positions[''] = 0
        self.formats: list[tuple[int, str, str]] = []
        """The formats of columns that the description uses, each with the attribute that has it."""

    def split(self, description: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the attributes without placeholders, and those with placeholders in the form that `renderer` takes.

        Raises:
            DescriptionError: A placeholder is unknown or malformed.
        """
        common, varying = dict(description), {}
        conversions = {} if description.get(names.LITERAL_ARGUMENTS) else _CONVERSIONS
        for name in ATTRIBUTES:
            value = common.get(name)
            if value and _has_braces(value):
                fixed = self._translate(name, value, conversions.get(name, ''))
                if _varies(fixed):
                    varying[name] = fixed
                    del common[name]
                else:   # only escaped braces
                    common[name] = _compiled(fixed)(())
        return common, varying

    def _translate(self, attribute: str, value: Any, conversion: str) -> Any:
        """Return a value whose placeholders are positions in a row."""
        if isinstance(value, str):
            return self._text(attribute, value, conversion)
        if isinstance(value, Mapping):
            return {key: self._translate(attribute, each, conversion) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._translate(attribute, each, conversion) for each in value]
        return value

    def _text(self, attribute: str, text: str, own: str) -> str:
        try:
            parts = list(_parse(text))
        except ValueError as error:
            raise DescriptionError(f'TaskDescription.{attribute} is {text!r:.200}, which is no text with placeholders '
                                   f'({error}): write {{{{ and }}}} for braces') from None
        found = []
        for literal, field, spec, conversion in parts:
            found.append(_doubled(literal))
            if field is not None:
                position, form = self._field(attribute, text, field, spec or '', conversion)
                found.append(f'{{{position}{own}{form}}}')
        return ''.join(found)

    def _field(self, attribute: str, text: str, field: str, spec: str, conversion: str | None) -> tuple[int, str]:
        position = self._positions.get(field)
        if position is None or conversion or '{' in spec:
            shown = f'{field}!{conversion}' if conversion else field
            allowed = ', '.join(f'{{{name}}}' for name in self._positions)
            raise DescriptionError(f'TaskDescription.{attribute} is {text!r:.200}, and the parameters have no '
                                   f'{{{shown}}}: allowed are {allowed}; write {{{{ and }}}} for braces')
        if spec:
            self.formats.append((position, spec, attribute))
        return position, f':{spec}' if spec else ''


def renderer(varying: Mapping[str, Any]) -> Callable[[Row], dict[str, Any]]:
    """Return the function that returns the attributes of a row."""
    compiled = [(name, _compiled(value)) for name, value in varying.items()]
    return lambda row: {name: render(row) for name, render in compiled}


def _compiled(value: Any) -> Render:
    if isinstance(value, str):
        whole = _WHOLE.fullmatch(value)
        if whole is not None:   # often
            position, convert = int(whole[1]), _CONVERT[whole[2]]
            return lambda row: str(convert(row[position]))
        return _formatted(value) if _has_braces(value) else lambda row: value
    if isinstance(value, Mapping):
        return _each(value.keys(), [_compiled(each) for each in value.values()])
    if isinstance(value, list):
        items = [_compiled(each) for each in value]
        return lambda row: [item(row) for item in items]
    return lambda row: value


def _formatted(text: str) -> Render:
    """Return the function that fills in a text, with values converted as its placeholders say."""
    conversion = next((conversion for *_, conversion in _parse(text) if conversion), None)
    if conversion is None:
        return lambda row: text.format(*row)
    convert = _CONVERT[conversion]
    unconverted = ''.join(_doubled(literal) + ('' if field is None else f'{{{field}:{spec}}}')
                          for literal, field, spec, _ in _parse(text))
    return lambda row: unconverted.format(*map(convert, row))


def _doubled(text: str) -> str:
    return text.replace('{', '{{').replace('}', '}}')


def _with_backslashes(value: Any) -> Any:
    return escaped(value) if isinstance(value, str) and ('$' in value or '`' in value) else value


def _quoted(value: Any) -> Any:
    return quote(value) if isinstance(value, str) and is_command(value, '/') else value


_CONVERT: dict[str | None, Cast] = {None: lambda value: value, 's': _with_backslashes, 'r': _quoted}


def _each(keys: Iterable[str], items: Sequence[Render]) -> Render:
    pairs = list(zip(keys, items, strict=True))
    return lambda row: {key: item(row) for key, item in pairs}


def _has_braces(value: Any) -> bool:
    if isinstance(value, str):
        return '{' in value or '}' in value
    if isinstance(value, Mapping):
        return any(map(_has_braces, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_braces, value))


def _varies(value: Any) -> bool:
    if isinstance(value, str):
        return any(field is not None for _, field, _, _ in _parse(value))
    if isinstance(value, Mapping):
        return any(map(_varies, value.values()))
    return isinstance(value, list) and any(map(_varies, value))

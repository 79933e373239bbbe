"""The types and ranges of attributes: from a type as a schema writes it to the function that casts values to it.

A type is written as `str`, `int`, `float`, `bool`, `Any`, `[T]` (a list of T), `{str: T}` (a dict with text as keys) or
as a cast: a function that takes a value and returns it cast, or raises `CastError` with what it should be. A cast gives
back the very object it was given if there is nothing to change, so that a list which many descriptions share stays
shared; it never changes that object.

A check is a function that gives None for a value in its range, and otherwise says what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any

from rp_api import record
from rp_api.record import CastError

Cast = Callable[[Any], Any]
Check = Callable[[Any], 'str | None']


def text(value: Any) -> str:
    """A string; numbers, bools, paths and objects that know how to write themselves (as URLs do) are written out."""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        return path if isinstance(path, str) else os.fsdecode(path)
    says_nothing = '__str__' not in {name for cls in type(value).__mro__[:-1] for name in vars(cls)}
    if says_nothing or isinstance(value, Iterable) or callable(value):
        raise CastError('a string')
    return str(value)


_SCALARS: dict[Any, Cast] = {str: text, int: record.integer, float: record.number, bool: record.flag,
                             Any: record.anything}


def cast_for(spec: Any) -> Cast:
    """The cast for a type as described above; `TypeError` for anything else, as that is a mistake in a schema."""
    if isinstance(spec, list) and len(spec) == 1:
        return list_of(spec[0])
    if isinstance(spec, dict) and list(spec) == [str]:
        return dict_of(spec[str])
    cast: Cast | None = spec if callable(spec) else None
    if not isinstance(spec, list | dict):
        cast = _SCALARS.get(spec, cast)
    if cast is None:
        raise TypeError(f'{spec!r} is no type of an attribute')
    return cast


def list_of(spec: Any) -> Cast:
    """A cast to a list of values of that type; a single value makes a list of one, tuples and sets become lists."""
    convert = record.list_of(cast_for(spec))
    exact = _exact(spec)

    def cast_list(value: Any) -> list[Any]:
        if isinstance(value, list) and exact(value):
            return value
        found = convert(tuple(value) if isinstance(value, set | frozenset) else value)
        return value if isinstance(value, list) and all(map(is_, found, value)) else found
    return cast_list


def dict_of(spec: Any) -> Cast:
    """A cast to a dict with text as keys and values of that type."""
    convert = record.dict_of(cast_for(spec))
    exact = _exact(spec)

    def cast_dict(value: Any) -> dict[str, Any]:
        if isinstance(value, dict) and set(map(type, value)) <= {str} and exact(value.values()):
            return value
        return convert(value)
    return cast_dict


def one_of(*words: str, ignored: tuple[str, ...] = ()) -> Cast:
    """A cast to one of `words`, found whatever the case of its letters; those in `ignored` give the empty string."""
    known = {word.lower(): word for word in words} | {word.lower(): '' for word in ignored}

    def cast_word(value: Any) -> str:
        found = known.get(value.lower()) if isinstance(value, str) else None
        if found is None:
            raise CastError('one of ' + ', '.join(repr(word) for word in words))
        return found
    return cast_word


def structure(value: Any) -> Any:
    """A string, or something dict-like: what a staging directive may be."""
    if isinstance(value, str | Mapping):
        return value
    raise CastError('a string or a dict')


def mapping(value: Any) -> Any:
    """Something dict-like, as it is."""
    if isinstance(value, Mapping):
        return value
    raise CastError('a dict')


def at_least(minimum: int) -> Check:
    """A check that a number is not below `minimum`."""
    def check(value: Any) -> str | None:
        return None if value >= minimum else f'{minimum} or more'
    return check


def path_part(value: str) -> str | None:
    """A check that a name can be the name of a directory and of a part of a URL."""
    if '/' in value or value in ('.', '..') or not value.isprintable() or ' ' in value:
        return 'a word without "/" and white space, other than "." and ".."'
    return None


def path(value: str) -> str | None:
    """A check that a text can be the path of a file."""
    return 'a path without NUL characters' if '\0' in value else None


def _exact(spec: Any) -> Callable[[Iterable[Any]], bool]:
    """Whether values are all of that type already, found without a cast."""
    if spec is Any:
        return lambda values: True
    if spec in (str, int, float, bool):
        wanted = {spec}
        return lambda values: set(map(type, values)) <= wanted
    return lambda values: False

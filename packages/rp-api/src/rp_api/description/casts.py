"""Types and ranges of description attributes: casts and checks.

A schema writes a type as `str`, `int`, `float`, `bool`, `Any`, `[T]` (a list of T), `{str: T}` (a dict with string
keys) or as a cast: a function that returns the value cast to the type, or raises `CastError` with a description of the
type. A cast returns the same object if nothing changes, so that a list which many descriptions share stays shared, and
never modifies its argument.

A check is a function that returns None for a value in range, and otherwise a description of the range.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from signal import Signals
from typing import Any

from rp_api import record
from rp_api.record import Cast, CastError, Check
from rp_api.system.signals import WARNINGS, name_of

_LIKE_A_PATH = ('/', './', '../', '$')
"""Beginnings of text that is a path, not a name."""


def text(value: Any) -> str:
    """Cast to a string: numbers, bools, paths and objects that define `__str__` (such as URLs) are converted."""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, os.PathLike):
        return record.text(value)
    no_text = '__str__' not in {name for cls in type(value).__mro__[:-1] for name in vars(cls)}
    if no_text or isinstance(value, Iterable) or callable(value):
        raise CastError('a string')
    return str(value)


def program(value: Any) -> str:
    """Cast to the name or path of a program or an image. A `Path` is always a path, also without a directory."""
    found = text(value)
    is_path = isinstance(value, os.PathLike) and not found.startswith(_LIKE_A_PATH)
    return f'./{found}' if is_path else found


class GeneratedUid(str):
    """A uid that was generated, not chosen: a description that has it gets another one when it is submitted."""

    __slots__ = ()


def uid(value: Any) -> str:
    """Cast to a uid; a generated one stays so."""
    return value if type(value) is GeneratedUid else text(value)


def reference(value: Any) -> str:
    """Cast to the uid of a task or pilot, or of what else has a `uid`."""
    found = value if isinstance(value, str) else getattr(value, 'uid', value)
    return text(found)


_SCALARS: dict[Any, Cast] = {str: text, int: record.integer, float: record.number, bool: record.flag,
                             Any: record.anything}


def warning(value: Any) -> str:
    """Cast to the name of a signal that warns jobs: `USR1`, `SIGUSR1` or `signal.SIGUSR1`."""
    names = sorted(map(name_of, WARNINGS))
    given = name_of(value) if isinstance(value, Signals) else value
    found = f'SIG{given.removeprefix("SIG")}' if isinstance(given, str) else given
    if found not in names:
        raise CastError(f'one of {", ".join(names)}')
    return str(found)


def cast_for(spec: Any) -> Cast:
    """Return the cast for a type of a schema (see the module); raise TypeError for a mistake in the schema."""
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
    """Return a cast to a list of that type. A single value becomes a list of one; tuples and sets become lists."""
    convert = record.list_of(cast_for(spec))
    exact = _exact(spec)

    def cast_list(value: Any) -> list[Any]:
        if isinstance(value, list) and exact(value):
            return value
        found = convert(tuple(value) if isinstance(value, set | frozenset) else value)
        return value if isinstance(value, list) and all(map(is_, found, value)) else found
    return cast_list


def dict_of(spec: Any) -> Cast:
    """Return a cast to a dict with string keys and values of that type."""
    convert = record.dict_of(cast_for(spec))
    exact = _exact(spec)

    def cast_dict(value: Any) -> dict[str, Any]:
        if isinstance(value, dict) and set(map(type, value)) <= {str} and exact(value.values()):
            return value
        return convert(value)
    return cast_dict


def one_of(*words: str, ignored: tuple[str, ...] = ()) -> Cast:
    """Return a cast to one of `words`, regardless of case; those in `ignored` become the empty string."""
    known = {word.lower(): word for word in words} | {word.lower(): '' for word in ignored}

    def cast_word(value: Any) -> str:
        found = known.get(value.lower()) if isinstance(value, str) else None
        if found is None:
            raise CastError('one of ' + ', '.join(repr(word) for word in words))
        return found
    return cast_word


def structure(value: Any) -> Any:
    """Cast to a staging directive: a string or a mapping; paths are converted."""
    if isinstance(value, str | Mapping):
        return value
    if isinstance(value, os.PathLike):
        return record.text(value)
    raise CastError('a string or a dict')


def mapping(value: Any) -> Any:
    """Cast to a mapping, which is returned as it is."""
    if isinstance(value, Mapping):
        return value
    raise CastError('a dict')


def at_least(minimum: int) -> Check:
    """Return a check that a number is not less than `minimum`."""
    def check(value: Any) -> str | None:
        return None if value >= minimum else f'{minimum} or more'
    return check


def path_part(value: str) -> str | None:
    """Check that a name can be part of a path and of a URL, and of no hidden one, as `.rp.cache` is."""
    if '/' in value or value.startswith('.') or not value.isprintable() or ' ' in value:
        return 'a word without "/" and white space that does not begin with "."'
    return None


def new_name(ours: str) -> Check:
    """Return a check that a name is a part of a path, and none that a file of the system has there.

    `ours` is a regular expression for the names of those.
    """
    def check(value: str) -> str | None:
        taken = re.fullmatch(ours, value)
        return 'another name than those of the files that the system makes there' if taken else path_part(value)
    return check


SESSION_UID = new_name(r'radical\.pilot\.sandbox|env\.\d+|ve\..*')
"""A session has directories in the base directory and in the one of all sandboxes."""

PILOT_UID = new_name(r'hub\..*|mongodb\.prof|cache\.identities|.*\.(prof|tasks|partitions)')
"""A pilot has directories in those of its session."""

TASK_UID = new_name(r'env|gtod|prof|ctrl|virtenv|rp_install|staging_output\.tgz|(agent|bootstrap)_0(\..*)?'
                    r'|agent_\d+\..*|agent_.*\.prof|(app_comm|endpoint)(\..*)?\.(err|json)|(.*\.)?raptor(\..*)?\.json')
"""A task has a directory in the sandbox of its pilot."""


def path(value: str) -> str | None:
    """Check that a text can be a path."""
    return 'a path without NUL characters' if '\0' in value else None


def _exact(spec: Any) -> Callable[[Iterable[Any]], bool]:
    """Return a function that tells whether all values already have that type, without casting them."""
    if spec is Any:
        return lambda values: True
    if spec in (str, int, float, bool):
        wanted = {spec}
        return lambda values: set(map(type, values)) <= wanted
    return lambda values: False

"""Staging directives: expansion of user input to one plain form.

A directive is written as a string, `source > target` or `target < source` (`>>` and `<<` mean the same), as the source
alone, or as a dict. The expanded form is a plain dict with all keys of `Directive`. Names that contain `<` or `>`, or
that start or end with a blank, require a dict.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from rp_api import constants
from rp_api.errors import DescriptionError, attribute_type_error, unknown_attribute
from rp_api.record import suggestion
from rp_api.staging import protocol
from rp_api.staging.files import has_wildcard


class Directive(TypedDict):
    """An expanded directive, as sent over the wire; `flags` is a sum of RECURSIVE, CREATE_PARENTS and NON_FATAL."""

    uid: str
    source: str
    target: str
    action: str
    flags: int
    priority: int


_KEYS = tuple(Directive.__annotations__)
_ARROW = re.compile(r'>>?|<<?')
_FLAGS = {name: getattr(constants, name) for name in ('RECURSIVE', 'CREATE_PARENTS', 'NON_FATAL')}
_FLAG_WORDS = {name.replace('_', '').casefold(): flag for name, flag in _FLAGS.items()}
_uids = itertools.count()


def expand(directives: Any, counter: Iterator[int] | None = None) -> list[Directive]:
    """Return directives in expanded form.

    Args:
        directives: One directive in any form, a list of them, or None. An expanded directive stays unchanged.
        counter: Numbers for directives without a uid, by default unique in the process.

    Raises:
        DescriptionError: A directive is invalid; the message has the directive and the reason.
    """
    if directives is None:
        return []
    many = directives if isinstance(directives, list | tuple) else [directives]
    return [_expand(directive, _uids if counter is None else counter) for directive in many]


def describe(sd: Mapping[str, Any]) -> str:
    """Return the directive as one line of text for messages, without secrets: `Transfer client:///a > task:///b`."""
    return protocol.masked(f'{sd["action"]} {sd["source"]} > {sd["target"]}')


def _expand(directive: Any, counter: Iterator[int]) -> Directive:
    given = directive if isinstance(directive, Mapping) else _parse(directive)
    for key in given:
        if key not in _KEYS:
            raise unknown_attribute(f'staging directive {directive!r} has an unknown key {key!r}'
                                    f'{suggestion(str(key), _KEYS)}')
    try:
        source = _location('source', given.get('source'))
        action = constants.DEFAULT_ACTION if given.get('action') is None else protocol.action(str(given['action']))
        _check_action(source, action)
        target = _target(given.get('target'), source)
        _check_remote(source, target, action)
        protocol.protocol(action).check(source, target)
        return {
            'uid': str(given.get('uid') or f'sd.{next(counter):04d}'),
            'source': source,
            'target': target,
            'action': action,
            'flags': _flags(given.get('flags')),
            'priority': _priority(given.get('priority')),
        }
    except DescriptionError as error:
        raise type(error)(protocol.masked(f'staging directive {directive!r}: {error}')) from None


def _parse(directive: Any) -> dict[str, str]:
    """Return source and target of a directive in string form."""
    words = _text(directive)
    if words is None:
        raise attribute_type_error(f'staging directive {directive!r} must be a string or a dict')
    arrows = _ARROW.findall(words)
    if not arrows:
        return {'source': words.strip()}
    left, right = (word.strip() for word in _ARROW.split(words, maxsplit=1))
    if len(arrows) > 1 or not left or not right:
        raise DescriptionError(f"staging directive {directive!r} must be 'source > target' or "
                               "'target < source'; use a dict for names that contain < or >")
    source, target = (left, right) if arrows[0][0] == '>' else (right, left)
    return {'source': source, 'target': target}


def _text(value: Any) -> str | None:
    """Return the text of strings, paths and URL objects; None for numbers and containers."""
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if value is None or isinstance(value, bool | int | float | bytes | Mapping | list | tuple | set):
        return None
    return str(value)


def _location(key: str, value: Any) -> str:
    found = _text(value)
    if not found:
        raise attribute_type_error(f'{key} must be a path or URL, not {value!r}')
    try:
        encoded = os.fsencode(found)
    except UnicodeEncodeError as error:
        raise DescriptionError(f'{key} {value!r} cannot be the name of a file: {error.reason}') from None
    if b'\0' in encoded:
        raise DescriptionError(f'{key} {value!r} cannot be the name of a file: null byte')
    return found


def _check_action(source: str, action: str) -> None:
    """Raise a DescriptionError if the source's URL requires another action."""
    needed = protocol.owner(source)
    if needed not in ('', action):
        raise DescriptionError(f'source {source!r} can only be fetched with action {needed}, not {action}')


def _check_remote(source: str, target: str, action: str) -> None:
    """Raise a DescriptionError if a URL of another host is invalid, or not possible with this action."""
    found = protocol.transport(source) or protocol.transport(target)
    if found is None:
        return
    if action not in protocol.REMOTE_ACTIONS:
        raise DescriptionError(f'action {action} needs paths on one host; for URLs of other hosts there are '
                               f'{", ".join(protocol.REMOTE_ACTIONS)}')
    found.check(source, target)


def _target(value: Any, source: str) -> str:
    """Return the target; by default the last part of the source, or '.' if that is a pattern."""
    if value is not None and value != '':
        return _location('target', value)
    owner = protocol.owner(source)
    remote = protocol.transport(source) or (protocol.protocol(owner) if owner else None)
    name = remote.name(source) if remote else os.path.basename(source.rpartition('://')[2].rstrip('/'))
    if name in ('', '.', '..'):
        raise DescriptionError(f'target is required, since source {source!r} has no name')
    return '.' if has_wildcard(name) else name


def _flags(value: Any) -> int:
    """Return the flags as one number; they are given as a number, a name, or a list of them."""
    if value is None:
        return constants.DEFAULT_FLAGS
    flags = 0
    for each in value if isinstance(value, list | tuple | set) else [value]:
        flags |= _flag(each)
    return flags


def _flag(value: Any) -> int:
    if isinstance(value, str):
        value = _FLAG_WORDS.get(value.replace('_', '').casefold(), value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= sum(_FLAGS.values()):
        return value
    known = ', '.join(f'{name} ({flag})' for name, flag in _FLAGS.items())
    raise DescriptionError(f'flags {value!r} are not a sum or list of {known}')


def _priority(value: Any) -> int:
    try:
        return constants.DEFAULT_PRIORITY if value is None else int(value)
    except (TypeError, ValueError):
        raise attribute_type_error(f'priority must be an integer, not {value!r}') from None

"""Classes that travel by value. A process has one of each, which all pickles of it share, in whatever order they come.

A pickle says by which content of the class it was made. A class of this process is never changed by a pickle that comes
back. One that came from elsewhere gets the attributes of each pickle that is restored, unless it has them already;
`restored.changes` tells those who keep what was restored before that they have to restore it again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from cloudpickle.cloudpickle import (  # type: ignore[import-untyped]
    _DYNAMIC_CLASS_TRACKER_BY_ID as _KNOWN,
)

from rp_api.by_value.snapshot import Snapshot


class Restored:
    """How often classes were `met` in pickles, and how many `changes` this has made to classes of this process."""

    __slots__ = ('changes', 'met')

    def __init__(self) -> None:
        self.met = self.changes = 0


restored = Restored()

_contents: WeakKeyDictionary[type, tuple[Snapshot, str]] = WeakKeyDictionary()
_made: WeakKeyDictionary[type, tuple[str, frozenset[str]]] = WeakKeyDictionary()
"""The classes that came from elsewhere, with their content and the names of their attributes."""


def reduced_class(value: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how to pickle a class, given how cloudpickle does it."""
    make, arguments, state, _, _, set_state = reduced
    return _restored_class, (make, arguments), (set_state, state, _content(value)), None, None, _set_state


def _content(value: type) -> str:
    """Return a name for the content of a class, which changes with it; empty if that cannot be told."""
    if '<locals>' in value.__qualname__:   # they may be many, and snapshots would keep them
        return ''
    known = _contents.get(value)
    if known is None or not known[0].holds(value):
        snapshot = Snapshot(value)
        if snapshot.places is None:
            return ''
        known = _contents[value] = snapshot, os.urandom(8).hex()
    return known[1]


def _restored_class(make: Any, arguments: tuple[Any, ...]) -> type:
    here = arguments[-2] in _KNOWN   # the identifier of the class
    found: type = make(*arguments)
    if not here:
        _made[found] = '', frozenset()
    return found


def _set_state(value: type, given: tuple[Any, Any, str]) -> None:
    set_state, state, content = given
    restored.met += 1
    known = _made.get(value)
    if known is None or (content and content == known[0]):
        return
    restored.changes += 1
    names = frozenset(state[0])
    for name in known[1] - names:
        with suppress(AttributeError):
            delattr(value, name)
    set_state(value, state)
    _made[value] = content, names

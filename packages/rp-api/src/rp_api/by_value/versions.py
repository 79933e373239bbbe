"""Pickled functions, made once for each version of a function."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from rp_api import pickles
from rp_api.by_value.pickler import dumps
from rp_api.by_value.snapshot import Snapshot

MAX_FUNCTIONS = 1024
"""Functions that are remembered at most."""

_latest: WeakKeyDictionary[FunctionType, tuple[Snapshot, bytes]] = WeakKeyDictionary()


def pickled(func: Callable[..., Any]) -> bytes:
    """Return the pickled function as it is now: the same object as before if it has not changed.

    Raises:
        SerializationError: It cannot be pickled.
    """
    if type(func) is not FunctionType:   # its content cannot be compared
        return pickles.stamped(dumps(func))
    found = _latest.get(func)
    if found is not None and found[0].holds(func):
        return found[1]
    snapshot = Snapshot(func)   # before it is pickled: another thread may change it meanwhile
    data = pickles.stamped(dumps(func))
    if found is not None and found[1] == data:
        data = found[1]
    if len(_latest) >= MAX_FUNCTIONS:   # a function that refers to itself stays
        _latest.clear()
    _latest[func] = snapshot, data
    return data


def follow(func: Callable[..., Any]) -> Callable[[], bytes]:
    """Return what returns `pickled(func)`, without a search for the function at each call."""
    found: tuple[Snapshot, bytes] | None = None

    def latest() -> bytes:
        nonlocal found
        if found is not None and found[0].holds(func):
            return found[1]
        data = pickled(func)
        found = _latest.get(func) if type(func) is FunctionType else None
        return data
    return latest

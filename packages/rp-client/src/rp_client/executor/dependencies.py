"""Futures among the arguments of a call or a program: found, waited for, and replaced by their values.

A future is found if it is an argument, or an item of an argument that is a list, a tuple or a dict. A `Task` stands for
its future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from rp_client.task import Task

_COLLECTIONS = (list, tuple, dict)


def futures_in(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Future[Any]]:
    """Return the futures among the arguments, each once."""
    found: dict[int, Future[Any]] = {}
    for values in (args, kwargs.values()) if kwargs else (args,):
        for value in values:
            if isinstance(value, (Future, Task)):
                _add(value, found)
            elif type(value) in _COLLECTIONS:
                for item in value.values() if type(value) is dict else value:
                    if isinstance(item, (Future, Task)):
                        _add(item, found)
    return list(found.values())


def with_values(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with values in place of futures, which are all done."""
    return tuple(map(_resolved, args)), {name: _resolved(value) for name, value in kwargs.items()}


def copied(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with copies of the collections that may have futures, and change before these are done."""
    return tuple(map(_copy, args)), {name: _copy(value) for name, value in kwargs.items()}


def _copy(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict) else value


def _add(item: Any, found: dict[int, Future[Any]]) -> None:
    future = item.future() if isinstance(item, Task) else item
    found[id(future)] = future


def _resolved(value: Any) -> Any:
    if type(value) is dict:
        return {key: _value(item) for key, item in value.items()}
    if type(value) in _COLLECTIONS:
        return type(value)(map(_value, value))
    return _value(value)


def _value(item: Any) -> Any:
    if isinstance(item, Task):
        item = item.future()
    return item.result(0) if isinstance(item, Future) else item


class Waiting:
    """Waits for futures; then calls `ready()`, or `failed(future)` with the first that has failed or was cancelled.

    Futures report their end through `post`, which runs an action in one thread: a chain of any length needs no stack.
    """

    def __init__(self, futures: Iterable[Future[Any]], post: Callable[[Callable[[], object]], object],
                 ready: Callable[[], object], failed: Callable[[Future[Any]], object]) -> None:
        self._left = list(futures)
        self._ready, self._failed = ready, failed
        self._missing = len(self._left)
        for future in self._left:
            future.add_done_callback(lambda done: post(lambda: self._ended(done)))

    def _ended(self, future: Future[Any]) -> None:
        if not self._missing:   # another one has failed
            return
        if future.cancelled() or future.exception() is not None:
            self._missing = 0
            self._failed(future)
            return
        self._missing -= 1
        if not self._missing:
            self._ready()

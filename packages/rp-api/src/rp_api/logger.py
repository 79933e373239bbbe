"""Deferred loading of `logging` for modules that every process loads and that rarely log.

Importing `logging` takes a tenth of a sub-agent's start time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_to_do: list[Callable[[], object]] = []


def logger(name: str) -> logging.Logger:
    """Return the logger of that name, after the set-up of this process."""
    import logging

    while _to_do:
        _to_do.pop()()
    return logging.getLogger(name)


def set_up_by(set_up: Callable[[], object]) -> None:
    """Register a function to be called before the first message."""
    _to_do.append(set_up)

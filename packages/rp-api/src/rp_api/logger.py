"""Loggers for what every process loads and hardly any has something to log of.

`logging` is loaded with the first message, as that takes a tenth of the time in which a sub-agent starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_to_do: list[Callable[[], object]] = []


def logger(name: str) -> logging.Logger:
    """The logger of that name, set up as this process wants it."""
    import logging

    while _to_do:
        _to_do.pop()()
    return logging.getLogger(name)


def set_up_by(set_up: Callable[[], object]) -> None:
    """Have `set_up()` called before the first message."""
    _to_do.append(set_up)

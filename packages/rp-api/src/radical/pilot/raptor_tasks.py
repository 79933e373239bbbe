"""`radical.pilot.raptor_tasks`: the application's handles of masters and workers, under the names they had there."""

from __future__ import annotations

from importlib import import_module

_TABLE = {'Raptor': 'RaptorMaster', 'RaptorMaster': 'RaptorMaster', 'RaptorWorker': 'RaptorWorker'}


def __getattr__(name: str) -> object:
    """The class called `name`; AttributeError if there is none, or rp-client is not installed."""
    if name not in _TABLE:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module('radical.pilot'), _TABLE[name])


def __dir__() -> list[str]:
    """The names that there are, installed or not."""
    return sorted(_TABLE)

"""`radical.pilot.raptor_tasks`: the client's handles of RAPTOR masters and workers, under their earlier import path."""

from __future__ import annotations

from importlib import import_module

_TABLE = {'Raptor': 'RaptorMaster', 'RaptorMaster': 'RaptorMaster', 'RaptorWorker': 'RaptorWorker'}


def __getattr__(name: str) -> object:
    """Return the class called `name`; raise AttributeError if it is unknown or rp-client is not installed."""
    if name not in _TABLE:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module('radical.pilot'), _TABLE[name])


def __dir__() -> list[str]:
    """Return the public names, installed or not."""
    return sorted(_TABLE)

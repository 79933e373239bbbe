"""`radical.pilot.raptor`: masters and workers, and what applications call functions with.

A name is looked up when it is first used. If rp-raptor is not installed, it is an AttributeError that says so.
"""

from __future__ import annotations

from importlib import import_module

_TABLE = {
    'Master': 'rp_raptor.master.master',
    'Worker': 'rp_raptor.rank.worker',
    'DefaultWorker': 'rp_raptor.rank.worker',
    'MPIWorker': 'rp_raptor.rank.worker',
    'MPIWorkerRank': 'rp_raptor.rank.worker',
    'stream': 'rp_raptor.client.stream',
    'Executor': 'rp_raptor.client.futures',
}


def __getattr__(name: str) -> object:
    """The object called `name`, imported now."""
    if name not in _TABLE:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from rp_api.distributions import missing

    sentence = missing('rp-raptor')
    if sentence is not None:
        raise AttributeError(f'{__name__}.{name}: {sentence}')
    value = getattr(import_module(_TABLE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The names that there are, installed or not."""
    return sorted(_TABLE)

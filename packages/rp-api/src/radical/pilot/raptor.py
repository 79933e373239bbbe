"""`radical.pilot.raptor`: RAPTOR masters and workers, the `Executor`, and streams of results.

A name is imported on first use. Without rp-raptor it raises an `AttributeError` that names the `pip install` command.
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
    """Import and return the object called `name`; raise AttributeError if it is unknown or not installed."""
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
    """Return the public names, installed or not."""
    return sorted(_TABLE)

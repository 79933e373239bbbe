"""Makers of all listeners of the system, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from listeners import HubListener, MeshListener, ServiceListener
from raptor_listeners import RAPTOR_LISTENERS


def mesh(kind: str, transport: str, directory: Path) -> MeshListener:
    """A bridge or the root of a tree that listens on that transport."""
    return MeshListener(kind, 'tcp://127.0.0.1' if transport == 'tcp' else f'ipc://{directory}/s')


LISTENERS: dict[str, Callable[[Path], Any]] = {
    'hub-ipc': HubListener, 'hub-tcp': lambda directory: HubListener(directory, 'tcp://127.0.0.1:*'),
    'service': ServiceListener,
    **{f'{kind}-{transport}': lambda directory, kind=kind, transport=transport: mesh(kind, transport, directory)
       for kind in ('queue', 'pubsub', 'tree') for transport in ('ipc', 'tcp')},
    **RAPTOR_LISTENERS}
"""Makers of everything that listens, by name."""


@contextmanager
def serving(name: str, directory: Path) -> Iterator[Any]:
    """A listener of that name; its directory must be private."""
    directory.chmod(0o700)
    listener = LISTENERS[name](directory)
    listener.initial = listener.figures()['accepted']
    try:
        yield listener
    finally:
        listener.close()

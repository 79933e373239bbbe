"""Makers of all listeners of the system, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from listeners import BridgeListener, HubListener, ServiceListener
from raptor_listeners import RAPTOR_LISTENERS

LISTENERS: dict[str, Callable[[Path], Any]] = {
    'hub-ipc': HubListener, 'hub-tcp': lambda directory: HubListener(directory, 'tcp://127.0.0.1:*'),
    'service': ServiceListener,
    'tree-ipc': lambda directory: BridgeListener(f'ipc://{directory}/s'),
    'tree-tcp': lambda directory: BridgeListener('tcp://127.0.0.1'),
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

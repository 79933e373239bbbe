"""The handover of a session: an application that attaches asks the process that serves the session to leave it.

The server listens on a Unix socket in the session's directory, which is private to the user. A connection is the
request, and its end tells that the server has left.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rp_api.errors import CoordinationError

NAME = 'served'
"""The name of the socket in the directory of a session."""

HANDOVER_TIMEOUT = 60.0
"""Seconds that a server may take to leave."""


class HandoverRequests:
    """The requests to leave a session that this process serves."""

    def __init__(self, directory: str) -> None:
        self._path = Path(directory, NAME)
        self._listening = socket.socket(socket.AF_UNIX)
        with _address(directory) as address:
            self._listening.bind(address)
        self._listening.listen()

    def wait(self, timeout: float) -> bool:
        """Wait for a request; return False after `timeout` seconds."""
        return bool(select.select([self._listening], [], [], timeout)[0])

    def close(self) -> None:
        """Tell all who have asked that this process has left."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        self._listening.close()


def take_over(directory: str) -> None:
    """Ask the process that serves the session in a directory, if there is one, to leave, and wait until it has."""
    with suppress(FileNotFoundError, ConnectionError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(HANDOVER_TIMEOUT)
        with _address(directory) as address:
            try:
                asking.connect(address)
            except ConnectionRefusedError:   # its process died
                Path(directory, NAME).unlink()
            else:
                try:
                    asking.recv(1)
                except TimeoutError:
                    raise CoordinationError(f'the process that serves the session in {directory} does not leave it '
                                            f'within {HANDOVER_TIMEOUT:.0f} s') from None


@contextmanager
def _address(directory: str) -> Iterator[str]:
    """Yield an address of the socket, which must be shorter than paths may be."""
    descriptor = os.open(directory, os.O_PATH)
    try:
        yield f'/proc/self/fd/{descriptor}/{NAME}'
    finally:
        os.close(descriptor)

"""The threads of a rank beside its calls: their priority, and the one that ends the rank if its manager is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress

import zmq

from rp_api.loop.process_handle import ProcessHandle


def threads() -> set[int]:
    """Return the ids of this process's threads."""
    return set(map(int, os.listdir('/proc/self/task')))


def give_way(those: Iterable[int]) -> None:
    """Give threads a lower priority, so that they do not preempt a call; they run at once where a core is free."""
    for thread in those:
        with suppress(OSError):   # the thread has ended, or this is not permitted: a loss of speed only
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


class ManagerWatch:
    """Ends this process when the connection to the manager is lost, or the manager on this node dies.

    The process may be in a call that takes hours, whose result cannot be delivered. A thread blocks until then. Must be
    created before the socket is connected.
    """

    def __init__(self, socket: zmq.Socket[bytes], manager: int, started: int | None, same_node: bool) -> None:
        self._socket = socket
        self._events = socket.get_monitor_socket(zmq.Event.DISCONNECTED)
        self._closing = os.eventfd(0, os.EFD_CLOEXEC)
        self._manager = ProcessHandle.open(manager, started) if same_node else None
        self._gone = same_node and self._manager is None
        self._thread = threading.Thread(target=self._wait, name='manager-watch', daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; must be called before the socket is closed."""
        os.eventfd_write(self._closing, 1)
        self._thread.join()
        self._socket.disable_monitor()
        self._events.close(linger=0)
        os.close(self._closing)
        if self._manager is not None:
            self._manager.close()

    def _wait(self) -> None:
        poller = zmq.Poller()
        poller.register(self._events, zmq.POLLIN)
        poller.register(self._closing, zmq.POLLIN)
        if self._manager is not None:
            poller.register(self._manager, zmq.POLLIN)
        found = [] if self._gone else [what for what, _ in poller.poll()]
        if self._closing not in found:
            os._exit(1)

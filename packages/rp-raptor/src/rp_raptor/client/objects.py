"""Puts objects of an application at a master: `RaptorMaster.put_object`."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Sequence
from typing import Any

from rp_api.errors import sentence
from rp_api.loop.event_loop import Loop
from rp_api.system.owner_process import OwnerProcess
from rp_raptor.client.application_link import ApplicationLink, MasterSide
from rp_raptor.errors import CallLost
from rp_raptor.objects.reference import ObjectRef, ObjectStore, Owned, own

_WAITING, _WORKING = 0.05, 0.5   # seconds between polls of the master, as in `rp_raptor.client.caller`

_store = ObjectStore()


class ClientObjects:
    """The objects of an application at one master, and a connection in a thread of its own while there are some."""

    def __init__(self, master: MasterSide) -> None:
        self._master = master
        self._process = OwnerProcess('the objects of this application')
        self._connection: _Connection | None = None
        self._lock = threading.Lock()

    def put(self, value: Any) -> ObjectRef:
        """Store an object, and return a reference to it when the master has it; see `RaptorMaster.put_object`."""
        self._process.check()
        owned = own(_store, value, self._master.uid)
        with self._lock:
            while self._connection is None or not self._connection.add(owned):
                self._connection = _Connection(self._master)
            connection = self._connection
        connection.wait(owned)
        return ObjectRef(owned)


class _Connection:
    """A connection to the master that ends when no object is left, or the master is lost; the owner of its link."""

    def __init__(self, master: MasterSide) -> None:
        self.definitions: dict[bytes, bytes] = {}
        self._loop = Loop()
        self._link = ApplicationLink(self._loop, master, f'objects.{os.urandom(8).hex()}', self, None)
        self._expected: dict[bytes, tuple[threading.Event, list[str]]] = {}
        self._over = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name='raptor.objects', daemon=True)

    def add(self, owned: Owned) -> bool:
        """Make an object known to the master; False if the connection has ended."""
        with self._lock:
            if self._over:
                return False
            self._expected[owned.id] = threading.Event(), []
            self._loop.call_soon(self._link.objects.show, owned)
        if not self._thread.ident:
            self._loop.call_soon(self._look)
            self._thread.start()
        return True

    def wait(self, owned: Owned) -> None:
        """Wait until the master has an object; CallLost if it cannot have it."""
        event, faults = self._expected[owned.id]
        try:
            event.wait()
        finally:
            del self._expected[owned.id]
        if faults:
            raise CallLost(f'the object cannot be put: {faults[0]}')

    # the owner of the link: there are no calls

    def results(self, numbers: array[int], payloads: Sequence[bytes]) -> None:
        """Ignore results."""

    def take_back(self, calls: dict[int, bytes]) -> None:
        """Take no calls."""

    def deal(self) -> None:
        """Send no calls."""

    def ranks_changed(self) -> None:
        """Do nothing: there are no calls."""

    def object_ready(self, id: bytes, fault: str) -> None:
        """Wake the thread that waits for the object."""
        event, faults = self._expected.get(id, (None, []))
        if event is not None and not event.is_set():
            if fault:
                faults.append(fault)
            event.set()

    # in the thread

    def _run(self) -> None:
        fault = 'its connection has ended'
        try:
            self._loop.run()
        except BaseException as error:
            fault = f'the thread for it has failed: {sentence(error)}'
            raise
        finally:
            with self._lock:
                self._over = True
            for id in list(self._expected):
                self.object_ready(id, self._link.lost or fault)
            self._link.close()
            self._loop.close()
            _store.tidy()

    def _look(self) -> None:
        self._link.look()
        with self._lock:
            self._over = bool(self._link.lost) or not (self._link.objects or self._expected)
        if self._over:
            self._loop.stop()
        else:
            self._loop.call_later(_WAITING if self._link.waits else _WORKING, self._look)

"""The objects of a worker's manager: fetched once for all ranks of a host, and mapped by these."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq

from rp_api.errors import CoordinationError, sentence
from rp_api.loop.event_loop import Loop
from rp_api.system.network import address_towards
from rp_api.system.shared_directory import place
from rp_api.transport.access import Access
from rp_raptor.carriers.channel import OpenFile, link
from rp_raptor.objects.reference import ObjectStore
from rp_raptor.objects.transfer import Download, ObjectServer, Transfer

_ATTEMPTS = 5   # holders that are tried for one object


class _Wanted:
    """An object that ranks wait for."""

    def __init__(self) -> None:
        self.ranks: list[int] = []
        self.others: list[Callable[[str], object]] = []
        self.failed: list[str] = []
        self.faults: list[str] = []
        self.sender = ''
        self.download: Download | None = None
        self.transfer: Transfer | None = None
        self.carried = False       # carriers bring it
        self.not_carried = False   # they have failed

    def close(self) -> None:
        """End a transfer that is under way."""
        if self.transfer is not None:
            self.transfer.close()
            self.transfer = None


class WorkerObjects:
    """Answers ranks that need an object with the path of its file.

    `to_master` and `to_rank` send messages; `master_path` is the file with the address of the master. `ask(id)` asks
    the first manager of the worker for an object, which carriers bring; it returns False if they cannot.
    """

    def __init__(self, loop: Loop, to_master: Callable[[list[Any]], object],
                 to_rank: Callable[[int, list[Any]], object], master_path: str, base: str | None,
                 ask: Callable[[bytes], bool] | None = None) -> None:
        self._loop = loop
        self._to_master, self._to_rank = to_master, to_rank
        self._master_path, self._base = master_path, base
        self._ask = ask
        self._paths: dict[bytes, tuple[str, str]] = {}   # of files, and who has written them
        self._held: dict[bytes, str] = {}                # own files
        self._wanted: dict[bytes, _Wanted] = {}
        self._store = ObjectStore()
        self._context: zmq.Context[Any] | None = None
        self._server: ObjectServer | None = None

    def fetch(self, rank: int, id: bytes) -> None:
        """Answer a rank when the object is here."""
        wanted = self._missing(id)
        if wanted is None:
            self._to_rank(rank, ['object', id, self._paths[id][0], ''])
        else:
            wanted.ranks.append(rank)

    def fetch_for_parts(self, id: bytes, found: Callable[[str], object]) -> None:
        """Call `found` with the path of the object when it is here, or '' if it is not to be had."""
        wanted = self._missing(id)
        if wanted is None:
            found(self._paths[id][0])
        else:
            wanted.others.append(found)

    def at(self, id: bytes, size: int, holder: str, path: str, access: Mapping[str, Any]) -> None:
        """Use the file on this host, or get it from that holder."""
        wanted = self._wanted.get(id)
        if wanted is None:
            return
        wanted.close()
        wanted.sender = holder
        if not holder:
            wanted.carried = self._ask is not None and self._ask(id)
            if not wanted.carried:
                self._not_carried(id, wanted)
        elif not path:
            self._transfer(id, size, wanted, access)
        elif os.access(path, os.R_OK):
            self._found(id, path, holder)
        else:
            self._failed(id, wanted, f'{path} of {holder} cannot be read')

    def came(self, id: bytes, file: OpenFile | None) -> None:
        """Use a file that carriers have brought; without one, get the object from a holder."""
        wanted = self._wanted.get(id)
        if wanted is None or not wanted.carried:
            return
        wanted.carried = False
        try:
            if file is None:
                raise FileNotFoundError
            path = self._store.path_for(os.fstat(file.fd).st_size)
            link(file, path)
        except OSError:   # there is no room, if there is a file
            self._not_carried(id, wanted)
        else:
            self._complete(id, path)

    def lost(self, id: bytes, reason: str) -> None:
        """Tell the ranks that the object is not to be had."""
        if id in self._wanted:
            self._answer(id, '', reason)

    def forget(self, id: bytes) -> None:
        """Remove a dropped object; the ranks hear of it from the manager."""
        self.lost(id, 'it was dropped')
        self._paths.pop(id, None)
        path = self._held.pop(id, None)
        if path is not None:
            self._store.discard(path)

    def gone(self, ranks: Sequence[int]) -> None:
        """Forget the requests of dead ranks."""
        for wanted in self._wanted.values():
            wanted.ranks = [rank for rank in wanted.ranks if rank not in ranks]

    def connected(self) -> None:
        """Tell the master everything again after a handshake."""
        for id, path in self._held.items():
            self._hold(id, path)
        for id, wanted in self._wanted.items():
            if not wanted.carried:
                self._want(id, wanted)

    def close(self) -> None:
        """Remove all files and close all connections."""
        for wanted in self._wanted.values():
            wanted.close()
            if wanted.download is not None:
                wanted.download.close()
        if self._server is not None:
            self._server.close()
        if self._context is not None:
            self._context.term()
        self._store.close()

    def _missing(self, id: bytes) -> _Wanted | None:
        """Return what waits for an object that is not here; it is asked for now, if nobody did."""
        path, holder = self._paths.get(id, ('', ''))
        if path and os.path.exists(path):
            return None
        wanted = self._wanted.get(id)
        if wanted is None:
            wanted = self._wanted[id] = _Wanted()
            wanted.failed += [holder] if path else []
            self._want(id, wanted)
        return wanted

    def _want(self, id: bytes, wanted: _Wanted) -> None:
        wanted.close()
        carried = self._ask is not None and not wanted.not_carried
        self._to_master(['want_object', id, place(), wanted.failed, carried])

    def _not_carried(self, id: bytes, wanted: _Wanted) -> None:
        wanted.not_carried = True
        self._want(id, wanted)

    def _failed(self, id: bytes, wanted: _Wanted, fault: str) -> None:
        """Ask for another holder, or give up."""
        wanted.failed.append(wanted.sender)
        wanted.faults.append(fault)
        if len(wanted.faults) < _ATTEMPTS:
            self._want(id, wanted)
        else:
            self.lost(id, f'it cannot be fetched: {"; ".join(wanted.faults)}')

    def _transfer(self, id: bytes, size: int, wanted: _Wanted, access: Mapping[str, Any]) -> None:
        def ended(fault: str) -> None:
            if fault:
                self._failed(id, wanted, fault)
            else:
                assert wanted.download is not None
                wanted.download.close()
                path, wanted.download = wanted.download.path, None
                self._complete(id, path)
        try:
            if wanted.download is None:
                wanted.download = Download(self._store.path_for(size), size)
            wanted.transfer = Transfer(self._loop, self._own_context(), Access.read(access), id, wanted.download, ended)
        except (CoordinationError, OSError) as error:
            self._failed(id, wanted, sentence(error))

    def _own_context(self) -> zmq.Context[Any]:
        if self._context is None:
            self._context = zmq.Context()
        return self._context

    def _complete(self, id: bytes, path: str) -> None:
        """Give the file to the ranks, and offer it to others."""
        self._held[id] = path
        self._hold(id, path)
        self._found(id, path, '')

    def _hold(self, id: bytes, path: str) -> None:
        if self._server is None:
            address = Access.load(self._master_path).address
            interface = address_towards(address) if address.startswith('tcp://') else None
            self._server = ObjectServer(self._loop, self._own_context(), interface, self._base, self._held.get)
        self._to_master(['hold_object', id, place(), path, self._server.access.as_dict()])

    def _found(self, id: bytes, path: str, holder: str) -> None:
        self._paths[id] = path, holder
        self._answer(id, path, '')

    def _answer(self, id: bytes, path: str, fault: str) -> None:
        """Tell the ranks that wait for an object, and remove what is there of a transfer."""
        wanted = self._wanted.pop(id)
        wanted.close()
        if wanted.download is not None:
            wanted.download.close()
            self._store.discard(wanted.download.path)
        for found in wanted.others:
            found(path)
        for rank in wanted.ranks:
            self._to_rank(rank, ['object', id, path, fault])

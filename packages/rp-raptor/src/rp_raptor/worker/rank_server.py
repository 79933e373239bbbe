"""The manager's end of the connections to its ranks: identifies them and exchanges messages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.system.processes import start_time
from rp_api.system.shared_directory import SharedDirectory
from rp_api.transport.access import AccessPoint
from rp_api.transport.connection import arrivals, make_private_directory, send_to
from rp_api.transport.keys import Tally
from rp_raptor.wire import cursor
from rp_raptor.wire.batch import pack_message
from rp_raptor.wire.rank_protocol import FROM_RANK, Run, parse
from rp_raptor.worker.worker_environment import WorkerEnvironment

_DOMAIN = 'rank'
_WAITING = 1 << 16   # queued messages to a rank that does not read


class RankServer:
    """Listens for ranks, in a private directory in `base` or, without one, in shared memory.

    `heard(rank, message)` is called with their messages.
    """

    def __init__(self, loop: Loop, heard: Callable[[int, list[Any]], object], base: str | None = None) -> None:
        self._heard = heard
        self._ranks: dict[bytes, int] = {}
        self._peers: dict[int, bytes] = {}
        self._malformed = Tally('malformed message of a rank')
        self._point = AccessPoint(loop, zmq.Context.instance(), _DOMAIN)
        # a later sweep finds a shared directory, if this process is killed; the agent removes those in `base`
        self._shared = None if base else SharedDirectory()
        self.directory = self._shared.path if self._shared else make_private_directory(base)
        self._listener = self._point.listen(zmq.ROUTER, f'ipc://{self.directory}/s', _WAITING, self.receive)
        self.run_file = ''
        self.end_file = os.path.join(self.directory, 'ends')
        self._cursor_file = os.path.join(self.directory, 'cursors')

    def open(self, worker: WorkerEnvironment, file: str, class_name: str, rank_variable: str, *,
             mpi: bool) -> cursor.Cursors:
        """Write the run file, and return the words shared with the ranks.

        With `mpi`, the ranks are an MPI job; `rank_variable` has the number of a rank if the manager starts it. If the
        job spans several managers, the run file is where the ranks on this node look for it.
        """
        path = (mpi and worker.run_path) or os.path.join(self.directory, 'ranks.json')
        cursor.create(self._cursor_file, worker.ranks)
        access = self._point.admit(self._listener.address)
        Run(address=access.address, server=access.server, public=access.public, secret=access.secret, pid=os.getpid(),
            started=start_time(os.getpid()), worker=worker.uid, master=worker.master, file=file, class_name=class_name,
            ranks=worker.part.total, numbers=list(worker.part.numbers), cores_per_rank=worker.cores_per_rank,
            mpi=mpi, rank_variable=rank_variable, device_variable=worker.device_variable,
            devices=worker.devices, cpus=worker.cpus, cursors=self._cursor_file).save(path)
        self.run_file = path
        return cursor.Cursors(self._cursor_file)

    def send(self, rank: int, message: list[Any]) -> None:
        """Send a message to a rank; messages to a rank that is not connected are dropped."""
        self._send(self._peers.get(rank), pack_message(message))

    def send_all(self, message: list[Any]) -> None:
        """Send a message to all connected ranks."""
        data = pack_message(message)
        for peer in self._peers.values():
            self._send(peer, data)

    def forget(self, rank: int) -> None:
        """Remove a dead rank, whose further messages are ignored."""
        peer = self._peers.pop(rank, None)
        if peer is not None:
            del self._ranks[peer]

    def receive(self) -> None:
        """Handle all messages that have arrived."""
        for frames in arrivals(self._listener.socket):
            try:
                self._take(frames[0], parse(frames[-1], FROM_RANK))
            except (CoordinationError, ValueError) as error:
                self._malformed.add(error)

    def close(self) -> None:
        """Stop listening, and remove the files."""
        self._listener.close(0)
        self._point.close()
        if self.run_file:
            with suppress(FileNotFoundError):
                os.unlink(self.run_file)
        if self._shared:
            self._shared.close()
        shutil.rmtree(self.directory, ignore_errors=True)   # the agent may have removed it

    def _take(self, peer: bytes, message: list[Any]) -> None:
        rank = self._ranks.get(peer)
        if message[0] == 'hello' and rank is None:
            rank = message[1]
            self.forget(rank)
            self._ranks[peer] = rank
            self._peers[rank] = peer
        if rank is not None or message[0] == 'failed':   # a rank may send 'failed' before 'hello'
            self._heard(-1 if rank is None else rank, message)

    def _send(self, peer: bytes | None, data: bytes) -> None:
        if peer is not None:
            try:
                send_to(self._listener.socket, peer, data)
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:   # the rank is dead, which will be noticed
                    raise

"""The manager's end of the connections to its ranks: identifies them and exchanges messages."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import zmq

from rp_api.constants import TRANSPORT_MPI
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import (
    GPUS,
    PART,
    SLOTS,
    TRANSPORT,
    beside,
    carrier_file,
    carriers_file,
    job_file,
    link_file,
    master_file,
    run_file,
)
from rp_api.system.gpus import NO_GPUS, VISIBLE_GPUS
from rp_api.system.processes import start_time
from rp_api.system.shared_directory import SharedDirectory
from rp_api.transport.access import Access, AccessPoint
from rp_api.transport.connection import arrivals, make_private_directory, send_to
from rp_api.transport.keys import Tally
from rp_raptor.wire import cursor
from rp_raptor.wire.batch import pack_message
from rp_raptor.wire.parts import Part
from rp_raptor.wire.rank_protocol import FROM_RANK, Run, parse

_DOMAIN = 'rank'
_WAITING = 1 << 16   # queued messages to a rank that does not read


class RankServer:
    """Listens for ranks, in a private directory in `base` or, without one, in shared memory.

    `heard(rank, operation, arguments)` is called with their messages.
    """

    def __init__(self, loop: Loop, heard: Callable[[int, str, list[Any]], object], base: str | None = None) -> None:
        self._heard = heard
        self._ranks: dict[bytes, int] = {}
        self._peers: dict[int, bytes] = {}
        self._malformed = Tally('malformed message of a rank')
        self._point = AccessPoint(loop, zmq.Context.instance(), _DOMAIN)
        # a later sweep finds a shared directory, if this process is killed; the agent removes those in `base`
        self._shared = None if base else SharedDirectory()
        self._results: SharedDirectory | None = None   # that carriers take
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
        if worker.is_carried:
            with suppress(OSError):   # results travel in messages then
                self._results = SharedDirectory()
        access = self._point.admit(self._listener.address)
        Run(address=access.address, server=access.server, public=access.public, secret=access.secret, pid=os.getpid(),
            started=start_time(os.getpid()), worker=worker.uid, master=worker.master, file=file, class_name=class_name,
            ranks=worker.part.total, numbers=list(worker.part.numbers), cores_per_rank=worker.cores_per_rank,
            mpi=mpi, rank_variable=rank_variable, device_variable=worker.device_variable,
            devices=worker.devices, cpus=worker.cpus, cursors=self._cursor_file,
            results=self._results.path if self._results else '').save(path)
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
                self._take(frames[0], *parse(frames[-1], FROM_RANK))
            except (CoordinationError, ValueError) as error:
                self._malformed.add(error)

    def close(self) -> None:
        """Stop listening, and remove the files."""
        self._listener.close(0)
        self._point.close()
        if self.run_file:
            with suppress(FileNotFoundError):
                os.unlink(self.run_file)
        for shared in (self._shared, self._results):
            if shared:
                shared.close()
        shutil.rmtree(self.directory, ignore_errors=True)   # the agent may have removed it

    def _take(self, peer: bytes, operation: str, arguments: list[Any]) -> None:
        rank = self._ranks.get(peer)
        if operation == 'hello' and rank is None:
            rank = arguments[0]
            self.forget(rank)
            self._ranks[peer] = rank
            self._peers[rank] = peer
        if rank is not None or operation == 'failed':   # a rank may send 'failed' before 'hello'
            self._heard(-1 if rank is None else rank, operation, arguments)

    def _send(self, peer: bytes | None, data: bytes) -> None:
        if peer is not None:
            try:
                send_to(self._listener.socket, peer, data)
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:   # the rank is dead, which will be noticed
                    raise


@dataclass(frozen=True)
class WorkerEnvironment:
    """A worker's configuration: uid, the path of its master's file, and the ranks of this process.

    `devices` has the GPUs of each of these ranks, `cpus` the CPUs to which each binds itself; ranks without any stay
    unbound. `runtime` is a directory for sockets that is removed with the agent's own, however the worker ends.
    `run_path` and `job_path` are the files of an MPI job over several parts, else empty; `carriers_path` and
    `carrier_paths`, by part, those of its carriers, if messages travel by MPI between the nodes.
    """

    uid: str
    master: str
    master_path: str
    part: Part
    cores_per_rank: int
    devices: list[list[str]]
    device_variable: str
    cpus: list[list[int]] = field(default_factory=list)
    runtime: str | None = None
    run_path: str = ''
    job_path: str = ''
    carriers_path: str = ''
    carrier_paths: list[str] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        """The number of ranks of this manager."""
        return len(self.part.numbers)

    @property
    def is_carried(self) -> bool:
        """True if carriers take the messages of this manager to the first one."""
        return bool(self.carrier_paths) and self.part.number > 0

    @property
    def detour_path(self) -> str:
        """The file by which managers find the first one when there are no carriers."""
        return f'{self.carriers_path}.detour'

    @classmethod
    def of(cls, master: str, environ: Mapping[str, str]) -> WorkerEnvironment:
        """Read the configuration from environment variables; CoordinationError if they are not those of a task."""
        try:
            task, sandbox = environ['RP_TASK_ID'], environ['RP_PILOT_SANDBOX']
        except KeyError as error:
            raise CoordinationError(f'a worker is a task of a pilot: {error.args[0]} is not set') from error
        ranks = _number(environ, 'RP_RANKS')
        uid, part, files = _part(environ, task, ranks)
        slots = _slots(environ, ranks)
        devices = [[str(gpu) for gpu in slot.get('gpus', ())] for slot in slots]
        variable = environ.get(GPUS) or next(iter(VISIBLE_GPUS.values()))
        return cls(uid, master, master_file(sandbox, master), part, _number(environ, 'RP_CORES_PER_RANK'),
                   devices if any(devices) else [], variable if any(devices) else '',
                   [[int(cpu) for cpu in slot.get('cpus', ())] for slot in slots] or [[] for _ in range(ranks)],
                   _runtime(link_file(sandbox, environ.get('RP_PARTITION_ID', ''))),
                   run_file(files, uid, part.number) if files else '', job_file(files, uid) if files else '',
                   carriers_file(files, uid),
                   [carrier_file(files, uid, each) for each in range(part.count)]
                   if files and environ.get(TRANSPORT) == TRANSPORT_MPI else [])

    def variables(self, rank: int) -> dict[str, str]:
        """Return the variables that restrict a rank of the part to its GPUs."""
        if not self.devices:   # the manager itself sees none
            return {}
        return {**NO_GPUS, **({self.device_variable: ','.join(self.devices[rank])} if self.devices[rank] else {})}


def _runtime(link: str) -> str | None:
    """Return the directory of the agent's socket; None if it uses the network, or there is no agent."""
    try:
        return beside(Access.load(link).address)
    except CoordinationError:
        return None


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, '1')
    if not text.isdigit() or not int(text):
        raise CoordinationError(f'{name} is {text!r}; it must be a whole number of at least 1')
    return int(text)


def _part(environ: Mapping[str, str], task: str, ranks: int) -> tuple[str, Part, str]:
    """Return the uid of the worker, the part that this process has, and the directory of files for MPI over all."""
    if not environ.get(PART):
        return task, Part.whole(ranks), ''
    try:
        told = json.loads(environ[PART])
        return str(told['worker']), Part.told(told, ranks), str(told['files'])
    except (ValueError, TypeError, KeyError) as error:
        raise CoordinationError(f'{PART} is not a part of a worker: {error!r}') from error


def _slots(environ: Mapping[str, str], ranks: int) -> list[dict[str, Any]]:
    """Return the slots of the ranks; empty if they are unknown."""
    try:
        slots = json.loads(environ.get(SLOTS) or '[]')
        if not all(isinstance(slot, dict) for slot in slots):
            raise TypeError(slots)
    except (ValueError, TypeError) as error:
        raise CoordinationError(f'{SLOTS} is not a list of slots: {error!r}') from error
    return slots if len(slots) == ranks else []

"""A worker's manager: the process that takes calls from the master and has ranks run them, without users' code.

One event loop in the main thread joins `MasterConnection` (DEALER), `Dispatcher`, `RankServer` (ROUTER) and
`RankProcesses`.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.raptor_link import CARRIER
from rp_api.system import signals
from rp_api.system.host import host_id, python_program
from rp_api.system.processes import start_time
from rp_api.wire.codec import pack, unpack
from rp_raptor.carriers import carrier
from rp_raptor.carriers.listener import CarrierListener
from rp_raptor.wire.carried_results import with_content
from rp_raptor.wire.protocol import PROTOCOL, Handlers
from rp_raptor.wire.rank_protocol import RUN_VARIABLE
from rp_raptor.worker import job as jobs
from rp_raptor.worker import spanning
from rp_raptor.worker.call_queue import RankResources
from rp_raptor.worker.dispatcher import Dispatcher
from rp_raptor.worker.interrupts import error
from rp_raptor.worker.job import Job
from rp_raptor.worker.job_process import JobCommand, load_command
from rp_raptor.worker.master_connection import MasterConnection
from rp_raptor.worker.master_link import CarriedLink, MasterLink, ObjectUser, ZmqLink
from rp_raptor.worker.mpi_launch import Launcher, find_launcher, has_mpi4py
from rp_raptor.worker.objects import WorkerObjects
from rp_raptor.worker.rank_processes import Direct, RankProcesses
from rp_raptor.worker.rank_server import RankServer, WorkerEnvironment
from rp_raptor.worker.relay import Relay

_STOP = 2.0   # seconds for idle ranks to end
_TERMINATE = 2.0   # seconds for ranks to write their traces
_PARTS_END = 5.0   # seconds for the managers that the carriers reach to end

_KNOWN = {'MPIWorker': True, 'DefaultWorker': False, 'Worker': False}


class Manager:
    """Runs a worker until its master stops it.

    `command` starts a rank. With `mpi`, the ranks are an MPI job if an MPI is installed; `file` and `class_name` are
    for the ranks.
    """

    def __init__(self, worker: WorkerEnvironment, command: list[str], mpi: bool, file: str, class_name: str) -> None:
        self._worker = worker
        self._loop = Loop()
        self._functions: dict[bytes, bytes] = {}
        self._asking: dict[int, tuple[int, int]] = {}   # rank and its number of a task, by the number for the master
        self._asked = 0
        self._fault = ''
        self._ending = False
        self._terminated = False
        launcher = find_launcher(os.environ) if mpi and worker.part.count == 1 else None
        self._mpi = launcher is not None or (mpi and worker.part.count > 1 and has_mpi4py())
        if mpi and not self._mpi:
            print(f'{worker.uid}: no MPI was found; its ranks run calls of one rank only', file=sys.stderr, flush=True)
        self._server = RankServer(self._loop, self._rank_says, worker.runtime)
        self._objects = WorkerObjects(self._loop, self.to_master, self.to_rank, worker.master_path, worker.runtime,
                                      (lambda id: self._master.ask(id)) if worker.is_carried else None)
        try:
            cursors = self._server.open(worker, file, class_name,
                                        launcher.flavour.rank_variable if launcher else '', mpi=self._mpi)
            self._ranks = self._processes(command, launcher)
            resources = RankResources(worker.part, worker.cores_per_rank, worker.devices, worker.cpus, self._mpi)
            self._dispatcher = Dispatcher(resources, cursors, self, self._tell_part)
            self._relay = None
            if worker.carrier_paths and worker.part.number == 0:
                self._relay = Relay(self._loop, worker.uid, worker.master_path, worker.carriers_path,
                                    worker.carrier_paths, worker.detour_path, self._server.directory,
                                    self._objects.fetch_for_parts)
            self._master = MasterConnection(self._loop, self._link, self._introduce, self._master_says, self._end)
        except BaseException:
            self._server.close()
            raise
        calls, objects = self._dispatcher, self._objects
        self._from_master: Handlers = {
            'calls': calls.add, 'give_back': calls.give_back, 'cancel': calls.cancel, 'ran': self._ran,
            'object_at': objects.at, 'object_lost': objects.lost,
            'object_came': objects.came, 'told': self._told, 'complete': self._complete,
            'lost': self._end, 'stop': self._stop}
        self._from_rank: Handlers = {
            'results': calls.results, 'parked': calls.parked, 'part': self._part_says, 'hello': self._rank_ready,
            'run': self._run_somewhere, 'submit': self._ask, 'ran_here': self._ask, 'fetch': objects.fetch,
            'failed': self._rank_failed}

    def _processes(self, command: list[str], launcher: Launcher | None) -> RankProcesses:
        """Return the processes of the ranks, which are not started yet."""
        worker, job = self._worker, None
        environ = {**os.environ, RUN_VARIABLE: self._server.run_file}
        if not self._mpi:
            return Direct(self._loop, worker.part.numbers, command, environ, worker.variables, self._ranks_gone,
                          self._end)
        if launcher:
            ends = self._server.end_file
            job = JobCommand(launcher.command(worker.ranks, command, ends), launcher.environment(environ), ends)
        elif worker.part.number == 0:
            job = load_command(worker.job_path)
        return Job(self._loop, worker.part, job, self._tell_part, self._ranks_gone, self._end)

    def _link(self, user: ObjectUser) -> MasterLink:
        """Return the link to the master."""
        worker = self._worker
        if not worker.is_carried:
            return ZmqLink(self._loop, worker.master_path, user)
        number = worker.part.number
        return CarriedLink(
            self._loop, f'{worker.uid} (part {number})', worker.master_path, number, worker.carriers_path,
            worker.detour_path, lambda channel, pipe: CarrierListener(
                self._loop, self._server.directory, worker.carrier_paths[number], worker.part.count,
                {0: channel, number: pipe}), user)

    def run(self) -> int:
        """Run until the master stops the worker or is lost; return the exit code of the process."""
        before = signal.signal(signal.SIGTERM, self._on_sigterm)
        try:
            self._ranks.start()
            self._loop.run()
            if self._terminated:
                self._terminate_ranks()
            self._master.send(['bye', self._fault or 'it was stopped'])
            if self._relay is not None and self._ending:
                self._loop.call_later(_PARTS_END, self._loop.stop)
                self._relay.finish(self._loop.stop)
                self._loop.run()
        finally:
            self._ranks.close()
            self._master.close()
            if self._relay is not None:
                self._relay.close()
            self._objects.close()
            self._server.close()
            self._loop.close()
            signal.signal(signal.SIGTERM, before)
        if self._fault:
            print(f'{self._worker.uid}: {self._fault}', file=sys.stderr, flush=True)
        return 1 if self._fault else 0

    # the port of the dispatcher: see rp_raptor.worker.interrupts

    def to_master(self, message: list[Any]) -> None:
        """Send a message to the master."""
        self._master.send(message)

    def to_rank(self, rank: int, message: list[Any]) -> None:
        """Send a message to a rank."""
        self._server.send(rank, message)

    def signal(self, rank: int) -> None:
        """Interrupt the rank's call."""
        self._ranks.signal(rank)

    def kill(self, rank: int, reason: str) -> None:
        """Kill the rank."""
        self._ranks.kill(rank, f'was killed: {reason}')

    def later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback` after that many seconds."""
        return self._loop.call_later(delay, callback, *args)

    def now(self) -> float:
        """Return the time of the monotonic clock in seconds."""
        return time.monotonic()

    # the master

    def _introduce(self) -> None:
        """Send `worker` after each handshake; calls from before are dropped."""
        info = {'mpi': self._mpi, 'protocol': PROTOCOL, 'host_name': os.uname().nodename,
                'started': start_time(os.getpid()), 'place': self._master.place, **self._worker.part.as_dict()}
        self._master.send(['worker', self._worker.uid, host_id(), os.getpid(), self._worker.ranks, info])
        ready = [queue.rank for queue in self._dispatcher.queues if queue.ready]
        if ready:
            self._tell_states(ready, 'ACTIVE')
        self._objects.connected()
        if self._dispatcher.spanning.group or self._dispatcher.spanning.span:   # messages about it may be lost
            self._ranks.kill(0, 'was killed: its manager was disconnected during a call over several nodes')
        self._dispatcher.drop()

    def _tell_states(self, ranks: Sequence[int], state: str) -> None:
        numbers = self._worker.part.numbers
        self._master.send(['rank_states', dict.fromkeys([numbers[rank] for rank in ranks], state)])

    def _master_says(self, operation: str, arguments: list[Any]) -> None:
        if self._ending:
            return
        if operation in ('define', 'forget'):   # for ranks that start later
            self._functions.pop(arguments[0], None)
            if operation == 'define':
                self._functions[arguments[0]] = arguments[1]
            self._server.send_all([operation, *arguments])
        elif operation == 'forget_object':
            self._objects.forget(*arguments)
            self._server.send_all(['drop', *arguments])
        else:
            self._from_master[operation](*arguments)

    # the managers on other nodes

    def _tell_part(self, part: int, message: list[Any]) -> None:
        """Send a message to the manager of another part of the worker."""
        self._master.send(['tell', part, pack(message)])

    def _told(self, part: int, data: bytes) -> None:
        message = unpack(data)
        if message[0] in spanning.MESSAGES:
            self._dispatcher.spanning.heard(part, message)
        elif isinstance(self._ranks, Job) and message[0] in jobs.MESSAGES:
            self._ranks.heard(part, message)

    def _complete(self, sizes: dict[int, int]) -> None:
        """Begin to work together with the managers of the other parts, which have so many ranks."""
        if isinstance(self._ranks, Job):
            self._ranks.complete()
            self._dispatcher.spanning.complete(sizes)

    def _ran(self, number: int, payload: bytes) -> None:
        rank, asked = self._asking.pop(number, (-1, 0))
        if rank >= 0:
            self._server.send(rank, ['ran', asked, payload])
            self._dispatcher.go_on(rank)

    # ranks

    def _rank_says(self, rank: int, operation: str, arguments: list[Any]) -> None:
        self._from_rank[operation](rank, *arguments)

    def _part_says(self, rank: int, id: int, payload: bytes, seconds: float) -> None:
        self._dispatcher.part(rank, id, with_content(payload), seconds)   # it becomes a part of another payload

    def _rank_failed(self, rank: int, reason: str) -> None:
        self._end(f'its ranks cannot work: {reason}')

    def _run_somewhere(self, rank: int, asked: int, description: bytes, requirements: dict[str, Any]) -> None:
        """Pass a task to another rank or, if all might wait otherwise, to the rank itself."""
        why_not = self._dispatcher.wait(rank, requirements)
        if not why_not:
            self._ask(rank, asked, description)
        elif self._dispatcher.runs_alone(requirements):
            self._server.send(rank, ['run_here', asked])
        else:
            self._server.send(rank, ['ran', asked, error(RuntimeError(why_not))])

    def _ask(self, rank: int, asked: int, description: bytes, result: bytes = b'') -> None:
        self._asked += 1
        self._asking[self._asked] = rank, asked
        self._master.send(['run', self._asked, description, result])

    def _rank_ready(self, rank: int, place: int, pid: int, started: int) -> None:
        if not 0 <= rank < self._worker.ranks:
            raise CoordinationError(f'malformed message: rank {rank} of {self._worker.ranks}')
        self._ranks.arrived(rank, pid, started)
        for fid, blob in self._functions.items():
            self._server.send(rank, ['define', fid, blob])
        self._tell_states([rank], 'ACTIVE')
        self._dispatcher.ready(rank)

    def _ranks_gone(self, guilty: Sequence[int], others: Sequence[int], reason: str, numbers: Sequence[int]) -> bool:
        """Handle the death of ranks; return whether one of the guilty ones has taken a call.

        `numbers` are those of all guilty ranks of the worker.
        """
        self._server.receive()   # their last messages
        ranks = [*guilty, *others]
        for rank in ranks:
            self._server.forget(rank)
        self._asking = {number: asker for number, asker in self._asking.items() if asker[0] not in ranks}
        self._tell_states(ranks, 'DEAD')
        self._objects.gone(ranks)
        print(f'{self._worker.uid}: {reason}', file=sys.stderr, flush=True)
        worked = any(self._dispatcher.queues[rank].has_worked for rank in guilty)
        self._dispatcher.gone(guilty, others, reason, numbers)
        return worked

    # the end

    def _end(self, fault: str) -> None:
        """End with an error, unless the worker was stopped: the master may end first."""
        if self._ending:
            return
        self._fault = self._fault or fault
        self._loop.stop()

    def _stop(self) -> None:
        """Ask idle ranks to end, and kill the others."""
        self._ending = True
        self._ranks.stop(self._loop.stop)
        self._server.send_all(['stop'])
        self._loop.call_later(_STOP, self._loop.stop)

    def _on_sigterm(self, *_: Any) -> None:
        self._terminated = True
        if self._relay is not None:
            self._relay.let_end()
        self._loop.stop()

    def _terminate_ranks(self) -> None:
        """Give ranks time to write their traces, and wait until they have ended; running calls are lost."""
        self._ending = True
        self._ranks.terminate()
        self._loop.call_later(_TERMINATE, self._loop.stop)
        self._ranks.stop(self._loop.stop)
        self._loop.run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker of this process's task; return the exit code."""
    signals.set_defaults()
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 3:
        print('usage: radical-pilot-raptor-worker FILE CLASS RAPTOR_ID   (FILE may be empty)', file=sys.stderr)
        return 2
    file, class_name, master = arguments
    return _run(master, python_program('rp_raptor.rank.main'), lambda: needs_mpi(file, class_name), file, class_name)


def run_script(master: str, mpi: bool) -> int:
    """Run the worker whose ranks, and carriers, run the same script as this process; return the exit code."""
    if CARRIER in os.environ:
        return carrier.main()
    return _run(master, [sys.executable, *sys.orig_argv[1:]], lambda: mpi)


def _run(master: str, command: list[str], mpi: Callable[[], bool], file: str = '', class_name: str = '') -> int:
    try:
        return Manager(WorkerEnvironment.of(master, os.environ), command, mpi(), file, class_name).run()
    except CoordinationError as error:
        print(f'the worker cannot start: {error}', file=sys.stderr, flush=True)
        return 1


def needs_mpi(file: str, class_name: str) -> bool:
    """Return whether the class, in this file if one is given, is MPIWorker or derived from it.

    A class derived from one of another module uses MPI if the name of that ends with MPIWorker.
    """
    bases = _bases(file) if file else {}
    seen: set[str] = set()
    while class_name in bases and class_name not in seen:
        seen.add(class_name)
        found = bases[class_name]
        if any(base not in bases and _is_mpi(base) for base in found):
            return True
        class_name = next((base for base in found if base in bases), found[0] if found else '')
    return _is_mpi(class_name)


def _is_mpi(name: str) -> bool:
    return _KNOWN.get(name, name.endswith('MPIWorker'))


def _bases(file: str) -> dict[str, list[str]]:
    """Return the names of the bases of each class in the file."""
    try:
        with open(file, 'rb') as source:
            tree = ast.parse(source.read(), file)
    except (OSError, SyntaxError, ValueError) as error:
        raise CoordinationError(f'cannot read the worker file {file!r}: {error}') from error
    return {node.name: [ast.unparse(base).rpartition('.')[2] for base in node.bases]
            for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

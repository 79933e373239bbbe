"""A stand-in for a worker's manager: it starts real ranks, gives them calls, and collects what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from rp_api.system.host import python_program
from rp_api.system.processes import start_time
from rp_api.wire import codec
from rp_raptor.wire import cursor, payload
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.rank_protocol import (
    FROM_RANK,
    RANK_VARIABLE,
    RUN_VARIABLE,
    Run,
    interruption,
    parse,
)
from rp_raptor.worker.mpi_launch import Launcher

TIMEOUT = 30.0


class Manager:
    """Ranks are started by `start`; `results` are the payloads that have come, by id."""

    def __init__(self, directory: Path, ranks: int = 1, file: str = '', class_name: str = 'DefaultWorker',
                 mpi: bool = False, device_variable: str = '', devices: list[list[str]] | None = None,
                 cpus: list[list[int]] | None = None) -> None:
        self.directory = directory
        self.ranks = ranks
        self.results: dict[int, bytes] = {}
        self.parts: dict[int, list[bytes]] = {}
        self.parked: set[int] = set()
        self.failed = ''
        self.asked: list[list[Any]] = []
        self.seconds = 0.0
        self.ready: dict[int, int] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self._mpi = mpi
        self._identities: dict[int, bytes] = {}
        self._positions = [1 << 32] * ranks
        self._ids = 0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        public, secret = zmq.curve_keypair()
        mine, my_secret = zmq.curve_keypair()
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = public, secret
        self._socket.bind(f'ipc://{directory}/s')
        words = directory / 'cursors'
        cursor.create(words, ranks)
        self.cursors = cursor.Cursors(words)
        for rank in range(ranks):
            self.cursors.move(rank, 1 << 32)
        self.run_file = directory / 'ranks.json'
        Run(address=f'ipc://{directory}/s', server=public.decode(), public=mine.decode(), secret=my_secret.decode(),
            pid=os.getpid(), started=start_time(os.getpid()), worker='raptor.0000.0000', master='raptor.0000',
            file=file, class_name=class_name, ranks=ranks, numbers=list(range(ranks)), cores_per_rank=1, mpi=mpi,
            rank_variable='', device_variable=device_variable, devices=devices or [[] for _ in range(ranks)],
            cpus=cpus or [[] for _ in range(ranks)], cursors=str(words)).save(self.run_file)

    def start(self, rank: int = 0, launcher: Launcher | None = None, command: list[str] | None = None,
              environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a rank, or all ranks of a job through a launcher."""
        command = command or python_program('rp_raptor.rank.main')
        environment = {**os.environ, RUN_VARIABLE: str(self.run_file), RANK_VARIABLE: str(rank),
                       'RP_PILOT_SANDBOX': str(self.directory), 'RP_TASK_ID': 'raptor.0000.0000', **(environ or {})}
        if launcher is not None:
            command, environment = launcher.command(
                self.ranks, command, str(self.directory / 'ends')), launcher.environment(environment)
        process = subprocess.Popen(command, env=environment, cwd=self.directory, stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        self.processes.append(process)
        return process

    def define(self, func: Callable[..., Any], rank: int = 0, results: str = '', *, output: bool = False) -> bytes:
        """Send the function to the rank; gives its identifier."""
        fid, blob = payload.define(func, results, output=output)
        self.send(rank, ['define', fid, blob])
        return fid

    def give(self, calls: list[bytes], rank: int = 0) -> list[int]:
        """Send a bulk of calls; gives their ids."""
        first = self._positions[rank]
        self._positions[rank] += len(calls)
        ids = [self._next_id() for _ in calls]
        self.send(rank, ['calls', first, array('Q', ids), Payloads(calls)])
        return ids

    def give_alone(self, call: bytes, devices: list[str], rank: int = 0, cpus: Sequence[int] = ()) -> int:
        """Send a call that has these devices and CPUs; gives its id."""
        id = self._next_id()
        self.send(rank, ['alone', self._position(rank), id, call, devices, list(cpus)])
        return id

    def give_together(self, call: bytes, group: list[int], tag: int = 1) -> int:
        """Send a call to a group of ranks; gives its id."""
        id = self._next_id()
        for rank in group:
            self.send(rank, ['mpi', self._position(rank), id, call, group, tag, []])
        return id

    def interrupt(self, position: int, reason: int, rank: int = 0) -> None:
        """Interrupt the call at that position (from 0), as the manager does."""
        self.cursors.set_mark(rank, interruption((1 << 32) + position, reason))
        os.kill(self.ready[rank], signal.SIGUSR1)

    def send(self, rank: int, message: list[Any]) -> None:
        """Send any message, once the rank is there."""
        self.wait(lambda: rank in self._identities or self.failed, f'rank {rank} to say hello')
        self._socket.send_multipart([self._identities[rank], pack_message(message)])

    def wait(self, done: Callable[[], object], what: str = 'something') -> None:
        """Receive until `done()`; fails after a while."""
        deadline = time.monotonic() + TIMEOUT
        while not done():
            left = deadline - time.monotonic()
            ended = [process.poll() for process in self.processes]
            assert left > 0, f'waited in vain for {what}; ranks: {ended}'
            if self._socket.poll(int(min(left, 0.5) * 1000)):
                self._take(*self._socket.recv_multipart())
            else:
                assert None in ended or done(), f'waited for {what}, but all ranks have ended: {ended}'

    def outcome(self, id: int) -> Any:
        """The value of a call, when it is there; raises what it has raised."""
        self.wait(lambda: id in self.results, f'the result of call {id}')
        return payload.decode_result(self.results.pop(id))

    def result(self, id: int) -> dict[str, Any]:
        """The result of a described task, when it is there."""
        self.wait(lambda: id in self.results, f'the result of call {id}')
        return payload.as_result(self.results.pop(id))

    def call(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Have rank 0 call the function."""
        return self.outcome(self.give([payload.encode_call(self.define(func), args, kwargs)])[0])

    def task(self, **description: Any) -> dict[str, Any]:
        """Have rank 0 run a described task; gives its result."""
        return self.result(self.give([self.described(**description)])[0])

    def described(self, **description: Any) -> bytes:
        """A described task as a call."""
        uid = f'task.{self._ids:06d}'
        return payload.encode_described({'uid': uid, 'description': description, 'sandbox': f'{self.directory}/{uid}'})

    def close(self) -> None:
        """Stop all ranks, by force if need be."""
        for rank in self._identities:
            self._socket.send_multipart([self._identities[rank], codec.pack(['stop'])])
        for process in self.processes:
            try:
                process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._socket.close(linger=0)
        self._context.term()

    def _take(self, identity: bytes, data: bytes) -> None:
        operation, arguments = parse(data, FROM_RANK)
        if operation == 'hello':
            rank, pid, _ = arguments
            self._identities[rank], self.ready[rank] = identity, pid
        elif operation == 'results':
            self.results.update(zip(arguments[0], arguments[1], strict=True))
            self.seconds += arguments[2]
        elif operation == 'part':
            self.parts.setdefault(arguments[0], []).append(arguments[1])
        elif operation == 'parked':
            self.parked.update(arguments[0])
        elif operation == 'run':
            self.asked.append(arguments[:2])
        elif operation == 'failed':
            self.failed = arguments[0]

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    def _position(self, rank: int) -> int:
        self._positions[rank] += 1
        return self._positions[rank] - 1


@contextmanager
def a_manager(directory: Path, *args: Any, **kwargs: Any) -> Iterator[Manager]:
    """A manager with a socket whose path is short enough, which stops its ranks in the end."""
    manager = Manager(directory, *args, **kwargs)
    try:
        yield manager
    finally:
        manager.close()


def worker_file(directory: Path, text: str) -> str:
    """A file with a class of a worker; gives its path."""
    path = directory / f'worker_{os.urandom(3).hex()}.py'
    path.write_text(text)
    return str(path)

"""A scripted master in the test's process, and a worker's manager in another one whose ranks are stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import master_file
from rp_api.system.host import host_id
from rp_api.transport.access import Access
from rp_api.transport.connection import Listener, arrivals
from rp_api.transport.keys import Gate, generate
from rp_api.wire.codec import pack, unpack
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.protocol import WORKER, parse

DEADLINE = 30.0
STANDIN = str(Path(__file__).with_name('rank_standin.py'))
MANAGER = '''
import sys
from rp_raptor.worker import manager
from rp_raptor.worker.rank_server import WorkerEnvironment
import os
worker = WorkerEnvironment.of('raptor.0000', os.environ)
sys.exit(manager.Manager(worker, [sys.executable, sys.argv[1]], sys.argv[2] == 'mpi', '', '').run())
'''


PROGRAM = 'import sys; from rp_raptor.cli import main; sys.exit(main(["worker", *sys.argv[1:]]))'


class Master:
    """Keeps everything that the worker says; `turn` waits for more."""

    def __init__(self, sandbox: Path) -> None:
        self.sandbox = sandbox
        self.loop = Loop()
        self.context: zmq.Context[Any] = zmq.Context()
        self.gate = Gate(self.context, self.loop)
        keys, worker_keys = generate(), generate()
        self.gate.allow(worker_keys.public)
        self.listener = Listener(self.loop, zmq.ROUTER, keys, self.gate, None, 'rp', 1 << 16, self._receive)
        Access(self.listener.address, keys.public.decode(), worker_keys.public.decode(),
               worker_keys.secret.decode()).save(master_file(str(sandbox), 'raptor.0000'))
        self.peer = b''
        self.said: list[tuple[str, list[Any]]] = []
        self.results: dict[int, bytes] = {}
        self.twice: list[int] = []
        self.died: dict[int, str] = {}
        self.returned: list[int] = []
        self.credit = 0
        self.ranks: dict[int, str] = {}
        self.pid = os.getpid()
        self._failure: Exception | None = None

    def _receive(self) -> None:
        for peer, data in arrivals(self.listener.socket):
            operation, arguments = parse(data, WORKER)
            self.said.append((operation, arguments))
            self.peer = peer
            self._heard(peer, operation, arguments)
            if operation == 'worker':
                self.send('welcome', {'uid': 'raptor.0000', 'host': host_id(), 'pid': self.pid})
            elif operation == 'credit':
                self.credit += arguments[0]
            elif operation == 'results':
                for id, payload in zip(arguments[0], arguments[1], strict=True):
                    self.twice += [id] if id in self.results or id in self.died else []
                    self.results[id] = payload
            elif operation == 'died':
                self.died.update(dict.fromkeys(arguments[0], arguments[1]))
            elif operation == 'returned':
                self.returned += arguments[0]
            elif operation == 'rank_states':
                self.ranks.update(arguments[0])
        self.loop.stop()

    def _heard(self, peer: bytes, operation: str, arguments: list[Any]) -> None:
        """Note what is said."""

    def send(self, *message: Any) -> None:
        self.listener.socket.send_multipart([self.peer, pack_message(list(message))])

    def calls(self, calls: dict[int, list[Any]], attributes: dict[int, dict[str, Any]] | None = None) -> None:
        self.send('calls', array('Q', calls), Payloads(map(pack, calls.values())), attributes)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, f'{what}: {self.said[-5:]!r:.2000}'
            timer = self.loop.call_later(0.5, self.loop.stop)
            self.loop.run()
            timer.cancel()

    def wait_results(self, *ids: int) -> list[Any]:
        self.wait(lambda: self.results.keys() >= set(ids), f'results of {ids}')
        return [self.results[id] for id in ids]

    def close(self) -> None:
        self.listener.close(0)
        self.gate.close()
        self.loop.close()
        self.context.term()


class Worker:
    """A running worker and its master."""

    def __init__(self, master: Master, process: subprocess.Popen[str], errors: Path) -> None:
        self.master = master
        self.process = process
        self._errors = errors

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def stop(self) -> int:
        self.master.send('stop')
        return self.process.wait(DEADLINE)


def decoded(payload: bytes) -> Any:
    return unpack(payload)


@contextmanager
def a_worker(path: Path, ranks: int = 2, mpi: bool = False, of_class: tuple[str, str] | None = None,
             ready: bool = True, **environ: str) -> Iterator[Worker]:
    """A worker whose ranks are ready, unless they cannot be; `of_class`, a file and a class, makes them real ones."""
    master = Master(path)
    runtime = path / 'tmp'
    runtime.mkdir()
    errors = path / 'errors'
    variables = {**os.environ, 'RP_TASK_ID': 'worker.0000', 'RP_PILOT_SANDBOX': str(path), 'RP_RANKS': str(ranks),
                 'TMPDIR': str(runtime), 'PYTHONPATH': os.pathsep.join(filter(None, sys.path)), **environ}
    command = ['-c', PROGRAM, *of_class, 'raptor.0000'] if of_class else ['-c', MANAGER, STANDIN, 'mpi' if mpi else '']
    with errors.open('w') as stderr:
        process = subprocess.Popen([sys.executable, *command], env=variables, text=True, stderr=stderr, cwd=path)
    try:
        if ready:
            master.wait(lambda: list(master.ranks.values()) == ['ACTIVE'] * ranks, 'ranks are ready')
        yield Worker(master, process, errors)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(DEADLINE)
        finally:
            process.kill()
            master.close()
    assert list(runtime.iterdir()) == []
    assert master.twice == []

"""A rank: the process that runs calls, one after the other in its main thread, and asynchronous ones beside them.

Rules of this file:

- A call has exactly one result, whatever the function does, and whenever it is interrupted.
- An idle rank sleeps: it waits for a message, and nothing else.
- `_running` is the position of the call that runs. Only meanwhile does the signal handler raise, or send.
- Messages are handled in a shield, where the handler raises nothing: none may be lost halfway.
- The rank ends when its manager does.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

import zmq

from rp_api.errors import PilotError
from rp_api.mesh import codec
from rp_api.mesh.keys import KeyPair, make_client
from rp_api.values import from_plain
from rp_raptor import communicators, payload
from rp_raptor.calls import Calls, Later, encode_error
from rp_raptor.capture import replace_streams, surroundings, traceback_of
from rp_raptor.cursor import Cursors
from rp_raptor.errors import CallCanceled, CallTimeout
from rp_raptor.loading import load_class
from rp_raptor.orphan import ManagerWatch
from rp_raptor.rank_link import (
    RANK_VARIABLE,
    RUN_VARIABLE,
    TIMEOUT,
    TO_RANK,
    Run,
    interrupted,
    load_run,
    pack_ids,
    parse,
    unpack_ids,
)

if TYPE_CHECKING:
    from rp_raptor.parking import Parking
    from rp_raptor.worker import Worker

_HELD = 0.002      # seconds that a result waits for others
_LINGER = 2000     # milliseconds to send the last results
_NOTHING = -1      # instead of a position


class Rank:
    """The connection of this process to the manager of its worker, and the calls that come through it."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run, self.rank, self.ranks = run, rank, run.ranks
        self._cursors = Cursors(run.cursors)
        self._calls: Calls | None = None
        self._parking: Parking | None = None
        self._unannounced: list[int] = []
        self._done: list[tuple[int, bytes]] = []
        self._since = perf_counter()      # when the work began that was not told of yet
        self._kept: deque[list[Any]] = deque()
        self._asked = 0
        self._running = _NOTHING
        self._shielded = False
        self._pending: Exception | None = None
        self._raised: Exception | None = None   # the interruption of the call that runs
        self._handled = 0                 # the mark of the last interruption
        self._stopped = False
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        make_client(self._socket, KeyPair(run.public.encode(), run.secret.encode()), run.server.encode())
        self._socket.sndhwm = self._socket.rcvhwm = 0   # the manager sees to it that there is never much
        self._watch = ManagerWatch(self._socket, run.pid, run.address.startswith('ipc:'))
        self._socket.connect(run.address)
        self._operations: dict[str, Callable[..., object]] = {
            'calls': self._run_bulk, 'alone': self._run_alone, 'mpi': self._run_together, 'cancel': self._cancel,
            'stop': self.stop}
        signal.signal(signal.SIGUSR1, self._on_signal)

    def serve(self, worker: Worker) -> None:
        """Be ready for calls, which this worker object is to run."""
        worker._rank, worker._ranks, worker._rp_service = self.rank, self.ranks, self
        directory = payload.values_directory(os.environ['RP_PILOT_SANDBOX'], self.run.master)
        self._calls = calls = Calls(worker, directory)
        self._operations.update(define=calls.define, forget=calls.forget)
        self._send(['hello', self.rank, os.getpid()])

    def join(self) -> None:
        """Run calls until the worker ends; then the connection is closed."""
        try:
            while not self._stopped:
                operation, *arguments = self._next()
                self._operations[operation](*arguments)
            self._flush()
        finally:
            self.close()

    def stop(self) -> None:
        """End after the call that runs."""
        self._stopped = True

    def close(self) -> None:
        """Close the connection, after what was sent has left."""
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        if self._parking is not None:
            self._parking.close()
        self._watch.close()
        self._socket.close(linger=_LINGER)
        self._context.term()

    def fail(self, reason: str) -> None:
        """Tell the manager that this rank cannot work, and close the connection."""
        self._send(['failed', reason])
        self.close()

    def run_task(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Have a task run elsewhere, and give it back when it is done: a dict with its description and its result."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError('run_task() can be called in the thread only that runs the call')
        plain = {**description.as_dict()} if hasattr(description, 'as_dict') else dict(description)
        self._asked += 1
        with self._shield():
            self._flush()
            self._send(['run', self._asked, codec.pack(plain)])
        while True:
            self._socket.poll()
            with self._shield():
                message = parse(self._socket.recv(), TO_RANK)
                if message[0] != 'ran':
                    self._kept.append(message)
            if message[0] == 'stop':
                raise RuntimeError('the worker ends before the task is done')
            if message[0] == 'ran' and message[1] == self._asked:   # others are answers that nobody waits for any more
                result = payload.as_result(message[2])
                return {'description': plain, **result, 'return_value': from_plain(result.get('return_value'))}

    # messages

    def _next(self) -> list[Any]:
        while True:
            if self._kept:
                return self._kept.popleft()
            try:
                return parse(self._socket.recv(zmq.NOBLOCK), TO_RANK)
            except zmq.Again:
                self._wait()

    def _wait(self) -> None:
        self._flush()
        if self._parking:
            self._parking.wait()
        else:
            self._socket.poll()
        self._since = perf_counter()

    def _send(self, message: list[Any]) -> None:
        self._socket.send(codec.pack(message))

    def _flush(self) -> None:
        """Tell the manager what is done, and what goes on beside other calls."""
        if self._unannounced:
            self._send(['parked', pack_ids(self._unannounced)])
            self._unannounced = []
        if self._done:
            done, self._done = self._done, []
            now = perf_counter()
            ids, payloads = [id for id, _ in done], [result for _, result in done]
            self._send(['results', pack_ids(ids), payloads, now - self._since])
            self._since = now

    # calls

    def _run_bulk(self, first: int, ids: bytes, payloads: list[bytes]) -> None:
        run = self._calls.run  # type: ignore[union-attr]
        if not self._done:
            self._since = perf_counter()
        for position, (id, call) in enumerate(zip(unpack_ids(ids), payloads, strict=True), first):
            result = self._run(position, run, call)
            if result is None:
                break
            if isinstance(result, bytes):
                self._done.append((id, result))
                if perf_counter() - self._since > _HELD:
                    self._flush()
            else:
                self._park(id, result)
            if self._parking:
                self._parking.step()
            if self._stopped:
                break
        self._flush()

    def _run(self, position: int, run: Callable[[bytes], bytes | Later], call: bytes) -> bytes | Later | None:
        """The result of a call, or the coroutine that it goes on in; None if the manager has taken it back."""
        try:
            try:
                self._running = position
                if not self._cursors.take(self.rank, position):
                    return None
                result = run(call)
            finally:
                self._running = _NOTHING
        except BaseException as error:
            result = encode_error(error)
        if self._raised is not None:
            raised, self._raised = self._raised, None
            if isinstance(result, bytes) and payload.has_failed(result):   # whatever became of it on its way
                return encode_error(raised)
        return result

    def _run_alone(self, position: int, id: int, call: bytes, devices: list[str]) -> None:
        """Run a call that has these GPUs."""
        name = self.run.device_variable
        visible = {name: ','.join(devices)} if name else {}

        def run(call: bytes) -> bytes:
            with surroundings(visible, ''):
                return self._completed(self._calls.run(call))  # type: ignore[union-attr]
        result = self._run(position, run, call)
        if isinstance(result, bytes):
            self._done.append((id, result))
        self._flush()

    def _run_together(self, position: int, id: int, call: bytes, group: list[int], tag: int,
                      devices: list[str]) -> None:
        """Run this rank's part of a call, with a communicator over the group; each rank has its own GPUs."""
        def run(call: bytes) -> bytes:
            with communicators.communicator(group, tag) as comm:
                return self._completed(self._calls.run_part(call, comm))  # type: ignore[union-attr]
        self._flush()
        start = perf_counter()
        result = self._run(position, run, call)
        if isinstance(result, bytes):
            self._send(['part', id, result, perf_counter() - start])

    def _completed(self, result: bytes | Later) -> bytes:
        return result if isinstance(result, bytes) else self._parked().complete(result)

    # asynchronous calls

    def _park(self, id: int, call: Coroutine[Any, Any, bytes]) -> None:
        self._unannounced.append(id)
        self._parked().start(id, call)

    def _parked(self) -> Parking:
        if self._parking is None:
            from rp_raptor.parking import Parking

            self._parking = Parking(self._socket, self._finished)
        return self._parking

    def _finished(self, id: int, result: bytes) -> None:
        if id in self._unannounced:
            self._unannounced.remove(id)
        self._done.append((id, result))

    def _cancel(self, ids: bytes, reason: int) -> None:
        for id in unpack_ids(ids):
            if self._parking:
                self._parking.cancel(id, reason)

    # interruptions

    def _on_signal(self, *_: Any) -> None:
        """Interrupt the call that runs, if it is meant; else send the results that wait for its end."""
        running = self._running
        if running == _NOTHING:
            return
        mark = self._cursors.mark(self.rank)
        position, reason = interrupted(mark)
        if position == running and mark != self._handled:
            self._handled = mark
            self._raised = error = _interruption(reason)
            if not self._shielded:
                raise error
            self._pending = error
        elif not self._shielded:
            with self._shield():
                self._flush()

    @contextmanager
    def _shield(self) -> Generator[None, None, None]:
        """Have the call interrupted in the end only."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        error, self._pending = self._pending, None
        if error is not None:
            raise error


def _interruption(reason: int) -> Exception:
    return CallTimeout('the call took too long') if reason == TIMEOUT else CallCanceled('the call was canceled')


@cache
def connect() -> Rank:
    """This process as the rank that it was started as; the environment says which."""
    run = load_run(os.environ[RUN_VARIABLE])
    rank = communicators.start_mpi(run.ranks) if run.mpi else int(os.environ[RANK_VARIABLE])
    os.environ.update({RANK_VARIABLE: str(rank), 'RP_RANK': '0', 'RP_RANKS': '1'})   # that of a call, which has one
    os.environ.setdefault('RP_PILOT_SANDBOX', os.getcwd())
    if run.device_variable:
        os.environ[run.device_variable] = ','.join(run.devices[rank])
    replace_streams()
    return Rank(run, rank)


def main() -> int:
    """Be a rank of the worker that the environment tells of."""
    from rp_raptor.worker import Worker

    rank = connect()
    try:
        kind = load_class(rank.run.file, rank.run.class_name, Worker)
        worker = kind(rank.run.master)
        worker.start()
    except PilotError as error:
        rank.fail(str(error))
        return 1
    except Exception as error:
        rank.fail(f'{rank.run.class_name} cannot be made: {error!r}\n{traceback_of(error)}')
        return 1
    worker.join()
    return 0

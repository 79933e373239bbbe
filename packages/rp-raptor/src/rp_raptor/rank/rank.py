"""A rank: the process that runs calls, one after the other in its main thread, with asynchronous ones in between.

Invariants of this module:

- A call has exactly one result, whatever the function does, and whenever it is interrupted.
- An idle rank sleeps: it waits for a message, and for nothing else.
- The runner knows the position of the running call. The signal handler raises or sends only while there is one.
- Messages are handled in a shield, in which the handler does not raise: no message may be lost halfway.
- The rank ends when its manager does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.system.gpus import NO_GPUS
from rp_api.system.processes import start_time
from rp_api.transport.keys import KeyPair, make_client
from rp_api.values import from_plain
from rp_api.wire import codec
from rp_profiling.write.calls import PART
from rp_raptor import definitions
from rp_raptor.definitions import set_worker_object
from rp_raptor.errors import CallCanceled, CallTimeout
from rp_raptor.objects.reference import RankObjects, set_resolver
from rp_raptor.rank.calls import Calls, Later
from rp_raptor.rank.capture import follow, replace_streams, task_environment
from rp_raptor.rank.modes import OF_TASK, Host
from rp_raptor.rank.running import NOTHING, Runner
from rp_raptor.rank.threads import ManagerWatch, give_way, threads
from rp_raptor.rank.trace import FLUSH, RankTrace
from rp_raptor.wire import payload
from rp_raptor.wire import rank_protocol as protocol
from rp_raptor.wire.batch import pack_message
from rp_raptor.wire.cursor import Cursors
from rp_raptor.wire.protocol import Handler
from rp_raptor.wire.requirements import is_for_agent, needs_of
from rp_raptor.worker.estimate import span

if TYPE_CHECKING:
    from rp_raptor.rank.async_calls import AsyncCalls

_TRACE_FLUSH = int(FLUSH * 1000)   # milliseconds
_AT_ONCE = int(zmq.NOBLOCK)   # a plain int is much faster
_LINGER = 2000     # milliseconds to send the last results


class Rank:
    """The connection of this process to its manager, and the calls that arrive on it."""

    def __init__(self, run: protocol.Run, rank: int) -> None:
        self.run, self.rank, self.ranks = run, rank, run.ranks
        self._place = run.numbers.index(rank)
        self._cursors = Cursors(run.cursors)
        self._calls: Calls | None = None
        self._runner: Runner | None = None
        self._trace: RankTrace | None = None
        self._async_calls: AsyncCalls | None = None
        self._unannounced: list[int] = []
        self._kept: deque[tuple[str, list[Any]]] = deque()
        self._asked = 0
        self._shielded = False
        self._pending: Exception | None = None
        self._objects = RankObjects(self._fetch_object)
        self._handled = 0                 # mark of the last interruption
        before = threads()
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        make_client(self._socket, KeyPair(run.public.encode(), run.secret.encode()), run.server.encode())
        self._socket.sndhwm = self._socket.rcvhwm = 0   # the manager limits the messages in flight
        give_way(threads() - before)   # ZeroMQ's threads
        self._watch = ManagerWatch(self._socket, run.pid, run.started, run.address.startswith('ipc:'))
        self._socket.connect(run.address)
        self._operations: dict[str, Handler] = {
            'alone': self._run_alone, 'mpi': self._run_together, 'cancel': self._cancel,
            'stop': self.stop, 'drop': self._objects.drop, 'object': _ignore}

    def serve(self, host: Host) -> None:
        """Accept calls, which this worker object runs."""
        set_worker_object(host.worker)
        set_resolver(self._objects.resolve)
        directory = payload.values_directory(os.environ['RP_PILOT_SANDBOX'], self.run.master)
        self._trace = trace = RankTrace(host.sandbox, host.profile, self.run.worker, self.rank)
        self._calls = calls = Calls(host, directory, trace.recorder, self.run.results)
        self._runner = Runner(self._cursors, self._place, calls.functions, calls.run, self._flush, self._park,
                              span(len(self.run.numbers)), trace.recorder)
        follow(self._runner)
        self._operations.update(calls=self._runner.bulk, define=calls.functions.define, forget=calls.forget)
        signal.signal(signal.SIGUSR1, self._on_signal)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)
        self._send(['hello', self._place, os.getpid(), start_time(os.getpid())])

    def join(self) -> None:
        """Run calls until the worker ends, then close the connection."""
        try:
            while not self._working.stopped:
                operation, arguments = self._next()
                self._operations[operation](*arguments)
            self._flush()
        finally:
            self.close()

    def stop(self) -> None:
        """End after the running call."""
        self._working.stopped = True

    def close(self) -> None:
        """Close the connection after pending messages are sent."""
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        if self._async_calls is not None:
            self._async_calls.close()
        if self._trace is not None:
            self._trace.close()
        set_resolver(None)
        self._watch.close()
        self._socket.close(linger=_LINGER)
        self._context.term()

    def fail(self, reason: str) -> None:
        """Report that this rank cannot work, and close the connection."""
        self._send(['failed', reason])
        self.close()

    def run_task(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Run a task on the worker or elsewhere, and return it when it is done: a dict of its description and result.

        Other ranks run it. If all other ranks wait for tasks, too, this rank runs it.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError('run_task() must be called in the thread that runs the call')
        plain = {**description.as_dict()} if hasattr(description, 'as_dict') else dict(description)
        self._asked = number = self._asked + 1
        packed = codec.pack(plain)
        request = ['submit', number, packed] if is_for_agent(plain) else ['run', number, packed, needs_of(plain)]
        for operation, arguments in self._answers(request, ('ran', 'run_here')):
            if operation == 'run_here':
                done = self._run_here(plain, number)
                with self._shield():
                    self._send(['ran_here', number, codec.pack(plain), done])
            else:
                result = payload.as_result(arguments[1])
                value = result.get('return_value')   # programs return no objects, so theirs are not unpickled
                return {'description': plain, **result,
                        'return_value': value if is_for_agent(plain) else from_plain(value)}
        raise RuntimeError('the worker ends before the task is done')

    def _fetch_object(self, id: bytes) -> tuple[str, str]:
        """Return the path of an object's file on this host, or why there is none."""
        if threading.current_thread() is not threading.main_thread():
            return '', 'it can be fetched in the thread that runs the call only'
        for _, (_, path, fault) in self._answers(['fetch', id], ('object',)):
            return path, fault
        return '', 'the worker ends'

    def _answers(self, request: list[Any], operations: Collection[str]) -> Iterator[tuple[str, list[Any]]]:
        """Send a request in the middle of a call, and yield the answers until 'stop'; other messages are kept."""
        with self._shield():
            self._flush()
            self._send(request)
        while True:
            self._socket.poll()
            with self._shield():
                operation, arguments = protocol.parse(self._socket.recv(), protocol.TO_RANK)
                if operation not in operations:
                    self._kept.append((operation, arguments))
            if operation == 'stop':
                return
            if operation in operations and arguments[0] == request[1]:   # others are for calls that were interrupted
                yield operation, arguments

    def _run_here(self, plain: dict[str, Any], number: int) -> bytes:
        """Run a task in the middle of a call, whose environment is restored at the end; return the task's result."""
        uid = plain['uid'] = plain.get('uid') or f'{self.run.worker}.{self.rank}.run.{number:06d}'
        sandbox = plain.get('sandbox') or os.path.join(os.environ['RP_PILOT_SANDBOX'], uid)
        task = {'uid': uid, 'description': plain, 'sandbox': sandbox}
        calls = self._calls
        assert calls is not None
        with task_environment({name: os.environ.get(name, '') for name in OF_TASK}, ''), calls.without_communicator():
            return self._completed(calls.run_described(task, {}))

    # messages

    def _next(self) -> tuple[str, list[Any]]:
        while True:
            if self._kept:
                return self._kept.popleft()
            try:
                return protocol.parse(self._socket.recv(_AT_ONCE), protocol.TO_RANK)
            except zmq.Again:
                self._flush()
            if self._async_calls:
                self._async_calls.wait(self._flush_trace if self._tracing.pending else None)
                self._working.resume()
            else:
                if self._tracing.pending and not self._socket.poll(_TRACE_FLUSH):
                    self._flush_trace()
                message = protocol.parse(self._socket.recv(), protocol.TO_RANK)
                self._working.resume()
                return message

    def _send(self, message: list[Any]) -> None:
        self._socket.send(pack_message(message))

    def _flush(self) -> None:
        """Report finished calls, and calls that run on as asynchronous ones."""
        if self._unannounced:
            self._send(['parked', array('Q', self._unannounced)])
            self._unannounced = []
        done = self._working.taken()
        if done:
            self._send(['results', *done])
            self._tracing.flush_if_due()

    def _flush_trace(self) -> None:
        self._tracing.flush()

    # calls

    @property
    def _working(self) -> Runner:
        assert self._runner, 'the rank does not serve yet'
        return self._runner

    @property
    def _tracing(self) -> RankTrace:
        assert self._trace, 'the rank does not serve yet'
        return self._trace

    def _run_alone(self, position: int, id: int, call: bytes, devices: list[str], cpus: list[int]) -> None:
        """Run a call that has these GPUs and CPUs, and no other call beside it."""
        name = self.run.device_variable
        visible = {name: ','.join(devices)} if name else {}

        def run(call: bytes) -> bytes:
            with task_environment(visible, ''), _bound(cpus):
                return self._completed(self._calls.run(call))  # type: ignore[union-attr]
        result = self._working.run(position, run, call)
        if isinstance(result, bytes):
            self._working.note(id, result)
        self._flush()

    def _run_together(self, position: int, id: int, call: bytes, group: list[int], tag: int,
                      devices: list[str]) -> None:
        """Run this rank's part of a call, with a communicator over the group; each rank has its GPUs."""
        def run(call: bytes) -> bytes:
            with definitions.communicator(group, tag) as comm:
                return self._completed(self._calls.run_part(call, comm))  # type: ignore[union-attr]
        self._flush()
        start = perf_counter()
        recorder = self._tracing.recorder
        recorder.flags = 0 if group[0] == self.rank else PART
        result = self._working.run(position, run, call)
        recorder.flags = 0
        if isinstance(result, bytes):
            self._send(['part', id, result, perf_counter() - start])

    def _completed(self, result: bytes | Later) -> bytes:
        return result if isinstance(result, bytes) else self._parked().complete(result)

    # asynchronous calls

    def _park(self, id: int, call: Coroutine[Any, Any, bytes]) -> Callable[[], object]:
        self._unannounced.append(id)
        self._parked().start(id, call)
        return self._parked().step

    def _parked(self) -> AsyncCalls:
        if self._async_calls is None:
            from rp_raptor.rank.async_calls import AsyncCalls

            self._async_calls = AsyncCalls(self._socket, self._finished)
        return self._async_calls

    def _finished(self, id: int, result: bytes) -> None:
        if id in self._unannounced:
            self._unannounced.remove(id)
        self._working.note(id, result)

    def _cancel(self, ids: array[int], reason: int) -> None:
        for id in ids:
            if self._async_calls:
                self._async_calls.cancel(id, reason)

    # interruptions

    def _terminate(self, *_: Any) -> None:
        """Die of SIGTERM, but write the traces before."""
        self._tracing.close(in_handler=True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _on_signal(self, *_: Any) -> None:
        """Interrupt the running call if the mark names it; otherwise send the results that wait for its end."""
        running = self._working.running
        if running == NOTHING:
            return
        mark = self._cursors.mark(self._place)
        position, reason = protocol.interrupted(mark)
        if position == running and mark != self._handled:
            self._handled = mark
            self._working.raised = error = _interruption(reason)
            functions = self._calls.functions if self._calls else None
            if functions is not None and functions.restoring:
                functions.interruption = error
            elif not self._shielded:
                raise error
            else:
                self._pending = error
        elif not self._shielded:
            with self._shield():
                self._flush()

    @contextmanager
    def _shield(self) -> Generator[None, None, None]:
        """Delay an interruption of the call until the end of the context."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        error, self._pending = self._pending, None
        if error is not None:
            raise error


def _ignore(*_: Any) -> None:
    """Ignore the answer to a call that was interrupted."""


def _interruption(reason: int) -> Exception:
    return (CallTimeout('the call took too long') if reason == protocol.TIMEOUT
            else CallCanceled('the call was canceled'))


def _bind(cpus: list[int]) -> None:
    """Bind this process to CPUs."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        print(f'a rank is not bound to the CPUs {cpus}: {error.strerror}', file=sys.stderr, flush=True)


@contextmanager
def _bound(cpus: list[int]) -> Generator[None, None, None]:
    """Bind this process to other CPUs, if any are given, until the end of the context."""
    before = os.sched_getaffinity(0)
    if cpus:
        _bind(cpus)
    try:
        yield
    finally:
        if cpus:
            _bind(sorted(before))


def _start_mpi(run: protocol.Run) -> int:
    """Initialise MPI and return this process's rank; tell the manager if that fails."""
    try:
        return definitions.start_mpi(run.ranks)
    except Exception as error:
        Rank(run, run.numbers[0]).fail(str(error) if isinstance(error, CoordinationError) else repr(error))
        raise


@cache
def connect() -> Rank:
    """Return this process as the rank that the environment describes."""
    run = protocol.load_run(os.environ[protocol.RUN_VARIABLE])
    rank = _start_mpi(run) if run.mpi else int(os.environ[protocol.RANK_VARIABLE])
    if rank not in run.numbers:
        raise CoordinationError(f'rank {rank} was started on the node of the ranks {run.numbers}')
    place = run.numbers.index(rank)
    if run.cpus[place]:
        _bind(run.cpus[place])
    os.environ.update({protocol.RANK_VARIABLE: str(rank), 'RP_TASK_ID': run.worker,
                       'RP_RANK': '0', 'RP_RANKS': '1'})   # of a call, which has one rank
    os.environ.setdefault('RP_PILOT_SANDBOX', os.getcwd())
    if run.device_variable:
        os.environ.update(NO_GPUS)
        if run.devices[place]:
            os.environ[run.device_variable] = ','.join(run.devices[place])
    replace_streams()
    return Rank(run, rank)

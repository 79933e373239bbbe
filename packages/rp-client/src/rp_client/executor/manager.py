"""The manager of an executor: a thread that submits what waits, and starts and ends workers.

Calls that wait for nothing go to the master in the thread that makes them; everything else is done here, in one thread,
so that nothing blocks in callbacks and a chain of dependencies of any length needs no stack.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, InvalidStateError
from contextlib import suppress
from typing import Any, Protocol

from rp_api import states
from rp_api.errors import CoordinationError, sentence
from rp_api.system import limits
from rp_api.system.owner_process import OwnerProcess
from rp_client.executor.allocation import Allocation
from rp_client.executor.calls import ExecutorCalls
from rp_client.executor.inbox import Action, Inbox
from rp_client.executor.programs import Program
from rp_client.executor.progress import ExecutorProgress, Work
from rp_client.executor.requirements import (
    TURN_S,
    PilotSize,
    Shape,
    any_wide,
    check,
    fits,
    most_ranks,
    ranks_of_workers,
)
from rp_client.handles.raptor import RaptorWorker
from rp_client.handles.task import Task

_log = logging.getLogger('radical.pilot.executor')

RUN, HOLD, END = 'calls may run', 'running calls finish', 'workers end'


THREADS, OF_HUB, OF_AGENT = 7, 3, 6
"""Threads of an executor here, of its hub, and of an agent on the same host, which is of the same user."""

OF_CALLS, OF_RAPTOR = 4, 14
"""Threads of the connection for calls, and of a master and a worker on the same host."""


class Deferred(Protocol):
    """A call or a program that waits for futures."""

    @property
    def future(self) -> Future[Any]:
        """Its own future."""

    @property
    def waits(self) -> bool:
        """True if it was not made, or submitted, yet."""


class Manager:
    """Runs calls and programs on an allocation. Public methods may be called from any thread."""

    def __init__(self, allocation: Allocation) -> None:
        self.process = OwnerProcess('this executor')
        self.broken: BrokenPilotExecutor | None = None
        self.shut = False
        self.calls: ExecutorCalls | None = None
        self._allocation = allocation
        self._inbox = Inbox()
        self._lock = threading.RLock()   # what is opened on demand
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._size: PilotSize | None = None
        self._sized = threading.Event()   # or broken, or closed
        self._workers: dict[str, tuple[RaptorWorker, int]] = {}   # with their numbers of ranks
        self._stage = RUN
        self._turn_ends = 0.0
        self._finished = 0   # calls at the beginning of their turn
        self._queued: list[Program] = []
        self._dropped = False   # whether some of them were cancelled
        self._running: dict[int, Program] = {}   # at the agent
        self._deferred: dict[Future[Any], Deferred] = {}
        self.closing: Callable[[], object] = _nothing
        """Called when everything is done."""
        self.leaving = False   # whether nothing starts any more
        self._ended = False   # whether everything was cancelled, or has failed
        self._watched = True   # whether the manager has to hear of each call, as more workers may be needed
        self.progress = ExecutorProgress(self._work)

    # from any thread

    @property
    def place(self) -> str:
        """The pilot, or the platform on which there will be one."""
        return self._allocation.place

    def post(self, action: Action) -> None:
        """Run an action in the thread of the manager."""
        self._inbox.post(action)

    def check_open(self) -> None:
        """Raise RuntimeError if nothing can be submitted any more."""
        self.process.check()
        if self.broken:
            raise BrokenPilotExecutor(str(self.broken))
        if self.shut:
            raise RuntimeError('cannot schedule new futures after shutdown')

    def open(self) -> None:
        """Open the session and the pilot, unless that was done."""
        with self._lock:
            if self._thread is not None:
                return
            self.check_open()
            lost = self._allocation.lost
            if lost:
                self._fail_with(lost)
                self.check_open()
            limits.require_threads('an executor', THREADS, OF_HUB + (OF_AGENT if self._is_local else 0))
            try:
                self._allocation.open(lambda size: self.post(lambda: self._active(size)),
                                      lambda reason: self.post(lambda: self._break(reason)))
            except BaseException:
                self.shut = True
                self._allocation.close()
                raise
            self._thread = threading.Thread(target=self._run, name='rp.Executor', daemon=True)
            self._thread.start()
            self.progress.start(self._allocation.report)

    def size(self) -> PilotSize:
        """Return the size of the pilot; wait for it if it is not known before."""
        known = self._size or self._allocation.size
        if known is not None:
            return known
        self.check_open()
        self.open()
        self._sized.wait()
        self.check_open()
        assert self._size
        return self._size

    def open_calls(self) -> ExecutorCalls:
        """Return the calls, with a master for them."""
        with self._lock:
            self.open()
            if self.calls is None:
                self._require_threads_of_calls()
                master = self._allocation.start_master(lambda reason: self.post(
                    lambda: self._break(reason or 'the RAPTOR master was cancelled')))
                self.calls = ExecutorCalls(master, self._check, self._idle, lambda: self.post(self._reshape),
                                           self.progress.call_failed)
            return self.calls

    @property
    def _is_local(self) -> bool:
        return self._allocation.size is not None   # it is known before there is a pilot

    def _require_threads_of_calls(self) -> None:
        starting = OF_AGENT if self._size is None else 0
        limits.require_threads('calls of an executor', OF_CALLS, OF_RAPTOR + starting if self._is_local else 0)

    def called(self) -> None:
        """Note that a call was made."""
        if self._watched or self._ended:
            self._watched = False
            self._wake()

    def run(self, program: Program) -> None:
        """Submit a program when there is room for it."""
        with self._lock:
            self.check_open()
            self.open()
            self.post(lambda: self.queue(program))

    def queue(self, program: Program) -> None:
        """Queue a program, or end it if nothing starts since it was requested; called in the manager's thread."""
        if self._ended or self.leaving:
            _end(program.future, self.broken)
        elif not program.future.cancelled():
            earlier = self._allocation.earlier(program.description)
            if earlier is not None:
                self._follow(program, earlier)
            else:
                self._queued.append(program)

    def defer(self, deferred: Deferred) -> None:
        """Know of a call or a program that waits for others, until its future is done."""
        with self._lock:
            self.check_open()
            self.open()
            self._deferred[deferred.future] = deferred
        deferred.future.add_done_callback(lambda future: self.post(lambda: self._deferred.pop(future, None)))

    def fail(self, reason: str) -> None:
        """Fail everything."""
        self.post(lambda: self._break(reason))

    def dropped(self, program: Program) -> None:
        """Cancel a program whose future was cancelled."""
        self.post(lambda: self._drop(program))

    def shutdown(self, wait: bool, cancel: bool) -> None:
        """Take nothing more, and close everything when all is done, or pending calls and programs were cancelled."""
        if not self.process.here:
            return
        with self._lock:
            self.shut = True
            started = self._thread is not None
        if not started:
            self.closing()
            return
        if cancel:
            self.post(self._cancel_pending)
        self._wake()
        if wait and self._thread is not threading.current_thread():
            self._over.wait()

    def abort(self) -> None:
        """Cancel everything, and close; called where waiting is no option."""
        if self.process.here and self._thread is not None and not self._over.is_set():
            self.shut = True
            self.post(lambda: self._end_all(None))
            self._over.wait()

    def _check(self, shape: Shape) -> None:
        size = self._size or self._allocation.size
        if size is not None:
            check(size, shape)

    def _idle(self) -> None:
        """Note that no call is left: the workers may end, or the executor."""
        if self._queued or self.shut:
            self._wake()

    def _wake(self) -> None:
        self.post(_nothing)

    # in the thread

    def _run(self) -> None:
        try:
            while not (self.shut and self._inbox.empty and self._done):
                for action in self._inbox.take(self._timeout()):
                    action()
                self._settle()
        except BaseException as error:   # futures must not wait for ever
            _log.exception('the manager of an executor has failed')
            self._break(f'its manager has failed: {sentence(error)}')
        finally:
            self._close()

    @property
    def _done(self) -> bool:
        return not (self._queued or self._running or self._deferred or self._unfinished)

    @property
    def _unfinished(self) -> int:
        return self.calls.unfinished if self.calls is not None else 0

    @property
    def _ranks(self) -> int:
        return sum(ranks for _, ranks in self._workers.values())

    def _timeout(self) -> float | None:
        if self._queued and self._workers and self._stage == RUN and self._unfinished:
            return max(0.0, self._turn_ends - time.monotonic())
        return None

    def _active(self, size: PilotSize) -> None:
        self._size = size
        self._sized.set()

    def _settle(self) -> None:
        """Submit what can run, and start or end workers."""
        if self._dropped:   # removed at once, as there may be many
            self._dropped = False
            self._queued = [program for program in self._queued if not program.future.cancelled()]
        if self._ended and self._unfinished:   # they were made while the others ended
            self._end_calls(self.broken)
        size = self._size
        if size is None or self.broken or self.leaving:
            return
        self._watched = True   # before calls are counted
        if not self._workers:
            self._start(size)
        elif self._stage == RUN:
            self._share(size)
        if self._workers and (self._queued or self._running or self._ranks >= most_ranks(size, self._shape)):
            self._watched = False   # further calls change nothing

    def _start(self, size: PilotSize) -> None:
        """Without workers: submit programs, or start workers if there are calls."""
        wide = any_wide((program.need for program in self._running.values()), size, self._shape)
        if not self._unfinished:
            self._submit(self._queued)
        elif wide:   # calls have their turn after these
            ranks = ranks_of_workers(size, self._shape, programs=True)
            self._submit([program for program in self._queued if fits(program.need, size, self._shape, ranks)])
        else:
            try:
                check(size, self._shape)
            except ValueError as error:   # calls were made before the size was known
                self._break(str(error))
                return
            ranks = ranks_of_workers(size, self._shape, programs=bool(self._queued or self._running))
            self._begin_turn()
            self._add_worker(ranks)
            self._share(size)

    def _share(self, size: PilotSize) -> None:
        """With workers: submit the programs that fit beside them; end the turn of the calls if others wait."""
        self._submit([program for program in self._queued if fits(program.need, size, self._shape, self._ranks)])
        if self._queued:
            if not self._unfinished:
                self._stop_workers()
            elif time.monotonic() >= self._turn_ends:
                if self.calls is not None and self.calls.finished > self._finished:
                    self._stop_workers()
                else:   # the workers were starting
                    self._begin_turn()
        elif not self._running and self._unfinished > self._ranks:
            more = most_ranks(size, self._shape) - self._ranks
            if more > 0:
                self._add_worker(more)

    def _begin_turn(self) -> None:
        assert self.calls is not None
        self._turn_ends = time.monotonic() + TURN_S
        self._finished = self.calls.finished

    @property
    def _shape(self) -> Shape:
        return self.calls.shape if self.calls is not None else Shape()

    def _add_worker(self, ranks: int) -> None:
        assert self.calls is not None
        uid = ''

        def ended(reason: str) -> None:
            self.post(lambda: self._worker_ended(uid, reason))

        worker = self._allocation.start_worker(self.calls.master, self.calls.shape, ranks, ended)
        uid = worker.uid
        self._workers[uid] = worker, ranks

    def _stop_workers(self) -> None:
        """Wait for running calls, and end the workers."""
        assert self.calls is not None
        self._stage = HOLD
        self.calls.hold(lambda: self.post(self._held))

    def _reshape(self) -> None:
        """Replace the workers, as a call needs others."""
        if self._workers and self._stage == RUN:
            self._stop_workers()

    def _held(self) -> None:
        if self._stage == HOLD:
            self._stage = END
            for worker, _ in self._workers.values():
                worker.cancel()
            self._workers_gone()

    def _worker_ended(self, uid: str, reason: str) -> None:
        self._workers.pop(uid, None)
        if self._stage == END:
            self._workers_gone()
        elif reason or not self._workers:
            self._break(reason or f'the RAPTOR worker {uid} was cancelled')

    def _workers_gone(self) -> None:
        if not self._workers:
            assert self.calls is not None
            self._submit(self._queued)   # these have their turn
            self._stage = RUN
            self.calls.release()

    def _submit(self, programs: list[Program]) -> None:
        """Submit programs, which were queued."""
        chosen = [program for program in programs if not program.future.cancelled()]
        left = set(map(id, programs))
        self._queued = [program for program in self._queued if id(program) not in left]
        if chosen:
            self._submit_chosen(chosen)

    def _submit_chosen(self, chosen: list[Program]) -> None:
        try:
            tasks = self._allocation.submit([program.description for program in chosen])
        except Exception as error:
            if isinstance(error, ValueError) and len(chosen) > 1:   # all are refused if one is
                for program in chosen:
                    self._submit_chosen([program])
                return
            for program in chosen:
                with suppress(InvalidStateError):
                    program.future.set_exception(error)
            return
        for program, task in zip(chosen, tasks, strict=True):
            self._follow(program, task)

    def _follow(self, program: Program, task: Task) -> None:
        """Resolve the future of a program when its task is final."""
        self._running[id(program)] = program
        program.submitted(task, lambda program: self.post(lambda: self._program_ended(program)))
        if program.future.cancelled():
            task.cancel()

    def _program_ended(self, program: Program) -> None:
        self._running.pop(id(program), None)
        if not program.future.cancelled():
            self.progress.program_ended(failed=program.future.exception() is not None)

    @property
    def _waiting(self) -> int:
        """The number of calls and programs that wait for others."""
        return sum(each.waits for each in list(self._deferred.values()))

    def _work(self) -> Work:
        """Return what there is to do, in any thread."""
        running, workers = list(self._running.values()), list(self._workers.values())
        return Work(self.calls, self._waiting, len(self._queued) + len(running),
                    sum(program.started for program in running),
                    sum(ranks for worker, ranks in workers if worker.state == states.AGENT_EXECUTING))

    def _drop(self, program: Program) -> None:
        if program.task is None:
            self._dropped = True
        else:
            with suppress(CoordinationError):   # the session has failed
                program.task.cancel()

    # the end

    def _cancel_pending(self) -> None:
        """Cancel what has not started."""
        self.leaving = True
        for future, deferred in list(self._deferred.items()):
            if deferred.waits:
                future.cancel()
        for program in self._queued:
            program.future.cancel()
        self._queued = []
        for program in self._running.values():
            if not program.started:
                program.future.cancel()
        if self.calls is not None:
            self.calls.hold(self.calls.cancel)

    def _break(self, reason: str) -> None:
        """Fail everything, as nothing can run any more."""
        if self.broken is None and not self._over.is_set():
            self._end_all(self._fail_with(reason))

    def _fail_with(self, reason: str) -> BrokenPilotExecutor:
        """Fail all later requests; return the error."""
        with self._lock:   # see `defer`
            self.broken = BrokenPilotExecutor(f'the executor is broken: {reason}')
        return self.broken

    def _end_all(self, error: BrokenPilotExecutor | None) -> None:
        """Cancel everything without a result; with an error, have it fail."""
        self._ended = True
        self._sized.set()
        if error is None:
            self.progress.cancels(self._waiting + len(self._queued) + self._unfinished)
        for program in self._running.values():
            self._drop(program)
        futures = [*self._deferred, *(program.future for program in [*self._queued, *self._running.values()])]
        for future in futures:
            _end(future, error)
        self._end_calls(error)
        self._queued, self._running = [], {}

    def _end_calls(self, error: BrokenPilotExecutor | None) -> None:
        if self.calls is None:
            return
        if error is None:
            self.calls.cancel()
        else:
            self.calls.abandon(error)

    def _close(self) -> None:
        try:
            self.progress.close()
            if self.calls is not None:
                self.calls.close()
            self._allocation.close()
            self.closing()
        finally:
            self._sized.set()   # for threads that wait for the size
            self._over.set()


def _end(future: Future[Any], error: BrokenPilotExecutor | None) -> None:
    """Fail a future with an error, or cancel it."""
    if error is None:
        future.cancel()
    else:
        with suppress(InvalidStateError):
            future.set_exception(error)


def _nothing() -> None:
    """Only wake the thread."""


class BrokenPilotExecutor(BrokenExecutor):
    """The executor cannot run anything any more: its pilot or its workers have failed, or the initializer has."""

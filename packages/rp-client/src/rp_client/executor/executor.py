"""A `concurrent.futures.Executor` that runs functions and programs on a pilot."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import Any, NoReturn
from weakref import WeakSet, finalize

from rp_api import units
from rp_api.balancing.chunks import chunks
from rp_api.errors import SerializationError
from rp_api.functions import serialize_obj
from rp_client.executor.allocation import Allocation, describe
from rp_client.executor.cached import CallCache
from rp_client.executor.calls import on_workers
from rp_client.executor.deferred import DeferredCall, DeferredProgram, Initializer, copied, futures_in
from rp_client.executor.futures import DroppableFuture
from rp_client.executor.manager import BrokenPilotExecutor, Manager
from rp_client.executor.programs import Program, Programs, texts
from rp_client.executor.requirements import Requirements, checked
from rp_client.handles.pilot import Pilot
from rp_client.handles.session import Session
from rp_client.settings import checked_uid

_managers: WeakSet[Manager] = WeakSet()


class Requests(futures.Executor):
    """Calls and programs with certain requirements, see `Executor.options`."""

    def __init__(self, manager: Manager, programs: Programs, initializer: Initializer | None, cache: CallCache,
                 requirements: Requirements) -> None:
        self._manager = manager
        self._programs = programs
        self._initializer = initializer
        self._cache = cache
        self._requirements = requirements
        self._origin: Requests | None = None   # kept, as an executor without a reference is shut down

    def __repr__(self) -> str:
        given = [f'{name}={value!r}' for name, value in self._requirements._asdict().items() if value != _NONE[name]]
        ended = ' (broken)' if self._manager.broken else ' (shut down)' if self._manager.shut else ''
        return f'<rp.Executor on {" with ".join([self._manager.place, *([", ".join(given)] if given else [])])}{ended}>'

    def __reduce__(self) -> NoReturn:
        raise TypeError('an executor cannot be pickled: functions that run on workers cannot use it')

    def options(self, **requirements: Any) -> Requests:
        """Return an executor on the same pilot whose calls and programs have other requirements.

        Args:
            **requirements: `ranks`: processes; a function with several gets their MPI communicator as first argument,
                and its result is a list with the value of each. `cores_per_rank`, `gpus_per_rank`. `timeout`: seconds,
                after which the call fails with `TimeoutError`, and a program with `TaskTimeoutError`. `retries`: how
                often a call or a program that has failed is repeated. `cache`: True, or a key: a call or program that
                is equal to an earlier one gets its result, see `TaskDescription.cache`. `stdout`: where the output of
                functions goes, besides the file of the worker: 'terminal' (the default: some of it, line by line with
                the function's name, and `stdout` and `stderr` of the future have its last MiB), 'future', 'file'
                (nowhere else), or a path with a `/`: the future, and the end of that file.

        Raises:
            TypeError: A requirement is unknown.
            ValueError: A value is not allowed.
        """
        made = Requests(self._manager, self._programs, self._initializer, self._cache,
                        checked(requirements, self._requirements))
        made._origin = self
        return made

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """Call `fn(*args, **kwargs)` on a worker of the pilot.

        Futures are dependencies: those that are arguments, or items of arguments that are lists, tuples or dicts, may
        be of any executor. The call is made when they are done, with their values. It is cancelled if one of them was
        cancelled, and fails with a `TaskError` of the kind `dependency` if one has failed.

        Args:
            fn: The function, as it is now; it travels by reference or by value, as cloudpickle decides.
            *args: Its arguments.
            **kwargs: Its keyword arguments.

        Returns:
            The future of the result. It can be cancelled while the call runs. Its `task` is the RAPTOR master that has
            the call, None while it waits for others. Once it is done, its `stdout` and `stderr` have what the function
            has printed. It fails with a `SerializationError` if the function or an argument cannot be serialized.

        Raises:
            TypeError: `fn` is not callable.
            BrokenPilotExecutor: The pilot, its workers or the initializer have failed.
            RuntimeError: The executor was shut down.
        """
        return self._submit(fn, args, kwargs, name_of(fn))

    def _submit_chunk(self, name: str, *args: Any) -> futures.Future[Any]:
        return self._submit(on_workers().call_chunk, args, {}, name)

    def _submit(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                name: str) -> futures.Future[Any]:
        manager = self._manager
        manager.check_open()
        if not callable(fn):
            raise TypeError(f'{fn!r:.80} is not callable: run() starts programs')
        found = futures_in(args, kwargs)
        if found or self._requirements.retries or self._requirements.cache or self._initializer:
            return self._defer(found, fn, args, kwargs, name)
        future = (manager.calls or manager.open_calls()).make(self._requirements, fn, args, kwargs, name)
        manager.called()
        return future

    def run(self, executable: Any, /, *args: Any, check: bool = True, **attributes: Any) -> DroppableFuture:
        """Run an executable or an MPI program on the pilot.

        Args:
            executable: The name or path of the program. A path (text with a `/`, or a `Path`) that exists relative to
                the working directory of the application is taken from there.
            *args: Its arguments: text, paths, numbers, and futures of these, which are dependencies as in `submit`. The
                program gets them as they are, also with a `$`, unless `literal_arguments` is False.
            check: Have the future fail if the program ends with another exit code than 0.
            **attributes: The requirements of `options`, and any other attribute of a `TaskDescription`.

        Returns:
            The future of a `TaskResult`: `returncode`, `stdout`, `stderr` (the last MiB of each) and `sandbox`. Its
            `task` is the task that runs the program, None before it was submitted.

        Raises:
            TypeError: An argument is no text, path, number or future.
            ValueError: An attribute is unknown, or has a value that is not allowed.
            BrokenPilotExecutor: The pilot, its workers or the initializer have failed.
            RuntimeError: The executor was shut down.
        """
        manager = self._manager
        manager.check_open()
        described = self._programs.describe(executable, {**self._requirements.of_program, **attributes})
        program = Program(described, check, manager.dropped, manager.progress.expected)
        found = futures_in(args, {})
        if found:
            DeferredProgram(manager, program, args).start(found)
        else:
            program.description.arguments = texts(args)
            manager.run(program)
        return program.future

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: units.Time | None = None,
            chunksize: int = 1, buffersize: int | None = None) -> Iterator[Any]:
        """Call `fn(*items)` for each tuple of items, and yield the results in the order of the items.

        When a call raises, the iterator raises the same and ends, and later calls are cancelled. What an iterable
        raises comes after the results of the calls before.

        Args:
            fn: The function.
            *iterables: The arguments; the shortest iterable ends the map.
            timeout: Seconds from now until all results have to be there; None for no limit.
            chunksize: Calls that are sent and run as one; 1 for cached calls, and those over several ranks.
            buffersize: Calls, or chunks, that are made ahead of the results that were taken, so that iterables may be
                endless; None makes all calls now.

        Raises:
            TimeoutError: By the iterator, if a result is missing at the end of `timeout`.
            SerializationError: By the iterator, if the function or an argument cannot be serialized.
            TypeError, ValueError: `chunksize` or `buffersize` is not a positive number.
        """
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError(f'buffersize must be an integer or None, not {buffersize!r}')
        for name, value in {'chunksize': chunksize, 'buffersize': buffersize}.items():
            if value is not None and value < 1:
                raise ValueError(f'{name} must be at least 1, not {value!r}')
        timeout = units.limit(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        items = zip(*iterables, strict=False)
        if self._requirements.cache or self._requirements.ranks > 1:
            chunksize = 1   # each call is looked up, or gets a communicator
        call: Callable[..., futures.Future[Any]] = partial(self.submit, fn)
        if chunksize > 1:
            try:
                call = partial(self._submit_chunk, name_of(fn), serialize_obj(fn), len(iterables))
            except SerializationError as error:
                return _in_order(iter(()), deque([_failed(error)]), None)
        made = started(call, items, chunksize)
        waiting = deque(islice(made, sys.maxsize if buffersize is None else buffersize))
        results = _in_order(made if buffersize else iter(()), waiting, deadline)
        return results if chunksize == 1 else chain.from_iterable(results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no further calls and programs, and end everything that the executor has started when these are done.

        Args:
            wait: Return when everything has ended.
            cancel_futures: Cancel calls and programs that have not started.
        """
        try:
            self._manager.shutdown(wait, cancel_futures)
        except BaseException:   # Ctrl-C during the wait
            self._manager.abort()
            raise

    def joblib_backend(self) -> Any:
        """Return a backend for joblib, and for libraries that use it, such as scikit-learn; wait for the pilot.

            with joblib.parallel_config(backend=ex.joblib_backend()):
                joblib.Parallel()(joblib.delayed(fn)(item) for item in items)

        Raises:
            ImportError: joblib is not installed.
            BrokenPilotExecutor: The pilot has failed.
        """
        from rp_client.executor.joblib import PilotBackend

        return PilotBackend(self, self._max_workers)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> bool | None:
        if error is not None and not isinstance(error, Exception):   # such as KeyboardInterrupt
            self._manager.abort()
        self.shutdown()
        return None

    def _defer(self, found: Sequence[futures.Future[Any]], fn: Callable[..., Any], args: tuple[Any, ...],
               kwargs: dict[str, Any], name: str) -> futures.Future[Any]:
        requirements = self._requirements
        cached = self._cache.call(requirements.cache, requirements.ranks) if requirements.cache else None
        known = cached.find(fn, args, kwargs) if cached and not found else None
        if known is not None:   # needs no pilot
            return known
        if found:
            args, kwargs = copied(args, kwargs)
        call = DeferredCall(self._manager, requirements, (fn, args, kwargs), name, self._initializer, cached)
        call.start(found)
        return call.future

    @property
    def _max_workers(self) -> int:
        """The number of cores of the pilot, which is waited for; Dask asks for it under this name."""
        return self._manager.size().cores

    @property
    def _broken(self) -> BrokenPilotExecutor | None:
        """The reason why nothing can be submitted any more, under the name that pools of Python have for it."""
        return self._manager.broken


class Executor(Requests):
    """Runs Python functions, executables and MPI programs on a pilot, as a `concurrent.futures.Executor`.

        with rp.Executor(cores=4) as ex:
            f = ex.submit(fn, 3)                             # a function
            g = ex.run('./simulate', '--seed', 7, ranks=2)   # a program; .result(): returncode, stdout, stderr, sandbox
            h = ex.submit(analyse, f, g)                     # called when f and g are done, with their results

    The session and the pilot start with the first call or program; functions need rp-raptor, whose master and workers
    start with the first call. Everything ends with `shutdown`, the `with` statement or the interpreter.

    Args:
        cores: Cores of the pilot; default: those of this machine, or with `resource`, a node.
        nodes: Whole nodes of the pilot, instead of `cores`.
        gpus: GPUs of the pilot.
        resource: Label of a platform, such as 'ncsa.delta'; default: this machine.
        runtime: Run time of the pilot, which platforms other than this machine need: '1h', '90m', minutes, or a
            `timedelta`.
        project: The allocation to charge.
        queue: The queue or partition of the batch system.
        pilot: A pilot to use, which stays when the executor ends, instead of all of the above.
        session: A session to start the pilot in, which stays open.
        uid: Uid of the session. If an executor of that uid was not shut down, because its process died, this one takes
            over its pilot, and the same programs, requested again, are those that it has requested: they do not run
            twice. Calls that ran are ended and made again.
        initializer: A function that each rank of a worker calls before its first call. If it raises, the executor is
            broken.
        initargs: Its arguments.
        progress: Show the progress on standard error, and at the end what has failed. RADICAL_REPORT=FALSE
            in the environment turns this off, too.

    Raises:
        TypeError: An argument has the wrong type, or is given beside `pilot`.
        ValueError: An argument has a value that is not allowed.
    """

    def __init__(self, cores: int | None = None, *, nodes: int | None = None, gpus: int | None = None,
                 resource: str | None = None, runtime: Any = None, project: str | None = None, queue: str | None = None,
                 pilot: Pilot | None = None, session: Session | None = None,
                 initializer: Callable[..., Any] | None = None, initargs: Sequence[Any] = (),
                 uid: str | None = None, progress: bool = True) -> None:
        if initializer is not None and not callable(initializer):
            raise TypeError(f'initializer is {initializer!r:.80}, it must be callable')
        description = None
        if pilot is None:
            description = describe(cores, nodes, gpus, resource, runtime, project, queue)
        else:
            _refuse_beside(pilot, cores=cores, nodes=nodes, gpus=gpus, resource=resource, runtime=runtime,
                           project=project, queue=queue, session=session, uid=uid)
        if session is not None and uid is not None:
            raise TypeError('session is given, and so is uid: a session has its uid')
        if session is not None and not isinstance(session, Session):
            raise TypeError(f'session is {session!r:.80}, it must be an rp.Session')
        allocation = Allocation(description, pilot, session, checked_uid(uid, None), progress=progress)
        manager = Manager(allocation)
        cache = CallCache(lambda: allocation.base, (initializer, tuple(initargs)), manager.post,
                          lambda: allocation.unlike)
        manager.closing = cache.close
        super().__init__(manager, Programs(), Initializer(initializer, initargs) if initializer else None, cache,
                         Requirements())
        _managers.add(manager)
        finalize(self, manager.shutdown, False, False).atexit = False


_NONE = Requirements()._asdict()


def name_of(fn: Any) -> str:
    """Return the name of a function, for people."""
    return getattr(fn, '__name__', '') or type(fn).__name__


def _refuse_beside(pilot: Any, **others: Any) -> None:
    if not isinstance(pilot, Pilot):
        raise TypeError(f'pilot is {pilot!r:.80}, it must be an rp.Pilot')
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise TypeError(f'pilot is given, and so is {", ".join(given)}: a pilot has its size, platform and session')


def started(call: Callable[..., futures.Future[Any]], items: Iterable[Iterable[Any]],
            size: int) -> Iterator[futures.Future[Any]]:
    """Yield the futures of calls with the arguments in chunks of items; the last one has the exception of the items."""
    for chunk in chunks(items, size):
        yield _failed(chunk) if isinstance(chunk, Exception) else call(*chain.from_iterable(chunk))


def _failed(error: Exception) -> futures.Future[Any]:
    future: futures.Future[Any] = futures.Future()
    future.set_exception(error)
    return future


def _in_order(made: Iterator[futures.Future[Any]], waiting: deque[futures.Future[Any]],
              deadline: float | None) -> Iterator[Any]:
    """Yield the results of a map; each one taken makes room for another call."""
    try:
        while waiting:
            waiting.extend(islice(made, 1))
            left = None if deadline is None else deadline - time.monotonic()
            yield _result(waiting, left)
    finally:
        for future in waiting:
            future.cancel()


def _result(waiting: deque[futures.Future[Any]], timeout: float | None) -> Any:
    """Return the first result, and keep no reference to it or its future."""
    return waiting.popleft().result(timeout) if waiting[0].done() else _awaited(waiting, timeout)


def _awaited(waiting: deque[futures.Future[Any]], timeout: float | None) -> Any:
    waiting[0].exception(timeout)
    return waiting.popleft().result()


def _end_all() -> None:
    """Finish the work of all executors at the end of the interpreter, as pools of Python do; cancel it after Ctrl-C."""
    managers = list(_managers)
    try:
        if not issubclass(getattr(sys, 'last_type', None) or Exception, KeyboardInterrupt):
            for manager in managers:
                manager.shutdown(True, False)
    finally:   # also if Ctrl-C ends the wait
        for manager in managers:
            manager.abort()


threading._register_atexit(_end_all)   # type: ignore[attr-defined]  # before the threads of sessions end

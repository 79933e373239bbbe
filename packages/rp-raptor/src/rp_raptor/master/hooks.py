"""The threads that call the user's code, so that the master's loop never waits for it.

One thread calls all hooks, one after the other; each call of a procedure (`RaptorMaster.rpc`, `Pilot.rpc`) has its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from rp_api.errors import sentence
from rp_api.wire import codec

STOP = 'stop'
"""The call that every master answers, and that no procedure may replace."""

_Job = tuple[Callable[..., object], tuple[Any, ...]]

_log = logging.getLogger('radical.pilot.raptor')


class Hooks:
    """Calls functions in a thread, in order; hooks (`hook`) only after `open()`."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._early: list[_Job] | None = []
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call the function in the thread, and log what it raises. After `close` it runs in the caller's thread."""
        with self._lock:
            if not self._closed:
                self._jobs.put((function, args))
                return
        _call(function, args)

    def hook(self, function: Callable[..., object], *args: Any) -> None:
        """Call the function in the thread after `open()`."""
        with self._lock:
            if self._early is not None:
                self._early.append((function, args))
                return
        self._jobs.put((function, args))

    def open(self) -> None:
        """Call hooks from now on, starting with those that wait."""
        with self._lock:
            early, self._early = self._early or [], None
            for job in early:
                self._jobs.put(job)

    def close(self, timeout: float) -> None:
        """Stop the thread; wait at most `timeout` seconds for the calls that are queued."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            _call(*job)


def _call(function: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        function(*args)
    except Exception:
        _log.exception('%s has failed', getattr(function, '__qualname__', function))


class Request(NamedTuple):
    """A call of an application: its number, and the name and the arguments of the procedure."""

    number: int
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class Procedures:
    """The registered procedures. `answer(number, good, value)` is called, in any thread, once for each call.

    Calls that arrive before `open()` wait for it: the master may still be registering its procedures.
    """

    def __init__(self, uid: str, answer: Callable[[int, bool, Any], object]) -> None:
        self._uid = uid
        self._answer = answer
        self._known: dict[str, Callable[..., Any]] = {}
        self._early: list[Request] | None = []

    def register(self, name: str, procedure: Callable[..., Any]) -> None:
        """Register a procedure; raise ValueError for a name that is not possible, TypeError for what is no callable."""
        if not isinstance(name, str) or not name or name == STOP:
            raise ValueError(f'{name!r} cannot be registered: a procedure has a name, which is not {STOP!r}')
        if not callable(procedure):
            raise TypeError(f'the procedure {name} must be a callable, it is {procedure!r}')
        self._known[name] = procedure

    def open(self) -> None:
        """Answer calls from now on, starting with those that wait."""
        early, self._early = self._early or [], None
        for request in early:
            self.call(request)

    def call(self, request: Request) -> None:
        """Start a call; never blocks."""
        if self._early is not None:
            self._early.append(request)
            return
        procedure = self._known.get(request.name)
        if procedure is None:
            self._answer(request.number, False, f'{self._uid} has no procedure {request.name!r:.60}: it has '
                                                f'{", ".join(sorted([*self._known, STOP]))}')
            return
        try:   # a daemon: a procedure that never returns does not keep the master from ending
            threading.Thread(target=self._run, args=(procedure, request), daemon=True,
                             name=f'{self._uid}.{request.name}').start()
        except RuntimeError as error:   # too many threads
            self._answer(request.number, False, sentence(error))

    def _run(self, procedure: Callable[..., Any], request: Request) -> None:
        try:
            value = procedure(*request.args, **request.kwargs)
            codec.pack(value)
        except BaseException as error:   # of the user's code, also SystemExit: the caller gets it
            self._answer(request.number, False, sentence(error))
        else:
            self._answer(request.number, True, value)

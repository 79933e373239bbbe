"""`rp.raptor.Master`: the base class of RAPTOR masters."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import count
from typing import Any

from rp_api import constants as c
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.raptor_defaults import complete_worker
from rp_api.wire import codec
from rp_raptor.client import stream
from rp_raptor.client.caller import WINDOW, Failed, Results
from rp_raptor.client.futures import Executor
from rp_raptor.client.streamed import Call
from rp_raptor.master.core import Core
from rp_raptor.master.local import LocalCaller
from rp_raptor.master.tasks import described
from rp_raptor.objects.reference import ObjectRef
from rp_raptor.own_profile import Profile


class Master:
    """A RAPTOR master: runs as a task of a pilot, starts workers, and sends them calls and tasks.

    A subclass may override `request_cb`, `result_cb` and `worker_state_cb`; they are called one after the other in a
    thread for them, after `start()`. Public methods may be called from any thread, but not in a fork of the process.

    Attributes of a subclass may have any names except those of the documented methods, `uid`, `_uid`, `_cfg`, `_log`,
    `_prof` and `_term`, an event that is set when the master has to end.

    The usual life of a master is `master = MyMaster(); master.start(); master.join()`, which the program
    `radical-pilot-raptor-master FILE CLASS` does. Workers are submitted by the master or by the application.

    Args:
        cfg: Any configuration of the subclass, kept as `_cfg`.

    Raises:
        RuntimeError: If the process is not a task of a pilot.
    """

    retries = 1
    """Repetitions of a call whose rank or worker has died."""

    def __init__(self, cfg: Any = None) -> None:
        try:
            self.uid = self._uid = os.environ['RP_TASK_ID']
            self.__sandbox = os.environ['RP_TASK_SANDBOX']
            pilot_sandbox = os.environ['RP_PILOT_SANDBOX']
        except KeyError as error:
            raise RuntimeError(f'the environment has no {error.args[0]}: a master runs as a task of a pilot, '
                               'see submit_raptors()') from None
        self._cfg = {} if cfg is None else cfg
        self._log = logging.getLogger(f'radical.pilot.{self.uid}')
        self._prof = Profile(self.__sandbox, self.uid)
        self._term = threading.Event()
        self.__up = self.__told_to_end = False
        self.__handle_sigterm()
        self.__numbers = count()
        self.__worker_numbers = count()
        self.__core = Core(self.uid, pilot_sandbox, self.retries, self._term.set,
                           request_cb=self.__overridden('request_cb'), result_cb=self.__overridden('result_cb'),
                           worker_state_cb=self.__overridden('worker_state_cb'))
        self.__up = True
        if self.__told_to_end:
            self.__exit()
        self.__executor = Executor(self)   # type: ignore[arg-type]  # the executor uses `open_caller` only

    # hooks

    def request_cb(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Select and change tasks before they run: of the application, and of this master and its ranks.

        Executables of the application are among them, if they name this master as `raptor_id`. So are tasks that the
        hook itself submits: it is called for these later.

        Args:
            tasks: Dicts with `uid` and `description` (a dict), which may be changed.

        Returns:
            The tasks to run now. A task that is left out waits until it is submitted with `submit_tasks`, for which
            the hook is not called again.
        """
        return tasks

    def result_cb(self, tasks: list[dict[str, Any]]) -> None:
        """Handle finished tasks, of the application and of this master, before the results are delivered.

        Args:
            tasks: Dicts with `uid`, `description`, `stdout`, `stderr`, `exit_code`, `return_value`, `exception`,
                `exception_detail` and `target_state`, which may be changed.
        """

    def worker_state_cb(self, worker_dict: dict[str, Any], state: str) -> None:
        """Handle a worker that is up or has ended.

        Args:
            worker_dict: The worker's `uid`, `status` (NEW, ACTIVE, DONE), and `heartbeats`, {rank: time of the last}.
            state: AGENT_EXECUTING when all ranks are up, or the final state: DONE, FAILED, CANCELED.
        """

    def register_rpc_cb(self, cmd: str, cb: Callable[..., Any]) -> None:
        """Register a procedure that applications call with `RaptorMaster.rpc` and `Pilot.rpc`.

        It is called as `cb(*args, **kwargs)` in a thread for each call, and returns plain data. What it raises, the
        caller gets as RuntimeError. Calls that arrive before `start()` wait for it. Register the procedures before.

        Args:
            cmd: The name of the procedure.
            cb: The procedure.

        Raises:
            ValueError: If the name is empty, or `stop`, which every master has.
            TypeError: If `cb` is not callable.
        """
        self.__core.procedures.register(cmd, cb)

    # start and end

    @property
    def workers(self) -> dict[str, dict[str, Any]]:
        """The workers, {uid: {'uid', 'status', 'heartbeats'}}; see `worker_state_cb`."""
        return self.__core.workers.all()

    def start(self) -> None:
        """Accept tasks of the application from now on, and call hooks."""
        self.__core.start()

    def stop(self) -> None:
        """Begin to end: accept no further tasks and stop the workers. Calls without a result fail."""
        self.__core.stop(f'{self.uid} has ended')

    def terminate(self) -> None:
        """The same as `stop`."""
        self.stop()

    def join(self) -> None:
        """Wait until the master has ended: after `stop`, or at the request of the application or the agent.

        Raises:
            RuntimeError: If the master has failed, and in a fork of its process.
        """
        self.__core.process.check()
        self._term.wait()
        self.__core.join()
        self._prof.close()
        if self.__core.error is not None:
            raise RuntimeError(f'{self.uid} has failed: {self.__core.error!r}') from self.__core.error

    def alive(self) -> bool:
        """Return whether the master was not stopped yet."""
        return not self._term.is_set()

    # workers

    def submit_workers(self, descriptions: TaskDescription | Mapping[str, Any] | Iterable[Any]) -> list[str]:
        """Start workers.

        Args:
            descriptions: One description or several, of mode RAPTOR_WORKER.

        Returns:
            The uids of the workers.

        Raises:
            DescriptionError: If a description is not valid, or of another mode.
            RuntimeError: If `gpus_per_rank` is not a whole number, and in a fork of the master's process.
        """
        prepared = [self.__worker(description) for description in _as_list(descriptions)]
        self.__core.submit_workers(prepared)
        return [description['uid'] for description in prepared]

    def wait_workers(self, count: int | None = None, uids: Collection[str] | None = None) -> None:
        """Wait until workers are up: `count` of them, those in `uids`, or all that were submitted.

        Args:
            count: Number of workers.
            uids: Uids of workers, all of which must have been submitted.

        Raises:
            RuntimeError: As soon as that cannot happen any more, and in a fork of the master's process.
            ValueError: If a uid is unknown.
        """
        self.__core.process.check()
        self.__core.workers.wait(count, uids)

    def cancel_workers(self, uids: str | Collection[str]) -> None:
        """Stop workers; other workers run the calls that these have not finished.

        Args:
            uids: One uid or several.

        Raises:
            RuntimeError: In a fork of the master's process.
        """
        self.__core.cancel_workers([uids] if isinstance(uids, str) else list(uids))

    # tasks and calls

    def submit_tasks(self, tasks: TaskDescription | Mapping[str, Any] | Iterable[Any]) -> list[str]:
        """Run tasks: the agent runs executables, the workers all others. `result_cb` gets the results.

        A master that overrides `request_cb` runs its own tasks after `start()`, as the hook is called for them, too.

        Args:
            tasks: One or several descriptions, or tasks as hooks get them.

        Returns:
            The uids of the tasks.

        Raises:
            DescriptionError: If a description is not valid.
            RuntimeError: In a fork of the master's process.
        """
        sandbox = self.__core.pilot_sandbox
        prepared = [described(f'{self.uid}.task.{next(self.__numbers):06d}', task, sandbox, 'raptor')
                    for task in _as_list(tasks)]
        self.__core.submit(prepared)
        return [task['uid'] for task in prepared]

    def put_object(self, obj: Any) -> ObjectRef:
        """Store an object for calls of this master that is sent to each node once; see `RaptorMaster.put_object`.

        Args:
            obj: The object.

        Returns:
            A reference, which calls and tasks of this master accept in place of the object.

        Raises:
            SerializationError: If the object cannot be serialized or stored.
            RuntimeError: In a fork of the master's process.
        """
        return self.__core.put_object(obj)

    def submit(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule `func(*args, **kwargs)` on a worker.

        Args:
            func: The function.
            *args: Positional arguments of the function.
            **kwargs: Keyword arguments of the function.

        Returns:
            The future of the result. Its exception is that of the call, with the worker's traceback as `__cause__`, or
            CallLost.

        Raises:
            SerializationError: If the function or an argument cannot be serialized, or is too large.
            RuntimeError: In a fork of the master's process.
        """
        return self.__executor.submit(func, *args, **kwargs)

    def map(self, func: Callable[..., Any], *iterables: Iterable[Any], chunksize: int = 1,
            window: int = WINDOW) -> Iterator[Any]:
        """Call `func(*items)` for each tuple of items, and yield the results in the order of the items.

        When a call raises, the iterator raises the same and ends.

        Args:
            func: The function.
            *iterables: The arguments; the shortest iterable ends the map, the others may be endless.
            chunksize: Calls that are sent and run as one.
            window: Calls in flight at most.

        Returns:
            An iterator of the results.

        Raises:
            ValueError: If `chunksize` or `window` is not a positive number.
            RuntimeError: In a fork of the master's process.
        """
        return self.__executor.map(func, *iterables, chunksize=chunksize, buffersize=window)

    def stream(self, func: Callable[..., Any], iterable: Iterable[Any], *, window: int = WINDOW,
               chunksize: int = 1, **attributes: float) -> Iterator[Call]:
        """Call `func(item)` for each item, and yield the calls as they finish; see `rp.raptor.stream`.

        Args:
            func: A function of one argument.
            iterable: The arguments; it may be endless.
            window: Calls at most that are in flight, or finished and not taken yet.
            chunksize: Calls that are sent and run as one.
            **attributes: Limits and resources of each call or chunk: `timeout` in seconds, `ranks`, `cores`, `gpus`.

        Returns:
            An iterator of finished calls, in any order.

        Raises:
            TypeError: If an attribute is unknown.
            ValueError: If a value is not allowed.
            SerializationError: If the function cannot be serialized.
        """
        return stream.stream(
            self, func, iterable, window=window, chunksize=chunksize, **attributes)   # type: ignore[arg-type]

    def open_caller(self, on_results: Results, on_failed: Failed, attributes: Mapping[str, Any] | None,
                    apart: bool) -> LocalCaller:
        """Open a source of calls in the master's process, for `rp.raptor.stream` and `rp.raptor.Executor`.

        Args:
            on_results: Receives numbers and payloads of results.
            on_failed: Receives the numbers of calls that have no result, and the reason.
            attributes: Limits and resources of each call.
            apart: Report results in a thread that may block, instead of the loop's.

        Returns:
            The source of calls.
        """
        return self.__core.open_caller(on_results, on_failed, attributes, apart)

    # internals

    def __handle_sigterm(self) -> None:
        """End in order at SIGTERM, unless the script handles the signal."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self.__on_sigterm)

    def __on_sigterm(self, number: int, _: object) -> None:
        """Interrupt the main thread, but not while `Core` is made: it would leave a file behind."""
        signal.signal(number, signal.SIG_IGN)
        self.__told_to_end = True
        if self.__up:
            self.__exit()

    def __exit(self) -> None:
        self.__core.hurry()
        sys.exit(128 + signal.SIGTERM)

    def __overridden(self, name: str) -> Any:
        """Return the method of that name if the subclass overrides it."""
        return None if getattr(type(self), name) is getattr(Master, name) else getattr(self, name)

    def __worker(self, description: Any) -> dict[str, Any]:
        """Return the plain description of a worker of this master."""
        checked = TaskDescription(description)
        if checked.mode != c.RAPTOR_WORKER:
            raise DescriptionError(f'TaskDescription.mode is {checked.mode!r}, for a worker it must be '
                                   f'{c.RAPTOR_WORKER!r}')
        if checked.gpus_per_rank != int(checked.gpus_per_rank):
            raise RuntimeError(f'TaskDescription.gpus_per_rank is {checked.gpus_per_rank}, for a worker it must be a '
                               'whole number')
        checked.uid = checked.uid or f'{self.uid}.worker.{next(self.__worker_numbers):04d}'
        checked.update(raptor_id=self.uid, sandbox=checked.sandbox or self.__sandbox)
        checked.check()
        complete_worker(checked)
        plain: dict[str, Any] = codec.unpack(codec.pack(checked.as_dict()))
        return plain


def _as_list(descriptions: Any) -> list[Any]:
    """Return the descriptions as a list; a single one becomes a list of one."""
    return [descriptions] if isinstance(descriptions, Mapping | TaskDescription) else list(descriptions)

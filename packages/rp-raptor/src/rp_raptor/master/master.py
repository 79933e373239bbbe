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
from rp_raptor.client.call_intake import Failed, Results
from rp_raptor.client.caller import WINDOW
from rp_raptor.client.futures import Executor
from rp_raptor.client.streamed import Call
from rp_raptor.master.core import Core
from rp_raptor.master.local import LocalCaller
from rp_raptor.master.tasks import described
from rp_raptor.own_profile import Profile


class Master:
    """A master: runs as a task, has workers, and gives them calls to make and tasks to run.

    A subclass may override `request_cb`, `result_cb` and `worker_state_cb`, which are called in one thread of their
    own, from `start()` on and one after the other. `cfg` is kept as `_cfg`, for the subclass. `retries` is how often a
    call is repeated whose rank or worker has died.

    Attributes of a subclass can have any names but those of the documented methods, `uid`, `_uid`, `_cfg`, `_log`,
    `_prof` and `_term`, an event that is set when the master has to end.

    The usual life of a master is `master = MyMaster(); master.start(); master.join()`, which the program
    `radical-pilot-raptor-master FILE CLASS` does. Workers are submitted by the master or by the application.
    """

    retries = 1

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
        self.__executor = Executor(self)   # type: ignore[arg-type]  # open_caller is all that is asked of this master

    # to be overridden

    def request_cb(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The tasks to run, of those that have come from the application; called before they run.

        A task is a dict with `uid` and `description` (a dict), which may be changed. What is left out is up to the
        subclass: `submit_tasks` runs it later.
        """
        return tasks

    def result_cb(self, tasks: list[dict[str, Any]]) -> None:
        """Called with tasks that are done, of the application and of this master, before anybody else sees the results.

        Besides `uid` and `description` they have `stdout`, `stderr`, `exit_code`, `return_value`, `exception`,
        `exception_detail` and `target_state`, which may be changed.
        """

    def worker_state_cb(self, worker_dict: dict[str, Any], state: str) -> None:
        """Called when a worker is up (AGENT_EXECUTING) or has ended (DONE, FAILED, CANCELED).

        The dict has its `uid`, its `status` (NEW, ACTIVE, DONE), and `heartbeats`, {rank: time of the last one}.
        """

    # life

    @property
    def workers(self) -> dict[str, dict[str, Any]]:
        """The workers: {uid: {'uid', 'status', 'heartbeats'}}, see `worker_state_cb`."""
        return self.__core.workers.all()

    def start(self) -> None:
        """Take the application's tasks from now on."""
        self.__core.start()

    def stop(self) -> None:
        """Begin to end: take no more tasks, stop the workers. Calls without a result fail."""
        self.__core.stop(f'{self.uid} has ended')

    def terminate(self) -> None:
        """The same as `stop`."""
        self.stop()

    def join(self) -> None:
        """Wait until the master was stopped and has ended, for which the application or the agent may ask, too.

        RuntimeError if that was not the reason for its end, and in a fork of the master's process.
        """
        self.__core.process.check()
        self._term.wait()
        self.__core.join()
        self._prof.close()
        if self.__core.error is not None:
            raise RuntimeError(f'{self.uid} has failed: {self.__core.error!r}') from self.__core.error

    def alive(self) -> bool:
        """Whether it was not stopped yet."""
        return not self._term.is_set()

    # workers

    def submit_workers(self, descriptions: TaskDescription | Mapping[str, Any] | Iterable[Any]) -> list[str]:
        """Have workers started; gives their uids. The descriptions are of mode RAPTOR_WORKER."""
        prepared = [self.__worker(description) for description in _as_list(descriptions)]
        self.__core.submit_workers(prepared)
        return [description['uid'] for description in prepared]

    def wait_workers(self, count: int | None = None, uids: Collection[str] | None = None) -> None:
        """Wait until `count` workers are up, or those in `uids`, or all that were submitted.

        RuntimeError as soon as that will not happen any more, and in a fork of the master's process.
        """
        self.__core.process.check()
        self.__core.workers.wait(count, uids)

    def cancel_workers(self, uids: str | Collection[str]) -> None:
        """Let workers end; what they have not finished is given to others."""
        self.__core.cancel_workers([uids] if isinstance(uids, str) else list(uids))

    # tasks and calls

    def submit_tasks(self, tasks: TaskDescription | Mapping[str, Any] | Iterable[Any]) -> list[str]:
        """Have tasks run, executables by the agent and all others by the workers; gives their uids.

        Takes descriptions, or tasks as hooks get them. `result_cb` gets the results.
        """
        sandbox = self.__core.pilot_sandbox
        prepared = [described(f'{self.uid}.task.{next(self.__numbers):06d}', task, sandbox, 'raptor')
                    for task in _as_list(tasks)]
        self.__core.submit(prepared)
        return [task['uid'] for task in prepared]

    def submit(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have `func(*args, **kwargs)` called on a worker; gives the future of its result.

        SerializationError if the function or an argument cannot travel. The future's exception is what the call has
        raised, with the worker's traceback as its `__cause__`, or CallLost.
        """
        return self.__executor.submit(func, *args, **kwargs)

    def map(self, func: Callable[..., Any], *iterables: Iterable[Any], chunksize: int = 1,
            window: int = WINDOW) -> Iterator[Any]:
        """The results of `func(*items)` for each tuple of items, in their order; at most `window` calls are under way.

        With a `chunksize`, that many calls go as one. What a call raises is raised here, which ends the iterator.
        """
        return self.__executor.map(func, *iterables, chunksize=chunksize, buffersize=window)

    def stream(self, func: Callable[[Any], Any], iterable: Iterable[Any], *, window: int = WINDOW,
               chunksize: int = 1, **attributes: float) -> Iterator[Call]:
        """Calls of `func(item)` for each item as they finish; see `rp.raptor.stream`."""
        return stream.stream(
            self, func, iterable, window=window, chunksize=chunksize, **attributes)   # type: ignore[arg-type]

    def open_caller(self, on_results: Results, on_failed: Failed, attributes: Mapping[str, Any] | None,
                    apart: bool) -> LocalCaller:
        """How `rp.raptor.stream` and `rp.raptor.Executor` make calls at this master, in its own process."""
        return self.__core.open_caller(on_results, on_failed, attributes, apart)

    # parts

    def __handle_sigterm(self) -> None:
        """End in order when the agent cancels the task, unless the script has a way of its own."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self.__on_sigterm)

    def __on_sigterm(self, number: int, _: object) -> None:
        """Interrupt the main thread, but not where it makes what has to be removed in the end."""
        signal.signal(number, signal.SIG_IGN)
        self.__told_to_end = True
        if self.__up:
            self.__exit()

    def __exit(self) -> None:
        self.__core.hurry()
        sys.exit(128 + signal.SIGTERM)

    def __overridden(self, name: str) -> Any:
        """The method of that name, if it is not the one of this class."""
        return None if getattr(type(self), name) is getattr(Master, name) else getattr(self, name)

    def __worker(self, description: Any) -> dict[str, Any]:
        """The plain description of a worker of this master."""
        checked = TaskDescription(description)
        if checked.mode != c.RAPTOR_WORKER:
            raise DescriptionError(f'TaskDescription.mode is {checked.mode!r}, for a worker it must be '
                                   f'{c.RAPTOR_WORKER!r}')
        if checked.gpus_per_rank != int(checked.gpus_per_rank):
            raise RuntimeError(f'TaskDescription.gpus_per_rank is {checked.gpus_per_rank}, for a worker it must be a '
                               'whole number')
        checked.uid = checked.uid or f'{self.uid}.worker.{next(self.__worker_numbers):04d}'
        checked.raptor_id = self.uid
        checked.sandbox = checked.sandbox or self.__sandbox
        checked.verify()
        complete_worker(checked)
        plain: dict[str, Any] = codec.unpack(codec.pack(checked.as_dict()))
        return plain


def _as_list(descriptions: Any) -> list[Any]:
    """The descriptions, of which there may be a single one."""
    return [descriptions] if isinstance(descriptions, Mapping | TaskDescription) else list(descriptions)

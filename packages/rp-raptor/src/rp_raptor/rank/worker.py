"""The base classes of users' workers.

A worker is a manager process and its ranks. A worker object lives in a rank and runs the calls there: `start()`
connects, `join()` runs calls in the calling thread until the worker ends. If a script makes a worker object outside of
a rank, the process becomes the manager, which starts ranks with the same script.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rp_api.constants import TASK_EVAL, TASK_EXEC, TASK_FUNCTION, TASK_METHOD, TASK_PROC, TASK_SHELL
from rp_raptor import definitions
from rp_raptor.definitions import find_method
from rp_raptor.rank import modes
from rp_raptor.rank.capture import captured
from rp_raptor.rank.modes import Dispatcher, Host, Task
from rp_raptor.wire.rank_protocol import RUN_VARIABLE

if TYPE_CHECKING:
    from rp_raptor.own_profile import Profile
    from rp_raptor.rank.rank import Rank


class Worker:
    """The base class of workers: runs calls in a rank.

    `register_mode` adds modes, and the methods `_dispatch_func` and so on can be overridden. A dispatcher takes a task
    (a dict with uid, description and sandbox) and returns `(stdout, stderr, exit code, value, (exception, traceback))`,
    the last two being texts or None; it may be a coroutine function.

    After `start`, `_rank` is the number of this rank (from 0), and `_ranks` the number of ranks. Attributes of a
    subclass may have any names except those of the methods, `uid`, `_uid`, `_manager`, `_rank`, `_ranks`, `_raptor_id`,
    `_log`, `_prof`, and names that start with `_rp_`. `_prof.prof(event, uid=, msg=)` records an event of the
    application in the profile of the rank, `<uid of the worker>.<rank>.prof`.

    Args:
        manager: Kept as `_manager`; not used.
        rank: The value of `_rank` until `start`.
        raptor_id: The uid of the master.
    """

    uses_mpi = False
    """True if the ranks are an MPI job."""

    def __init__(self, manager: str | None = None, rank: int | None = None, raptor_id: str | None = None) -> None:
        self.uid = self._uid = os.environ.get('RP_TASK_ID', '')
        self._manager = manager
        self._raptor_id = raptor_id or ''
        self._rank = rank or 0
        self._ranks = 1
        self._log = logging.getLogger(f'radical.pilot.{self.uid or "worker"}')
        self._rp_service: Any = None   # the rank, or the manager
        self._rp_host = Host(self, self.uid, _READERS)
        for mode, dispatcher in ((TASK_FUNCTION, self._dispatch_func), (TASK_METHOD, self._dispatch_meth),
                                 (TASK_EVAL, self._dispatch_eval), (TASK_EXEC, self._dispatch_exec),
                                 (TASK_PROC, self._dispatch_proc), (TASK_SHELL, self._dispatch_shell)):
            self.register_mode(mode, dispatcher)
        module = sys.modules.get(type(self).__module__)
        ours = module is None or module.__name__ == __name__
        self._rp_namespace: dict[str, Any] = {'__name__': 'worker'} if ours else vars(module)
        for known in (os, sys, time):   # code of RADICAL-Pilot's applications finds them
            self._rp_namespace.setdefault(known.__name__, known)

    def start(self) -> None:
        """Connect to the manager; `join` runs the calls.

        Raises:
            RuntimeError: If the worker was started already.
        """
        if self._rp_service is not None:
            raise RuntimeError(f'{self.uid or "the worker"} was started already')
        if RUN_VARIABLE in os.environ:
            from rp_raptor.rank.rank import connect

            self._rp_service = rank = connect()
            rank.serve(self._rp_handler()._rp_connected(rank))
        else:
            self._rp_service = _Script(self._raptor_id, type(self).uses_mpi)

    def join(self) -> None:
        """Run calls until the worker ends.

        Raises:
            RuntimeError: If the worker was not started.
            SystemExit: If this process was the manager, and the worker has failed.
        """
        if self._rp_service is None:
            raise RuntimeError('join() of a worker that was not started')
        try:
            self._rp_service.join()
        finally:
            self._rp_host.close()

    def stop(self) -> None:
        """End after the running call."""
        if self._rp_service is not None:
            self._rp_service.stop()

    def register_mode(self, name: str, dispatcher: Dispatcher) -> None:
        """Add a mode of tasks.

        Args:
            name: The mode, as in `TaskDescription.mode`.
            dispatcher: Runs a task of the mode and returns its outcome; see `Worker`.

        Raises:
            ValueError: If the mode exists already, or the dispatcher is not callable.
        """
        if name in self._rp_host.modes:
            raise ValueError(f'mode {name!r} is registered already')
        if not callable(dispatcher):
            raise ValueError(f'the dispatcher for mode {name!r} cannot be called: {dispatcher!r}')
        self._rp_host.modes[name] = dispatcher

    def get_dispatcher(self, name: str) -> Dispatcher:
        """Return the dispatcher of a mode.

        Args:
            name: The mode, as in `TaskDescription.mode`.

        Raises:
            ValueError: If the worker has no such mode.
        """
        dispatcher = self._rp_host.modes.get(name)
        if dispatcher is None:
            raise ValueError(f'mode {name!r} is unknown to this worker, which has {", ".join(self._rp_host.modes)}')
        return dispatcher

    def get_master(self) -> Any:
        """Return the master's handle; its `run_task(description)` runs a task and returns it as a dict when done."""
        return self._rp_service

    def hello(self, msg: Any, sleep: float = 0) -> str:
        """Print and return a greeting, to try out a worker.

        Args:
            msg: Any text.
            sleep: Seconds before the greeting.
        """
        import time

        time.sleep(sleep)
        print(f'hello {msg}')
        return f'hello {msg} @ {self.uid}.{self._rank}'

    def _dispatch_func(self, task: Task) -> Any:
        """Run a function: one of the worker's module, a method of the worker, or a PythonTask."""
        description = task['description']
        name = description['function']
        packed = isinstance(name, bytes)
        found = modes.packed_call(name, description['args']) if packed else modes.python_task(name)
        if found is None:
            return self._rp_call(self._rp_function(name), description)
        func, args, kwargs = found
        if self._rp_host.comm is not None:
            placed = definitions.insert(self._rp_host.comm, args, dict(kwargs))
            if placed is None:
                raise RuntimeError('a PythonTask for several ranks needs a place for the communicator: comm=None, '
                                   'or None as first argument')
            args, kwargs = placed
        return captured(func, args, kwargs)

    def _dispatch_meth(self, task: Task) -> Any:
        """Run a method of the worker."""
        description = task['description']
        method = find_method(self, description['method'] or description['function'])
        return self._rp_call(method, description)

    def _dispatch_eval(self, task: Task) -> Any:
        """Evaluate an expression in the namespace of the worker's module."""
        return captured(lambda: eval(modes.expression(task['description']['code']), self._rp_names()), (), {})

    def _dispatch_exec(self, task: Task) -> Any:
        """Execute statements, which may return a value, in the namespace of the worker's module."""
        description = task['description']

        def execute() -> Any:
            names = self._rp_names()
            exec(modes.statements(description['code'], tuple(description['pre_exec'])), names)
            return names.pop('_task')()
        return captured(execute, (), {})

    def _dispatch_proc(self, task: Task) -> Any:
        """Run a program."""
        from rp_raptor.rank.programs import run_program

        description = task['description']
        return run_program(description['executable'], description['arguments'],
                           description['stdout'], description['stderr'], shared=description['ranks'] > 1,
                           literal=description['literal_arguments'])

    def _dispatch_shell(self, task: Task) -> Any:
        """Run a shell command."""
        from rp_raptor.rank.programs import run_command

        description = task['description']
        return run_command(description['command'], description['stdout'], description['stderr'],
                           shared=description['ranks'] > 1)

    @cached_property
    def _prof(self) -> Profile:
        return self._rp_host.profile   # classes of users may have a `_prof` of their own

    def _rp_handler(self) -> Worker:
        """Return the object that runs the calls of this rank."""
        return self

    def _rp_connected(self, rank: Rank) -> Host:
        """Take the rank, and return what it needs of this object."""
        self._rank, self._ranks, self._rp_service = rank.rank, rank.ranks, rank
        return self._rp_host

    def _rp_call(self, func: Callable[..., Any], description: Mapping[str, Any]) -> Any:
        args: Sequence[Any] = description['args'] or ()
        if self._rp_host.comm is not None:
            args = [self._rp_host.comm, *args]
        return captured(func, args, description['kwargs'] or {})

    def _rp_function(self, name: str) -> Callable[..., Any]:
        candidates: tuple[Any, ...] = self._rp_namespace.get(name), getattr(self, name, None)
        for func in candidates:
            if callable(func):
                return func  # type: ignore[no-any-return]
        raise ValueError(f'there is no function {name!r}: neither the module of {type(self).__name__} nor the class '
                         f'has it, and it is not a PythonTask')

    def _rp_names(self) -> dict[str, Any]:
        return self._rp_namespace if self._rp_host.comm is None else {**self._rp_namespace, 'comm': self._rp_host.comm}


_READERS = frozenset(value for name, value in vars(Worker).items() if name.startswith('_dispatch_'))
"""The dispatchers above, which do not change the task and pass it on to no one."""


class _Script:
    """The manager of a worker, in the process that runs the worker's script; the ranks run the same script."""

    def __init__(self, master: str, mpi: bool) -> None:
        self._master = master
        self._mpi = mpi
        self._stopped = False

    def join(self) -> None:
        """Run the worker until it ends; SystemExit if it has failed."""
        from rp_raptor.worker.manager import run_script

        code = 0 if self._stopped else run_script(self._master, self._mpi)
        if code:
            raise SystemExit(code)

    def stop(self) -> None:
        """Do not run the worker."""
        self._stopped = True


class DefaultWorker(Worker):
    """A worker with independent ranks: it needs no MPI.

    Args:
        raptor_id: The uid of the master.
    """

    def __init__(self, raptor_id: str | None = None) -> None:
        super().__init__(raptor_id=raptor_id)


class MPIWorker(Worker):
    """A worker whose ranks are an MPI job, so that several of them can run a function together.

    Args:
        raptor_id: The uid of the master.
    """

    uses_mpi = True

    def __init__(self, raptor_id: str | None = None) -> None:
        super().__init__(raptor_id=raptor_id)

    def get_rank_worker(self) -> type[Worker]:
        """Return the class of the object that runs the calls of a rank."""
        return MPIWorkerRank

    def hello_mpi(self, comm: Any, msg: Any, sleep: float = 0) -> str:
        """Print and return a greeting of each rank of a call, to try out a worker.

        Args:
            comm: The communicator of the call.
            msg: Any text.
            sleep: Seconds before the greeting.
        """
        import time

        time.sleep(sleep)
        print(f'hello {comm.rank}/{comm.size}: {msg}')
        return f'hello {comm.rank}/{comm.size}: {msg}'

    def _rp_handler(self) -> Worker:
        kind = self.get_rank_worker()
        if kind is MPIWorkerRank:
            return self
        handler = kind(raptor_id=self._raptor_id)
        handler._rp_host.adopt(self._rp_host)
        return handler


class MPIWorkerRank(MPIWorker):
    """The base of classes that `MPIWorker.get_rank_worker` returns to run calls in place of the worker's own class."""

    def __init__(self, *args: Any, raptor_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(raptor_id)

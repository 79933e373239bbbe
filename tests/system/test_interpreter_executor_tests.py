"""`rp.Executor` passes the executor tests of the interpreter's own `test` package, which Debian and pyenv leave out.

These of its tests do not apply:

- `test_max_workers_negative`: the size of a pilot is called `cores`, which has a test of its own here.
- `test_interpreter_shutdown`, `test_submit_after_interpreter_shutdown`, `test_hang_gh83386`: they start programs that
  import the class from `concurrent.futures`; `test_pilot_executor.py` has programs of that kind.
- `test_cancel_futures`: it needs a call that has started when all of them have just been made, which the queue of a
  pool counts as started; `test_the_end_of_pending_work` of `test_pilot_executor.py` waits for one.
- `test_thread*`, `test_process*`, `test_del_shutdown`, `test_shutdown_no_wait`, `test_context_manager_shutdown`,
  `test_killed_child`, `test_saturation`, `test_idle_*`, `test_max_tasks_*`, `test_python_finalization_error`: they look
  at the threads or processes of pools, or set options that only these have.
- `test_traceback`: the cause of an exception is our own class; `test_pilot_executor.py` looks at its text.
- `test_ressources_gced_in_workers`: its objects connect to a process that has a secret of `multiprocessing`.
- `test_deadlock.py`: it breaks pickles and queues of process pools.
"""

from __future__ import annotations

import contextlib
import os
import unittest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import radical.pilot as rp

REQUIRED = 'TEST_INTERPRETER_TESTS' in os.environ
"""Set where an interpreter has these tests and nothing else may happen than that they run."""


def of_interpreter(module: str, name: str) -> Any:
    """A class of tests; the whole `test_concurrent_futures` is one module before Python 3.12."""
    for place in (f'test.test_concurrent_futures.{module}', 'test.test_concurrent_futures'):
        try:
            return getattr(import_module(place), name)
        except ImportError:
            continue
    if REQUIRED:
        raise ImportError('this interpreter has no test.test_concurrent_futures')
    pytest.skip('this interpreter has no test.test_concurrent_futures', allow_module_level=True)


class OnAPilot(of_interpreter('util', 'ExecutorMixin'), unittest.TestCase):   # type: ignore[misc]
    """Gives each test an executor on a pilot of its own."""

    executor: rp.Executor

    @staticmethod
    def executor_type(max_workers: int, **kwargs: Any) -> rp.Executor:
        return rp.Executor(cores=max_workers, **kwargs)

    @pytest.fixture(autouse=True)
    def _directory(self, base: Path) -> None:
        """Have sessions below a directory of the test."""


class Started(OnAPilot):
    """With workers that run: the tests give calls a few seconds, in which pools of Python start."""

    def setUp(self) -> None:
        super().setUp()
        self.executor.submit(int).result()


class TestExecutor(of_interpreter('executor', 'ExecutorTest'), Started):   # type: ignore[misc]
    test_map_chunksize = of_interpreter('test_process_pool', 'ProcessPoolExecutorTest').test_map_chunksize

    def test_max_workers_negative(self) -> None:
        for number in (0, -1):
            with pytest.raises(ValueError, match=f'cores is {number}, it must be a whole number of at least 1'):
                rp.Executor(cores=number)


class TestWait(of_interpreter('test_wait', 'WaitTests'), Started):   # type: ignore[misc]
    pass


class TestAsCompleted(of_interpreter('test_as_completed', 'AsCompletedTests'), Started):   # type: ignore[misc]
    pass


class TestShutdown(of_interpreter('test_shutdown', 'ExecutorShutdownTest'), Started):   # type: ignore[misc]
    test_interpreter_shutdown = test_submit_after_interpreter_shutdown = test_hang_gh83386 = None
    test_cancel_futures = None


class TestInitializer(of_interpreter('test_init', 'InitializerMixin'), OnAPilot):   # type: ignore[misc]
    worker_count = 2


class TestFailingInitializer(of_interpreter('test_init', 'FailingInitializerMixin'), OnAPilot):   # type: ignore[misc]
    worker_count = 2

    def setUp(self) -> None:
        self.mp_context = self.log_queue = None
        self.executor_kwargs = {'initializer': of_interpreter('test_init', 'init_fail')}
        OnAPilot.setUp(self)

    @contextlib.contextmanager
    def _assert_logged(self, message: str) -> Iterator[None]:
        """The error is part of the exception that breaks the executor, and not logged."""
        yield
        with pytest.raises(rp.BrokenPilotExecutor, match=message):
            self.executor.submit(int)

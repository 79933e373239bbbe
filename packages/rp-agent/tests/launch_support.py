"""What the fault tests of the launch loop share: an executor that must leave nothing, tasks that wait for a sign,
processes that have nothing to do with them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from children import nothing_stays
from executor_support import Harness, sh
from leftovers import must_end

from rp_agent.task import AgentTask
from rp_api.system import processes
from rp_api.system.processes import read_process

LAST_PID = Path('/proc/sys/kernel/ns_last_pid')
"""The number before the one that the next process gets, if that is free; to be changed in a namespace of one's own."""


@contextmanager
def an_executor(path: Path, **arguments: Any) -> Iterator[Harness]:
    """An executor; at the end it has left no descriptor open and no child behind."""
    with nothing_stays():
        harness = Harness(path, **arguments)
        try:
            yield harness
            harness.executor.check()
        finally:
            end_tasks(path)
            harness.executor.close()
            harness.loop.close()


def end_tasks(*paths: Path) -> None:
    """End what an executor with one of these paths has left running when a test failed."""
    processes.sweep({'RP_RESOURCE_SANDBOX': {str(path) for path in paths}}, signal.SIGKILL)


class Gate:
    """A FIFO at which tasks wait; each that is let through takes one line."""

    def __init__(self, path: Path) -> None:
        self.path = path / 'gate'
        os.mkfifo(self.path)
        # open for both, so that neither side waits for the other one to come
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def let(self, count: int = 1) -> None:
        """Let so many tasks through, those that come later included."""
        os.write(self.descriptor, b'\n' * count)

    def task(self, before: str = ':', after: str = ':') -> dict[str, Any]:
        """The attributes of a task that waits at the gate, between two commands of a shell."""
        return sh(f'{before}; read x <{self.path}; {after}')

    def close(self) -> None:
        os.close(self.descriptor)


class Bystanders:
    """Processes that have nothing to do with the tasks, and get numbers that those had."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def add(self, number: int = 0) -> int:
        """Start one, if possible with that number; gives the one that it has."""
        if number:
            LAST_PID.write_text(str(number - 1))
        self._processes.append(subprocess.Popen(['sleep', '1000'], env={}, start_new_session=True))
        return self._processes[-1].pid

    def run(self) -> bool:
        """Whether they all still run."""
        return all(process.poll() is None for process in self._processes)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def take(self, pid: int) -> bool:
        """Whether nobody has the number any more, and it is a bystander's now."""
        if read_process(pid) is not None:
            return False
        # others make processes, too
        assert any(self.add(pid) == pid for _ in range(50)), 'the number could not be had'
        return True


def states_of(tasks: list[AgentTask]) -> set[str | None]:
    return {task.target_state for task in tasks}


def numbers(path: Path) -> list[int]:
    """The process numbers that tasks have written to a file, one a line."""
    return [int(line) for line in path.read_text().split()]


def lines(path: Path) -> int:
    """How many lines tasks have written to a file."""
    return path.read_text().count('\n') if path.exists() else 0


def is_gone(pid: int) -> bool:
    process = read_process(pid)
    return process is None or not process.alive


def none_left(harness: Harness) -> None:
    """Fail unless all processes end that were started for tasks of this executor; in any case none is left."""
    must_end(processes.sweep({'RP_SESSION_ID': harness.context.session_id}, 0))


def reap_orphans() -> None:
    """Take note of the ends of children that the executor has not started; others may have some that go on."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def compiled(path: Path, name: str) -> Path:
    """A library to be preloaded, made of the source of that name."""
    library = path / f'{name}.so'
    source = Path(__file__).with_name(f'{name}.c')
    subprocess.run(['cc', '-O1', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', '-o', library, source, '-ldl'],
                   check=True)
    return library

"""What the tests of executors share: a pilot's context, tasks, and an executor on a loop of its own."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from children import nothing_stays

from rp_agent.executor import shell as shell_loop
from rp_agent.executor.base import BaseExecutor
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.executor.popen.component import Executor
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop
from rp_api.system.processes import pidfd_open
from rp_profiling.levels import OFF
from rp_profiling.write.detail import Detail
from rp_profiling.write.tracer import Tracer

SHELLS = [path for path in ('/bin/dash', '/bin/bash') if os.access(path, os.X_OK)]
"""Programs that may be /bin/sh."""

Make = Callable[..., BaseExecutor]
NO_TRACE = Detail(OFF)
BASE_ENV = {'PATH': '/usr/bin:/bin', 'HOME': '/nowhere', 'LANG': 'C', 'RP_TASK_ID': 'outer', 'PWD': '/outer'}


def a_context(base: Path | str = '/base', *, detail: Detail = NO_TRACE, prof: str = '', **base_env: str,
              ) -> PilotContext:
    """A pilot whose sandboxes are below `base`; uids are unique to it, so that a sweep finds nothing else."""
    return PilotContext(
        session_id=f'session.{os.getpid()}.{abs(hash(str(base)))}', pilot_id='pilot.0000', resource='local.exact',
        resource_sandbox=f'{base}', session_sandbox=f'{base}/session', pilot_sandbox=f'{base}/session/pilot.0000',
        registry_address='tcp://127.0.0.1:1', control_pub_address='tcp://127.0.0.1:2',
        control_sub_address='tcp://127.0.0.1:3', gtod=f'{base}/gtod', prof=prof, ctrl='/ctrl', detail=detail,
        base_env={**BASE_ENV, **base_env})


def a_slot(*gpus: int) -> dict[str, Any]:
    return {'node_index': 0, 'node_name': 'localhost', 'cores': [{'index': 0, 'occupation': 1.0}],
            'gpus': [{'index': gpu, 'occupation': 1.0} for gpu in gpus], 'lfs': 0, 'mem': 0, 'version': 1}


def a_task(sandbox: Path | str = '/sandbox', uid: str = 'task.000000', **description: Any) -> AgentTask:
    """A task that is ready to be executed."""
    description = {'executable': '/bin/true', **description}
    task = AgentTask(uid, description, 'pilot.0000', str(sandbox))
    task.state = states.AGENT_EXECUTING_PENDING
    task.slots = [a_slot() for _ in range(description.get('ranks', 1))]
    return task


def sh(command: str) -> dict[str, Any]:
    """The attributes of a task that runs a shell command."""
    return {'executable': '/bin/sh', 'arguments': ['-c', command]}


class Harness:
    """An executor, its loop, and what came out of it; a deadline makes a test fail that would wait for ever."""

    def __init__(self, path: Path, make: Make = Executor, *, grace: float | None = None, profile: Path | None = None,
                 changes: Mapping[str, Any] | None = None, launchers: Callable[[Loop], Launchers] | None = None,
                 **context: Any) -> None:
        self.path = path
        self.loop = Loop()
        self.profile = profile
        self.tracer = Tracer(profile, 'agent_executing.0000')
        self.context = a_context(path, **context)._replace(
            launchers=launchers(self.loop) if launchers else None, **(changes or {}))
        Path(self.context.pilot_sandbox).mkdir(parents=True, exist_ok=True)
        if grace is not None:
            make = partial(make, grace=grace)
        self.executor: Any = make('agent_executing.0000', self.tracer, self.loop, self.context)
        self.executor.output = self._take
        self.executor.advanced = lambda tasks, state: self.states.append((state, [task.uid for task in tasks]))
        self.bulks: list[list[AgentTask]] = []
        self.states: list[tuple[str, list[str]]] = []
        self.wanted = 0
        self.patience = 45.0
        self.on_output: Callable[[list[AgentTask]], object] = lambda tasks: None

    def task(self, uid: str = 'task.000000', **description: Any) -> AgentTask:
        return a_task(self.path / uid, uid, **description)

    def run(self, *tasks: AgentTask) -> None:
        """Put the tasks and wait until they are out."""
        self.wanted = len(self.out) + len(tasks)
        self.executor.put(list(tasks))
        self.wait()

    def run_one(self, **description: Any) -> AgentTask:
        task = self.task(**description)
        self.run(task)
        return task

    def wait(self) -> None:
        self.executor.check()
        timer = self.loop.call_later(self.patience, self._too_late)
        self.loop.run()
        timer.cancel()
        self.executor.check()

    @property
    def out(self) -> list[AgentTask]:
        return [task for bulk in self.bulks for task in bulk]

    def when(self, condition: Callable[[], object], action: Callable[[], object]) -> None:
        """Call `action` in the loop once the condition is true."""
        if condition():
            action()
        else:
            self.loop.call_later(0.005, self.when, condition, action)

    def when_file(self, path: Path, action: Callable[[], object]) -> None:
        """Call `action` in the loop once the file is there and has a line."""
        self.when(lambda: said(path), action)

    def stop(self) -> None:
        """End all tasks, and the instances that the executor keeps."""
        self.wanted = len(self.out) + 1000
        stopped: list[bool] = []
        self.executor.stop(lambda: stopped.append(True), 'the end')
        self.when(lambda: stopped, self.loop.stop)
        self.wait()

    def events(self) -> list[str]:
        """The events of tasks that the executor has recorded, in order."""
        self.tracer.flush()
        assert self.profile is not None
        rows = [line.split(',') for line in self.profile.read_text().splitlines() if ',task.' in line]
        return [row[1] for row in rows if row[1] != 'advance']

    def close(self) -> None:
        self.executor.check()
        self.executor.close()
        self.loop.close()

    def _take(self, tasks: list[AgentTask]) -> None:
        self.executor.check()
        self.bulks.append(tasks)
        self.on_output(tasks)
        if len(self.out) >= self.wanted:
            self.loop.stop()

    def _too_late(self) -> None:
        raise AssertionError(f'only {len(self.out)} of {self.wanted} tasks came out within {self.patience:g} s')


def text(task: AgentTask, name: str) -> str:
    return (Path(task.sandbox) / name).read_text()


def said(path: Path) -> bool:
    """Whether a program has written a line there."""
    return path.exists() and path.read_text().endswith('\n')


def use_as_sh(program: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the executor SHELL take this program for /bin/sh, by a link in a directory."""
    link = directory / 'sh'
    link.symlink_to(program)
    monkeypatch.setattr(shell_loop, 'SHELL', str(link))


@contextmanager
def harnesses(path: Path, kind: Make) -> Iterator[Callable[..., Harness]]:
    """Return a function that makes harnesses; at the end, nothing of them may be left."""
    made: list[Harness] = []

    def make(**arguments: Any) -> Harness:
        made.append(Harness(path, kind, **arguments))
        return made[-1]

    with nothing_stays():
        yield make
        for each in made:
            each.close()
    for name in filter(str.isdigit, os.listdir('/proc')):
        if of_task(int(name), path):
            wait_for_end(int(name))


def of_task(pid: int, path: Path) -> bool:
    """Whether the process runs in the directory of the test, which its tasks do."""
    try:
        return os.readlink(f'/proc/{pid}/cwd').startswith(f'{path}/')
    except OSError:
        return False


def wait_for_end(pid: int) -> None:
    """A process that was sent SIGKILL ends when it is scheduled next."""
    pidfd = pidfd_open(pid)
    if pidfd is not None:
        assert select.select([pidfd], [], [], 30)[0], f'process {pid} still runs'
        os.close(pidfd)


DAEMON = '''
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open('pids', 'a') as stream:
            stream.write(f'{os.getpid()}\\n')
        with open('ready', 'w') as stream:
            stream.write('yes\\n')
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
'''


def a_family(harness: Harness) -> AgentTask:
    """A task with a child, a grandchild and a daemon; `pids` in its sandbox names them, `ready` tells when."""
    program = harness.path / 'daemon.py'
    program.write_text(DAEMON)
    return harness.task(executable='/bin/sh', arguments=[
        '-c', rf'sleep 1000 & echo \$! >>pids; (sleep 1000 & echo \$! >>pids); {sys.executable} {program}; true'])

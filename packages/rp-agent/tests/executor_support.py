"""What the tests of the executor share: a pilot's context, tasks, and an executor on a loop of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.executor.popen.component import Executor
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop
from rp_profiling.levels import OFF
from rp_profiling.write.detail import Detail
from rp_profiling.write.tracer import Tracer

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

    def __init__(self, tmp_path: Path, *, grace: float = 5.0, profile: Path | None = None,
                 changes: Mapping[str, Any] | None = None, launchers: Callable[[Loop], Launchers] | None = None,
                 **context: Any) -> None:
        self.path = tmp_path
        self.loop = Loop()
        self.context = a_context(tmp_path, **context)._replace(
            launchers=launchers(self.loop) if launchers else None, **(changes or {}))
        self.tracer = Tracer(profile, 'agent_executing.0000')
        self.executor = Executor('agent_executing.0000', self.tracer, self.loop, self.context, grace)
        self.executor.output = self._take
        self.executor.advanced = lambda tasks, state: self.states.append((state, [task.uid for task in tasks]))
        self.bulks: list[list[AgentTask]] = []
        self.states: list[tuple[str, list[str]]] = []
        self.wanted = 0
        self.on_output: Callable[[list[AgentTask]], object] = lambda tasks: None

    def task(self, uid: str = 'task.000000', **description: Any) -> AgentTask:
        return a_task(self.path / uid, uid, **description)

    def run(self, *tasks: AgentTask) -> None:
        """Put the tasks and wait until they are out."""
        self.wanted = len(self.out) + len(tasks)
        self.executor.put(list(tasks))
        self.wait()

    def wait(self) -> None:
        self.executor.check()
        timer = self.loop.call_later(45, self._too_late)
        self.loop.run()
        timer.cancel()
        self.executor.check()

    def run_one(self, **description: Any) -> AgentTask:
        task = self.task(**description)
        self.run(task)
        return task

    @property
    def out(self) -> list[AgentTask]:
        return [task for bulk in self.bulks for task in bulk]

    def when_file(self, path: Path, action: Callable[[], object]) -> None:
        """Call `action` in the loop once the file is there and has a line."""
        if path.exists() and path.read_text().endswith('\n'):
            action()
        else:
            self.loop.call_later(0.005, self.when_file, path, action)

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
        raise AssertionError(f'only {len(self.out)} of {self.wanted} tasks came out within 45 s')

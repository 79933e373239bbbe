"""A pipeline on a loop, without a hub, for the tests of the agent's components together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rp_agent.components import layout
from rp_agent.components.build import belongs
from rp_agent.components.stage import Owner
from rp_agent.pipeline.pipeline import Pipeline
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Helpers
from rp_api.system import processes

TIMEOUT = 30.0
ALL = [states.AGENT_STAGING_INPUT, states.AGENT_SCHEDULING_PENDING, states.AGENT_SCHEDULING,
       states.AGENT_EXECUTING_PENDING, states.AGENT_EXECUTING, states.AGENT_STAGING_OUTPUT_PENDING,
       states.AGENT_STAGING_OUTPUT, states.TMGR_STAGING_OUTPUT_PENDING]


class Agent:
    """A pipeline on a loop, and what came out of it. The loop can run once."""

    def __init__(self, base: Path, settings: dict[str, Any] | None = None, *, cores: int = 2, nodes: int = 1,
                 profile: bool = False, **platform: Any) -> None:
        self.base = base
        self.loop = Loop()
        self.helpers = Helpers(self.loop)
        self.out: list[AgentTask] = []
        self.states: dict[str, list[str]] = {}
        self.parts: list[tuple[str, str]] = []
        """Traced events of the bridge, of components in other processes, and of sub-agents."""
        self.on_sub_agent_stop: Callable[[str], object] = lambda name: None
        self.on_left: Callable[[], object] = lambda: None
        self.on_state: Callable[[AgentTask, str], object] = lambda task, state: None
        self.wanted = 0
        self.stopping = False
        self.stopped = False
        self.broken: list[str] = []
        self.until_broken = False
        """Whether to run until a component is gone, too."""
        config = {'session': f'session.{os.getpid()}.{base}', 'pilot': 'pilot.0000', 'resource': 'local.exact',
                  'client_sandbox': str(base), 'resource_sandbox': str(base), 'session_sandbox': str(base),
                  'pilot_sandbox': str(base), 'agent_uid': 'agent_0',
                  'registry_address': 'ipc:///nowhere', 'coordination': {'secret': 'not for everybody'},
                  'cpus': (), 'gpu_ids': (), 'profile': profile, 'agent': settings or {},
                  'platform': {'agent_spawner': 'POPEN', 'agent_config': 'default', **platform}}
        self.config = config
        whole = Allocation(('localhost',) * nodes, cores, 0, 0, 0)
        allocation = whole.reserve(layout.reserved_nodes(settings or {}, nodes))
        self.pipeline = Pipeline(config, self.loop, allocation, self.helpers.run, Told(self))

    def task(self, uid: str = 'task.000000', **description: Any) -> AgentTask:
        description = {'executable': '/bin/true', 'uid': uid} | description
        return AgentTask(uid, description, 'pilot.0000', str(self.base / uid))

    def run(self, *tasks: AgentTask) -> list[AgentTask]:
        """The tasks, in the order in which they came out."""
        self.wanted = len(self.out) + len(tasks)
        self.pipeline.put(list(tasks))
        self.wait()
        return self.out

    def wait(self) -> None:
        late = self.loop.call_later(TIMEOUT, pytest.fail, f'only {len(self.out)} of {self.wanted} tasks came out')
        self.loop.run()
        late.cancel()

    def stop(self) -> None:
        """End all tasks; the loop then runs until the pipeline says that it has stopped."""
        def stopped() -> None:
            self.stopped = True
            self._check_end()

        self.stopping = True
        self.pipeline.stop('pilot.0000 ends', stopped)

    def close(self) -> None:
        self.helpers.close(TIMEOUT)
        self.pipeline.close()
        self.loop.close()
        for pid in processes.sweep(belongs(self.config), signal.SIGKILL):   # a master is not a task that comes out
            with suppress(ChildProcessError):   # of a sub-agent, or reaped
                os.waitpid(pid, 0)

    def _trace_part(self, event: str, name: str) -> None:
        self.parts.append((event, name))
        if event == 'sub_agent_stop':
            self.on_sub_agent_stop(name)

    def _broken(self, reason: str) -> None:
        self.broken.append(reason)
        if self.until_broken:
            self.pipeline.stop(f'pilot.0000 {reason}', lambda: None)
        self._check_end()

    def _left(self, tasks: Sequence[AgentTask]) -> None:
        self.on_left()
        self.out += tasks
        self._check_end()

    def _check_end(self) -> None:
        waits = self.until_broken > bool(self.broken) or self.stopping > self.stopped
        if len(self.out) >= self.wanted and not waits:
            self.loop.call_soon(self.loop.stop)

    def _advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        for task in tasks:
            self.states.setdefault(task.uid, []).append(state)
            self.on_state(task, state)


class Told(Owner):
    """What the pipeline tells an agent of a test."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def left(self, tasks: Sequence[AgentTask]) -> None:
        self._agent._left(tasks)

    def broken(self, reason: str) -> None:
        self._agent._broken(reason)

    def advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        self._agent._advanced(tasks, state)

    def trace_part(self, event: str, name: str) -> None:
        self._agent._trace_part(event, name)


LAYOUTS: dict[str, dict[str, Any]] = {
    'inline': {},
    'two executors': {'number_of_workers': {'ExecWorker': 2}},
    'executor in its own process': {'components': {'agent_executing': {'target': 'process'}}},
    'executors in two sub-agents': {'agents': {'agent_1': {'components': {'agent_executing': {}}},
                                               'agent_2': {'components': {'agent_executing': {}}}}},
    'stagers in their own processes': {'components': {'agent_staging_input': {'target': 'process'},
                                                      'agent_staging_output': {'target': 'process'}}},
    'everything in one sub-agent': {'agents': {'agent_1': {'target': 'local', 'components': {
        'agent_staging_input': {}, 'agent_executing': {'count': 2}, 'agent_staging_output': {}}}}},
}

ON_RESERVED: dict[str, Any] = {'components': {}, 'agents': {
    'agent_1': {'target': 'node', 'components': {'agent_staging_input': {'count': 2}, 'agent_staging_output': {}}},
    'agent_2': {'target': 'node', 'components': {'agent_executing': {}}}}}

SLEEP: dict[str, Any] = {'executable': '/bin/sleep', 'arguments': ['100']}


def sub_agent_pid(base: Path, name: str, parent: int | None = None) -> int:
    """The process number of a sub-agent, which is known by where its messages go; a child of this process."""
    parent = parent or os.getpid()
    for pid in Path(f'/proc/{parent}/task/{parent}/children').read_text().split():
        with suppress(OSError):
            if os.readlink(f'/proc/{pid}/fd/2') == str(base / f'{name}.err'):
                return int(pid)
    raise AssertionError(f'there is no sub-agent {name}')


def processes_of(text: str) -> dict[int, str]:
    """The command lines of all other processes that have a text in their environment, directory or command line."""
    found = {}
    for path in Path('/proc').iterdir():
        with suppress(OSError):   # it has ended, or is not ours
            if not path.name.isdigit() or int(path.name) == os.getpid():
                continue
            line = (path / 'cmdline').read_bytes()
            if text.encode() in line + (path / 'environ').read_bytes() or text in os.readlink(path / 'cwd'):
                found[int(path.name)] = line.replace(b'\0', b' ').decode()
    return found


def nothing_left(text: str, patience: float = 10.0) -> None:
    """Fail if processes that have to do with `text` do not end."""
    deadline = time.monotonic() + patience
    while (left := processes_of(text)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == {}

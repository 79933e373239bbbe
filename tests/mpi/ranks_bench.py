"""An executor with real launch methods on nodes that a test chooses, without a pilot around it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rp_agent.executor.launching.environment import NodePorts, PilotContext
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.executor.popen.component import Executor
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Helpers
from rp_profiling.levels import OFF
from rp_profiling.write.detail import Detail
from rp_profiling.write.tracer import Tracer

TIMEOUT = 50.0


class Seen(NamedTuple):
    """What a rank has seen."""

    rank: int
    size: int
    sum: int
    node: str
    cpus: tuple[int, ...]
    told: tuple[int, int]


class Bench(NodePorts):
    """Runs tasks on nodes that are called `nodes`; `environ` is that of the user."""

    def __init__(self, path: Path, method: str, options: Mapping[str, Any], nodes: Sequence[str],
                 environ: Mapping[str, str], cpus: tuple[int, ...], gpu_ids: tuple[str, ...],
                 unlike: tuple[int, ...]) -> None:
        self.path = path
        self.loop = Loop()
        self._nodes = list(nodes)
        self._helpers = Helpers(self.loop)
        platform = {'launch_methods': {'order': [method], method: options}}
        setting = {'nodes': list(nodes), 'cores_per_node': 8, 'unlike': unlike}
        here = None if len(nodes) == 1 else [0]
        launchers = Launchers(platform, setting, environ, str(path), self._helpers.run, here)
        self.swept: list[tuple[str, tuple[int, ...]]] = []
        self.shares_processes = False
        """True if the other nodes are this host, too."""
        self.context = PilotContext(
            session_id=f'mpi.{path}', pilot_id='pilot.0000', resource='test.mpi', resource_sandbox=str(path),
            session_sandbox=str(path), pilot_sandbox=str(path), registry_address='none', control_pub_address='none',
            control_sub_address='none', gtod='', prof='', detail=Detail(OFF), base_env=dict(environ), cpus=cpus,
            gpu_ids=gpu_ids, launchers=launchers, ports=self)
        self.executor = Executor('executor', Tracer(None, 'executor'), self.loop, self.context, grace=3.0)
        self.executor.output = self._out
        self.executor.advanced = lambda tasks, state: None
        self._left = 0

    def task(self, uid: str, where: Sequence[tuple[str, int]], **description: Any) -> AgentTask:
        """A task whose ranks belong to these nodes, each on one core of that index."""
        task = AgentTask(uid, {'ranks': len(where), **description}, 'pilot.0000', str(self.path / uid))
        task.state = states.AGENT_EXECUTING_PENDING
        task.slots = [{'node_name': node, 'node_index': self._nodes.index(node), 'lfs': 0, 'mem': 0, 'version': 1,
                       'cores': [{'index': core, 'occupation': 1.0}], 'gpus': []} for node, core in where]
        return task

    def sweep_elsewhere(self, uid: str, positions: Sequence[int]) -> None:
        """Note the request, and do it for nodes that are this host."""
        self.swept.append((uid, tuple(positions)))
        if self.shares_processes:
            self.executor.sweep([uid])

    def run(self, *tasks: AgentTask) -> None:
        """Run the tasks, and wait for their end."""
        self._left = len(tasks)
        self.executor.put(list(tasks))
        self.loop.call_later(TIMEOUT, self._too_late)
        self.loop.run()

    def when(self, condition: Callable[[], bool], action: Callable[[], object]) -> None:
        """Call the action in the loop when the condition holds."""
        if condition():
            action()
        else:
            self.loop.call_later(0.02, self.when, condition, action)

    def close(self) -> None:
        """Free everything."""
        self.executor.close()
        self._helpers.close(10)
        self.loop.close()

    def _out(self, tasks: list[AgentTask]) -> None:
        self._left -= len(tasks)
        if not self._left:
            self.loop.stop()

    def _too_late(self) -> None:
        raise AssertionError(f'{self._left} task(s) did not end within {TIMEOUT} s')


@contextmanager
def bench(path: Path, method: str, nodes: Sequence[str] = ('localhost',), environ: Mapping[str, str] | None = None,
          cpus: tuple[int, ...] = (), gpu_ids: tuple[str, ...] = (), unlike: tuple[int, ...] = (),
          **options: Any) -> Iterator[Bench]:
    """A bench whose only launch method is that one; CPUs and GPUs are those of the first node."""
    made = Bench(path, method, options, nodes, os.environ if environ is None else environ, cpus, gpu_ids, unlike)
    try:
        yield made
    finally:
        made.close()


def seen(task: AgentTask) -> list[Seen]:
    """What the ranks of a task have written, in their order."""
    return read_seen(Path(task.sandbox), task.description['ranks'])


def read_seen(sandbox: Path, ranks: int) -> list[Seen]:
    """What so many ranks have written in that directory."""
    found = []
    for rank in range(ranks):
        words = (sandbox / f'rank.{rank}').read_text().split()
        found.append(Seen(int(words[0]), int(words[1]), int(words[2]), words[3],
                          tuple(map(int, words[4].split(','))), (int(words[5]), int(words[6]))))
    return found


def check(task: AgentTask, nodes: Sequence[str] | None = None) -> list[Seen]:
    """Fail unless the ranks are one MPI program, each where it belongs and told who it is; what they have seen."""
    output = Path(task.sandbox) / f'{task.uid}.err'
    assert task.target_state == states.DONE, (task.exception_detail, output.read_text() if output.exists() else '')
    found = seen(task)
    count = len(found)
    for number, each in enumerate(found):
        assert (each.rank, each.size, each.sum) == (number, count, count * (count - 1) // 2)
        assert each.told == (number, count)
    if nodes is not None:
        assert [each.node for each in found] == list(nodes)
    return found

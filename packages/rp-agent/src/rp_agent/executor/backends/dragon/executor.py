"""The executor DRAGON: ranks of tasks are processes of a Dragon runtime, on the nodes that the scheduler chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rp_agent.executor.backends.dragon.instance import Dragon, Link, LinkRunner
from rp_agent.executor.backends.jobs import Job, JobExecutor
from rp_agent.executor.backends.launcher import InstanceLauncher, nodes_of
from rp_agent.executor.backends.process import Processes
from rp_agent.executor.backends.runner import Broken, News, Runner
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launchers import is_mpi
from rp_agent.lookup import LaunchRefused
from rp_agent.network import listen_address
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

_BATCH = ('SLURM', 'PBSPRO')
"""Resource managers from whose jobs Dragon gets the nodes itself."""


class DragonKind:
    """The Dragon parts of the executor; `single` if the pilot has only this host."""

    NAME: str = 'DRAGON'
    RANK_VARIABLES: tuple[str, ...] = ('RP_RANK',)
    BINDS: bool = False

    def __init__(self, loop: Loop, address: str, *, single: bool, by_ssh: bool = False) -> None:
        self._link = Link(loop, address)
        self._single = single
        self.launcher: InstanceLauncher = Dragon(self._link.invitation, single=single, by_ssh=by_ssh)

    def request(self, job: Job) -> dict[str, Any]:
        """Return the command, environment, directory, output and hosts of the ranks."""
        task = job.task
        if is_mpi(task):
            raise LaunchRefused('DRAGON starts plain processes, not ranks of an MPI program: set use_mpi=False, or use '
                                'another platform')
        hosts = [slot['node_name'] for slot in task.slots or ()]
        hosts = [''] * task.processes if self._single else hosts[:task.processes]
        return {'argv': job.argv, 'environment': dict(job.environment), 'directory': task.sandbox,
                'output': job.output, 'hosts': hosts}

    def runner(self, started: Processes, address: str, news: News, broken: Broken) -> Runner:
        """Return the connection to the runner in that instance."""
        return LinkRunner(self._link, int(address), news)

    def begin(self, take_line: Callable[[int, str], object]) -> None:
        """Report runners that have connected to the supervisor."""
        self._link.take_line = take_line

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def executor(uid: str, tracer: Tracer, loop: Loop, context: PilotContext) -> JobExecutor:
    """Create the executor DRAGON of a pilot."""
    assert context.launchers is not None
    platform: Mapping[str, Any] = context.launchers.platform
    setting = context.launchers.setting
    names = tuple(setting['nodes'])
    other = next((name for position, name in enumerate(names) if not context.launchers.is_here(position)), '')
    single = not other
    address = f'{"tcp://127.0.0.1" if single else listen_address(platform, other)}:*'
    kind = DragonKind(loop, address, single=single, by_ssh=platform['resource_manager'] not in _BATCH)
    # a runtime uses all nodes of its job
    return JobExecutor(uid, tracer, loop, context, kind, (range(len(names)),), nodes_of(setting))

"""Reports on masters and workers that wait for something which may never come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rp_agent.components.stage import Owner
from rp_agent.raptor.master import Master
from rp_agent.raptor.ports import RaptorPorts
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.reasons.kinds import PLACE, WORKERS

REPORT_DELAY = 4.0
"""Seconds without a place after which a master or worker is reported."""


class Waits:
    """Reports waits with the task, or with the master of a worker that the application does not know.

    `tasks` are those of the masters by uid, `own` the masters of tasks that the application does not know.
    """

    def __init__(self, ports: RaptorPorts, owner: Owner, tasks: Mapping[str, AgentTask],
                 own: Mapping[str, Master]) -> None:
        self._ports = ports
        self._owner = owner
        self._tasks = tasks
        self._own = own
        self._reported: set[str] = set()
        """Workers that were reported with their masters."""

    def watch(self, tasks: Sequence[AgentTask]) -> None:
        """Watch masters and workers that are passed to the scheduler: others may keep the resources for ever."""
        self._ports.call_later(REPORT_DELAY, self._look, tasks)

    def placed(self, tasks: Iterable[AgentTask]) -> None:
        """Take back what was reported of workers that are executed now."""
        for task in tasks:
            if task.uid in self._reported:
                self._reported.discard(task.uid)
                self.master_waits(self._own[task.uid], '')

    def master_waits(self, master: Master, text: str) -> None:
        """Report what a master that is up waits for; empty for nothing."""
        task = self._tasks.get(master.uid)
        if task is not None and master.up:
            self._owner.waits([task], WORKERS, text, states.AGENT_EXECUTING)

    def _look(self, tasks: Sequence[AgentTask]) -> None:
        for task in tasks:
            # a task without a ticket has not come to the wait pool: it waits for an environment, or for other tasks
            if task.slots is None and task.ticket >= 0 and task.target_state is None:
                self._report(task)

    def _report(self, task: AgentTask) -> None:
        description = task.description
        text = (f'resources for {description["ranks"]} ranks with {description["cores_per_rank"]} cores and '
                f'{description["gpus_per_rank"]:g} GPUs each')
        if task.uid in self._own:
            self._reported.add(task.uid)
            self.master_waits(self._own[task.uid], f'its worker {task.uid} waits for {text}')
        else:
            self._owner.waits([task], PLACE, text, states.AGENT_SCHEDULING)

"""Tasks that masters submit to the agent: their own workers and executables, and tasks that they return for execution.

The application does not know the tasks that a master submits itself, and receives no reports of them. A returned task
still belongs to its master after the execution: the result that the master sends counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rp_agent.components.stage import Flow
from rp_agent.raptor.master import Master
from rp_agent.raptor.ports import RaptorPorts
from rp_agent.raptor.results import TOLD, explain_worker, result_of
from rp_agent.raptor.start import submitted
from rp_agent.task import PART, AgentTask, Description
from rp_api import states
from rp_api.constants import RAPTOR_WORKER
from rp_api.errors import sentence


class Submissions:
    """The tasks that masters have submitted and that have not ended."""

    def __init__(self, ports: RaptorPorts, flow: Flow) -> None:
        self._ports = ports
        self._flow = flow
        self.running: dict[str, Master] = {}
        """The masters of returned tasks that have not been executed yet, by uid of the task."""
        self.own: dict[str, Master] = {}
        """The masters of tasks that the application does not know, by uid of the task."""

    def take(self, master: Master, descriptions: list[dict[str, Any]], sandbox: str) -> list[AgentTask]:
        """Take the tasks that a master in `sandbox` submits; return those that it has returned for execution."""
        back, new = [], []
        for data in descriptions:
            uid = data['uid']
            try:
                description = submitted(data, master.uid)
            except Exception as error:   # concerns this task alone
                self._refuse(master, uid, sentence(error))
                continue
            if uid in master.held and uid not in self.running:
                back.append(self._back(master, uid, description))
            elif (task := self._new(master, uid, description, sandbox)) is not None:
                new.append(task)
            else:
                self._refuse(master, uid, f'{uid} is the uid of another task')
        if new:
            self._flow.put(new)
        return back

    def of(self, master: Master, uids: list[str]) -> list[AgentTask]:
        """Return those of the tasks that the agent has for a master."""
        own = [master.own[uid] for uid in uids if uid in master.own]
        return own + [master.held[uid] for uid in uids if uid in master.held and uid in self.running]

    def visible(self, tasks: Sequence[AgentTask], state: str) -> Sequence[AgentTask]:
        """Return the tasks whose new state is reported to the application; report the others to their masters."""
        shown = []
        for task in tasks:
            master = self.own.get(task.uid)
            if master is None:
                shown.append(task)
            elif state == states.AGENT_EXECUTING:
                self._tell(master, task.uid, state, None)
        return shown

    def worker_begins(self, master: Master, task: AgentTask) -> None:
        """Report to a master that a worker is about to start which the application has submitted for it."""
        if task.uid not in self.own:
            self._tell(master, task.uid, states.AGENT_SCHEDULING, {'ranks': task.description['ranks']})

    def worker_ended(self, master: Master, task: AgentTask) -> None:
        """Explain the end of a worker, and report it to the master if the application has submitted the worker."""
        explain_worker(task)
        if task.uid not in self.own:
            self._tell(master, task.uid, task.target_state or states.FAILED, result_of(task))

    def part_ended(self, master: Master, part: AgentTask) -> None:
        """Report to a master the end of a part of a worker."""
        self._tell(master, part.uid, part.target_state or states.FAILED, {**result_of(part), 'part': part.extra[PART]})

    def executed(self, task: AgentTask) -> bool:
        """Report the execution of a returned task to its master; return whether it waits for the master's result."""
        master = self.running.pop(task.uid, None)
        if master is None or task.uid not in master.held or master.ended:
            return False
        task.extra[TOLD] = result = result_of(task)
        self._tell(master, task.uid, task.target_state or states.FAILED, result)
        task.target_state = None   # so far
        return True

    def left(self, task: AgentTask) -> bool:
        """Report the end of a task to the master that submitted it; return False if no master did."""
        master = self.own.pop(task.uid, None)
        if master is None:
            return False
        del master.own[task.uid]
        self._tell(master, task.uid, task.target_state or states.FAILED, result_of(task))
        return True

    def _back(self, master: Master, uid: str, description: dict[str, Any]) -> AgentTask:
        task = master.held[uid]
        task.description = Description(description)
        self.running[uid] = master
        return task

    def _new(self, master: Master, uid: str, description: dict[str, Any], sandbox: str) -> AgentTask | None:
        """Return a new task of the master; None if there is one of that uid."""
        if description.get('mode') == RAPTOR_WORKER:
            description['sandbox'] = description.get('sandbox') or sandbox
        else:
            description.pop('raptor_id', None)
        task = None if uid in self.own else self._ports.make(uid, description)
        if task is not None:
            self.own[uid] = master
            master.own[uid] = task
        return task

    def _refuse(self, master: Master, uid: str, why: str) -> None:
        self._tell(master, uid, states.FAILED, {'target_state': states.FAILED, 'exception': why})

    def _tell(self, master: Master, uid: str, state: str, result: dict[str, Any] | None) -> None:
        if master.address and not master.ended:
            self._ports.send(master.address, 'task_state', uid, state, result)

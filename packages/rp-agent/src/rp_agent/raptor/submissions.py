"""What masters have the agent run: workers and executables of their own, and tasks that they hand back to be executed.

What a master has submitted itself the application does not know, and does not hear of. A task that was handed back is
still the master's when it has run: what it says counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rp_agent.raptor import start
from rp_agent.raptor.master import Master
from rp_agent.raptor.ports import RaptorPorts
from rp_agent.raptor.results import result_of
from rp_agent.task import AgentTask, Description
from rp_api import states
from rp_api.constants import RAPTOR_WORKER
from rp_api.errors import sentence

_TOLD = 'raptor.told'


class Submissions:
    """The tasks that masters have submitted, from then until they have ended."""

    def __init__(self, ports: RaptorPorts) -> None:
        self._ports = ports
        self.running: dict[str, Master] = {}
        """Who has handed a task back that has not been executed yet."""
        self.own: dict[str, Master] = {}
        """Who has submitted a task that the application does not know."""

    def take(self, master: Master, descriptions: list[dict[str, Any]], sandbox: str) -> list[AgentTask]:
        """Take what a master submits, whose own sandbox is `sandbox`; gives what it has handed back."""
        back, new = [], []
        for data in descriptions:
            uid = data['uid']
            try:
                description = start.submitted(data, master.uid)
            except Exception as error:   # which concerns this task alone
                self._refuse(master, uid, sentence(error))
                continue
            if uid in master.held and uid not in self.running:
                back.append(self._back(master, uid, description))
            elif (task := self._new(master, uid, description, sandbox)) is not None:
                new.append(task)
            else:
                self._refuse(master, uid, f'{uid} is the uid of another task')
        if new:
            self._ports.enter(new)
        return back

    def of(self, master: Master, uids: list[str]) -> list[AgentTask]:
        """Those of the tasks that the agent has for a master."""
        own = [master.own[uid] for uid in uids if uid in master.own]
        return own + [master.held[uid] for uid in uids if uid in master.held and uid in self.running]

    def visible(self, tasks: Sequence[AgentTask], state: str) -> Sequence[AgentTask]:
        """Those of the tasks whose new state the application is to hear of; masters are told of their own."""
        shown = []
        for task in tasks:
            master = self.own.get(task.uid)
            if master is None:
                shown.append(task)
            elif state == states.AGENT_EXECUTING:
                self._tell(master, task.uid, state, None)
        return shown

    def worker_begins(self, master: Master, task: AgentTask) -> None:
        """Tell a master of a worker that the application has submitted for it, and that is to be started."""
        if task.uid not in self.own:
            self._tell(master, task.uid, states.AGENT_SCHEDULING, {'ranks': task.description['ranks']})

    def worker_ended(self, master: Master, task: AgentTask) -> None:
        """Tell a master of the end of a worker that the application has submitted."""
        if task.uid not in self.own:
            self._tell(master, task.uid, task.target_state or states.FAILED, result_of(task))

    def executed(self, task: AgentTask) -> bool:
        """Note that a task has been executed, or cannot be; whether it now waits for what its master says about it."""
        master = self.running.pop(task.uid, None)
        if master is None or task.uid not in master.held or master.ended:
            return False
        task.extra[_TOLD] = result = result_of(task)
        self._tell(master, task.uid, task.target_state or states.FAILED, result)
        task.target_state = None   # so far
        return True

    def left(self, task: AgentTask) -> bool:
        """Note that a task leaves; whether it was a master's own, which is told, and nobody else."""
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
        """A task of the master's own; None if there is one of that uid."""
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


def with_told(task: AgentTask, result: dict[str, Any] | bytes) -> dict[str, Any] | bytes:
    """The result that a master gives, with what the agent has told it about a task that was executed."""
    told: dict[str, Any] = task.extra.pop(_TOLD, {})
    return {**told, **result} if isinstance(result, dict) else result

"""The component that gives tasks their cores and GPUs: AGENT_SCHEDULING_PENDING in, AGENT_EXECUTING_PENDING out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from rp_agent.scheduler.given import GivenSlots
from rp_agent.scheduler.given import shape as given_shape
from rp_agent.scheduler.wait_pool import WaitPool
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.component import Component
from rp_api.errors import DescriptionError, ResourceError
from rp_api.resources import NodeList, RankRequirements
from rp_profiling.tracer import Tracer

GIVEN = 'scheduler.given'
"""Where in a task's `extra` the slots are that the application has given."""


class Scheduler(Component):
    """Places tasks on a node list; tasks wait while there is no room, or while the slots they name are taken.

    `failed(tasks)` takes those that can never run, or are cancelled while they wait.
    """

    def __init__(self, uid: str, tracer: Tracer, nodes: NodeList, failed: Callable[[list[AgentTask]], None]) -> None:
        super().__init__(uid, tracer)
        self._nodes = nodes
        self._given = GivenSlots(nodes)
        self._failed = failed
        self._pool: WaitPool[AgentTask] = WaitPool()
        self._tried: set[str] = set()
        self._reason = 'cancelled while it waited for resources'

    def put(self, tasks: list[AgentTask]) -> None:
        """Take tasks to place."""
        self.advance(tasks, states.AGENT_SCHEDULING)
        self._give_up([task for task in tasks if task.cancelled])
        refused: list[AgentTask] = []
        for task in tasks:
            if not task.cancelled:
                self._enter(task, refused)
        if refused:
            self._failed(refused)
        self._place()

    def release(self, tasks: Iterable[AgentTask]) -> None:
        """Take back what finished tasks occupied, and place others there."""
        done = list(tasks)
        uids = [task.uid for task in done]
        self.tracer.record_bulk('unschedule_start', uids)
        for task in done:
            if task.slots:
                self._nodes.release_slots(task.slots)
        self.tracer.record_bulk('unschedule_stop', uids)
        self._pool.wake()
        self._place()

    def cancel(self, uids: Iterable[str]) -> None:
        """End tasks that wait; others are not concerned."""
        self._give_up(self._pool.remove(uids))

    def cancel_all(self, reason: str) -> None:
        """End all tasks that wait, for this reason."""
        self._reason = reason
        self._give_up(self._pool.clear())

    def check(self) -> None:
        """Verify the invariants of wait pool and nodes."""
        self._pool.check()
        self._nodes.check()

    def _give_up(self, tasks: list[AgentTask]) -> None:
        for task in tasks:
            task.target_state = states.CANCELED
            task.exception = self._reason
            self._tried.discard(task.uid)
        if tasks:
            self._failed(tasks)

    def _enter(self, task: AgentTask, refused: list[AgentTask]) -> None:
        """Let a task wait for its turn, unless it names slots that do not exist."""
        description = task.description
        shape: Hashable
        if description['slots']:
            try:
                task.extra[GIVEN] = self._given.read(description['slots'], description['ranks'])
            except (ResourceError, DescriptionError) as error:
                _refuse(task, error, refused)
                return
            shape = given_shape(task.extra[GIVEN])
        else:
            shape = _shape(description)
        self._pool.add(task.uid, task, description['priority'], shape)

    def _place(self) -> None:
        refused: list[AgentTask] = []
        placed = self._pool.place(lambda task: self._fits(task, refused))
        ready = [task for task in placed if task.target_state is None]
        if refused:
            self._failed(refused)
        if ready:
            self.tracer.record_bulk('schedule_ok', [task.uid for task in ready])
            self.advance(ready, states.AGENT_EXECUTING_PENDING)
            self.output(ready)

    def _fits(self, task: AgentTask, refused: list[AgentTask]) -> bool:
        """Whether the task leaves the pool: because it was placed, or because it never can be."""
        if task.uid in self._tried:
            self._tried.remove(task.uid)
        else:
            self.tracer.record('schedule_try', task.uid)
        try:
            task.slots = self._find(task)
        except ResourceError as error:
            _refuse(task, error, refused)
            return True
        if task.slots is None:
            self.tracer.record('schedule_fail', task.uid)
            self._tried.add(task.uid)
            return False
        return True

    def _find(self, task: AgentTask) -> list[dict[str, Any]] | None:
        """Slots for the task, now occupied; None if they are not free now."""
        if GIVEN in task.extra:
            return self._given.claim(task.extra[GIVEN])
        description = task.description
        slots = self._nodes.find_slots(_requirements(description), description['ranks'], description['ranks_per_node'])
        return None if slots is None else [dict(slot) for slot in slots]


def _refuse(task: AgentTask, error: Exception, refused: list[AgentTask]) -> None:
    task.fail(f'{task.uid} can never run on {task.pilot}: {error}', 'it asks for what the pilot does not have')
    refused.append(task)


def _requirements(description: dict[str, Any]) -> RankRequirements:
    gpus = description['gpus_per_rank']
    whole = max(1, int(gpus)) if gpus else 0
    return RankRequirements(n_cores=description['cores_per_rank'], n_gpus=whole,
                            gpu_occupation=gpus if 0 < gpus < 1 else 1.0,
                            lfs=description['lfs_per_rank'], mem=description['mem_per_rank'])


def _shape(wanted: dict[str, Any]) -> Hashable:
    return (wanted['ranks'], wanted['ranks_per_node'], wanted['cores_per_rank'], wanted['gpus_per_rank'],
            wanted['lfs_per_rank'], wanted['mem_per_rank'])

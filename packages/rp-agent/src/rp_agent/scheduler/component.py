"""The scheduler component: AGENT_SCHEDULING_PENDING in, AGENT_EXECUTING_PENDING out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from rp_agent.instance_nodes import DVM_METHODS
from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.beside import refuse_beside
from rp_agent.scheduler.explicit_slots import ExplicitPlacement, ExplicitRequest, ExplicitSlots
from rp_agent.scheduler.policy import Item, Policy, shape_of
from rp_agent.scheduler.reservation import Reservation
from rp_agent.scheduler.shortage import MAX_ENTRIES, PilotNodes, shortages
from rp_agent.scheduler.slotmap import Placement, SlotMap
from rp_agent.scheduler.waitpool import WaitPool
from rp_agent.task import AgentTask
from rp_api import extensions, states
from rp_api.component import Component
from rp_api.errors import DescriptionError, ResourceError
from rp_api.failures.kinds import DESCRIPTION, NODE
from rp_profiling.write.tracer import Tracer

RESERVATION_DELAY = 60.0
"""Seconds that a task waits before the scheduler reserves nodes for it."""

_MAX_LISTED = 5
"""Most names and reasons that a failure lists."""

CallLater = Callable[[float, Callable[[], object]], object]
GROUP = 'radical_pilot.scheduling_policies'
DEFAULT = 'CONTINUOUS'


class Scheduler(Component):
    """Places tasks on the nodes of an allocation with the policy of the platform; tasks wait until there is room.

    `config` is the agent's configuration. `failed(tasks)` receives tasks that can never run, or are cancelled while
    they wait. `call_later(delay, callback)` and `clock()` belong to the event loop of the component.
    """

    def __init__(self, uid: str, tracer: Tracer, allocation: Allocation, config: Mapping[str, Any],
                 failed: Callable[[list[AgentTask]], None], call_later: CallLater,
                 clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(uid, tracer)
        self._slots = SlotMap(allocation.node_list(), allocation.domains)
        self._allocation = allocation
        self._policy = find_policy(config.get('platform') or {})(self._slots, allocation, config)
        self._explicit = ExplicitSlots(self._slots, allocation.names)
        self._pool: WaitPool[Item] = WaitPool(self._slots)
        self._reservation: Reservation[Item] = Reservation(self._slots, self._pool, self, RESERVATION_DELAY)
        self._failed = failed
        self._call_later = call_later
        self._clock = clock
        self._alarm: float | None = None
        self._waiting: dict[str, AgentTask] = {}
        """Accepted tasks that are not placed: in the pool, or held back by the policy."""
        self._refused: list[tuple[AgentTask, Exception]] = []
        self._down: dict[int, str] = {}
        """Positions of the nodes that are out of use, and the reasons."""
        self._stranded: list[Item] = []
        """Items that wait while no node is in use: the pilot is about to end."""
        self._intact: SlotMap | None = None

    @property
    def held_back(self) -> int:
        """Number of tasks that wait for other tasks, not for room. A group that waits for room counts as one task."""
        return len(self._waiting) - len(self._pool)

    def __contains__(self, uid: object) -> bool:
        return uid in self._waiting

    def upcoming(self, count: int) -> list[AgentTask]:
        """Return up to `count` tasks that will probably be placed next."""
        return [item for item in self._pool.upcoming(count) if type(item) is AgentTask]

    def shortages(self, tasks: Mapping[str, AgentTask]) -> list[dict[str, Any]]:
        """Return why tasks wait here, one entry for each distinct requirement; `tasks` are all tasks of the agent."""
        if not self._waiting:
            return []
        nodes = PilotNodes(self._slots, self._allocation, self._policy, self._reservation, tasks)
        return shortages(self._pool.foremost(MAX_ENTRIES), nodes, self._clock())

    def put(self, tasks: list[AgentTask]) -> None:
        """Accept tasks, and place waiting tasks that fit."""
        self.received(tasks)
        self.advance(tasks, states.AGENT_SCHEDULING)
        self.tracer.record_bulk('schedule_try', [task.uid for task in tasks if not task.cancelled])
        now = self._clock()
        self._waiting.update((task.uid, task) for task in tasks)
        for task in tasks:
            if not task.cancelled:
                self._admit(task, now)
        self._give_up([task for task in tasks if task.cancelled], 'cancelled while it waited for resources')
        self._place()
        self.tracer.record_bulk('schedule_fail', [task.uid for task in tasks if task.uid in self._waiting])

    def release(self, tasks: Iterable[AgentTask]) -> None:
        """Free the resources of finished tasks, and place waiting tasks on them."""
        uids: list[str] = []
        ours: list[AgentTask] = []
        with_slots: list[AgentTask] = []
        for task in tasks:
            uids.append(task.uid)
            (with_slots if type(task.request) is ExplicitRequest else ours).append(task)
        self.tracer.record_bulk('unschedule_start', uids)
        for placement in self._policy.release(ours):
            self._pool.freed(placement)
        for task in with_slots:
            if isinstance(task.placement, ExplicitPlacement):
                self._explicit.release(task.placement)
                self._pool.freed(task.placement.whole)
        self.tracer.record_bulk('unschedule_stop', uids)
        left = self._policy.left(ours)
        if left:
            self._enter(left, self._clock())
        self._place()

    def launch_again(self, task: AgentTask) -> None:
        """Give a task the resources again that it still has, and pass it on; traces show both."""
        for event in ('unschedule_start', 'unschedule_stop'):
            self.tracer.record(event, task.uid)
        self.advance([task], states.AGENT_SCHEDULING)
        self.tracer.record('schedule_try', task.uid)
        self._leave_placed([task])

    def _leave_placed(self, tasks: list[AgentTask]) -> None:
        """Pass placed tasks on."""
        ran = (time.time(),)
        for task in tasks:
            task.ran = ran
        if self.tracer.enabled:
            self.tracer.record_each('schedule_ok', [
                (task.uid, task.placement.trace() if task.placement is not None else '') for task in tasks])
        self.advance(tasks, states.AGENT_EXECUTING_PENDING)
        self.forward(tasks)

    def cancel(self, uids: Iterable[str]) -> None:
        """Cancel the waiting ones of these tasks; ignore all others."""
        tasks = [self._waiting[uid] for uid in uids if uid in self._waiting]
        self._give_up(tasks, 'cancelled while it waited for resources')
        self._place()

    def take_back(self, task: AgentTask) -> None:
        """Forget a task, if it waits here."""
        if task.uid in self._waiting:
            self._withdraw(task, self._clock())

    def cancel_all(self, reason: str) -> None:
        """Cancel all waiting tasks."""
        self._give_up(list(self._waiting.values()), reason)
        self._place()

    def nodes_down(self, indices: Iterable[int], reason: str) -> None:
        """Take nodes out of use; tasks that need them fail for this reason, unless no node is left for any task."""
        for index in indices:
            self._slots.set_down(index)
            self._reservation.node_down(index)
            self._down.setdefault(index, reason)
        self._revalidate()

    def node_up(self, index: int) -> None:
        """Add a recovered node."""
        self._slots.set_up(index)
        self._down.pop(index, None)
        self._revalidate()

    def check(self) -> None:
        """Verify the invariants of all parts."""
        from rp_agent.scheduler.slotcheck import check  # agents never load it

        check(self._slots)
        for part in (self._pool, self._explicit, self._reservation):
            part.check()
        assert not self._refused, 'refused tasks were not reported'

    # the policy's methods for reservations, extended to explicit slots

    def candidates(self, item: Item) -> Sequence[int]:
        """Return the nodes to reserve for an item; none for explicit slots, which the application manages."""
        return () if type(item.request) is ExplicitRequest else self._policy.candidates(item)

    def place_on(self, item: Item, positions: Sequence[int]) -> Placement | None:
        """Place an item on its reserved nodes."""
        return self._policy.place_on(item, positions)

    # entering the pool

    def _admit(self, task: AgentTask, now: float) -> None:
        """Add a task to the pool, unless the policy holds it back."""
        try:
            if task.description['slots']:
                task.request = self._explicit.request(task.description['slots'], task.description['ranks'])
                items: Sequence[Item] = (task,)
            else:
                items = self._policy.admit(task)
        except Exception as error:   # fails this task only
            self._refused.append((task, error))
        else:
            self._enter(items, now)

    def _enter(self, items: Iterable[Item], now: float) -> None:
        for item in items:
            try:
                if type(item.request) is ExplicitRequest:
                    self._explicit.refuse_lost(item.request)
                    item.ticket = self._pool.add(item, item.request, item.description['priority'], now)
                    continue
                item.request = request = self._policy.request(item)
                if type(item) is AgentTask and item.beside is not None:
                    refuse_beside(item, item.beside, self._slots, self._allocation)
                item.ticket = self._pool.add(item, request, self._policy.priority(item), now)
            except Exception as error:   # fails this item only
                self._reservation.dropped(item)
                item.ticket = -1
                if isinstance(error, ResourceError) and len(self._down) == len(self._allocation.names):
                    self._stranded.append(item)
                else:
                    self._refuse(item, error)

    def _revalidate(self) -> None:
        """Validate all waiting items against the nodes that are up."""
        self._explicit.down = frozenset(self._down)
        self._policy.nodes_changed(frozenset(self._down))
        stranded, self._stranded = self._stranded, []
        for item in stranded:
            if any(task.uid in self._waiting for task in self._policy.tasks([item])):
                self._enter([item], self._clock())
        self._enter_again()
        self._place()

    def _enter_again(self) -> None:
        self._enter(self._pool.clear(), self._clock())

    # placing

    def _place(self) -> None:
        now = self._clock()
        placed = self._try(now)
        while self._refused:
            self._report_refused(now)
            placed += self._try(now)
        ready = []
        for task in placed:
            if task.target_state is None:
                del self._waiting[task.uid]
                ready.append(task)
        if ready:
            self._leave_placed(ready)
        if self._waiting:
            self._set_alarm(self._reservation.update(now), now)

    def _try(self, now: float) -> list[AgentTask]:
        """Return the tasks of all items that leave the pool, placed or refused."""
        items = []
        offered = self._reservation.offer() if self._reservation.item is not None else None
        if offered is not None:
            items.append(self._pool.remove(offered[0].ticket))
        self._policy.set_aside = self._reservation.positions
        items += self._from_pool(now)
        if self._reservation.item is not None:
            for item in items:
                self._reservation.dropped(item)
        return self._policy.tasks(items)

    def _from_pool(self, now: float) -> list[Item]:
        """Place items of the pool and return them; simulations override it."""
        return self._pool.place(self._fits, now)

    def _fits(self, item: Item) -> bool:
        """Return whether the item leaves the pool, placed or refused."""
        try:
            if type(item.request) is ExplicitRequest:
                item.placement = self._explicit.place(item.request)
                return item.placement is not None
            return self._policy.place(item)
        except Exception as error:   # fails this item only
            self._refuse(item, error)
            return True

    def _set_alarm(self, deadline: float | None, now: float) -> None:
        """Call `_place` at the deadline, unless an earlier call is scheduled."""
        if deadline is not None and (self._alarm is None or deadline < self._alarm):
            self._alarm = deadline
            self._call_later(max(0.0, deadline - now), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if not self._closed:
            self._place()

    # failing and cancelling

    def _refuse(self, item: Item, error: Exception) -> None:
        """Record that an item outside of the pool can never be placed."""
        self._reservation.dropped(item)
        item.ticket = -1
        self._refused += [(task, error) for task in self._policy.tasks([item])]

    def _report_refused(self, now: float) -> None:
        """Fail the tasks that can never run. Other tasks may enter the pool because of that."""
        refused = [each for each in self._refused if each[0].uid in self._waiting]   # not cancelled meanwhile
        self._refused = []
        for task, error in refused:
            if not isinstance(error, ResourceError | DescriptionError):
                task.broke(error, 'scheduling')
            lost = isinstance(error, ResourceError) and self._needs_lost_nodes(task)
            resources, reason = f'the pilot has {self._allocation}', f'{error}; {self._losses()}' if lost else error
            task.fail(f'{task.uid} can never run on {task.pilot}: {reason}', resources, NODE if lost else DESCRIPTION,
                      sentence=f'it can never run on {task.pilot}: {reason}; {resources}')
            self._withdraw(task, now)
        if refused:
            self._failed([task for task, _ in refused])

    def _needs_lost_nodes(self, task: AgentTask) -> bool:
        """Return whether a refused task could run if all nodes of the pilot were in use."""
        if not self._down:
            return False
        if type(task.request) is ExplicitRequest:
            return any(slot[0] in self._down for slot in task.request.slots)
        if task.description['slots']:
            return False
        self._intact = self._intact or SlotMap(self._allocation.node_list(), self._allocation.domains)
        shape = shape_of(task.description)
        return bool(self._intact.most(shape) == shape.ranks)

    def _losses(self) -> str:
        """Return which nodes are out of use, and the reasons."""
        names: dict[str, list[str]] = {}
        for index, reason in sorted(self._down.items()):
            names.setdefault(reason.partition('; see ')[0], []).append(self._allocation.names[index])
        return f'out of use: {_some([f"{_some(each)} ({why})" for why, each in names.items()])}'

    def _give_up(self, tasks: list[AgentTask], reason: str) -> None:
        now = self._clock()
        for task in tasks:
            task.cancel(reason)
            self._withdraw(task, now)
        if tasks:
            self._failed(tasks)

    def _withdraw(self, task: AgentTask, now: float) -> None:
        del self._waiting[task.uid]
        if task.ticket >= 0:
            item = self._pool.remove(task.ticket)
            self._reservation.dropped(item)
            item.ticket = -1
        self._enter(self._policy.withdraw(task), now)


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _MAX_LISTED
    return ', '.join(texts[:_MAX_LISTED]) + (f' and {more} more' if more > 0 else '')


def find_policy(platform: Mapping[str, Any]) -> type[Policy]:
    """Return the class of the platform's policy; raise `PlatformError`, which lists all names, if it is unknown."""
    name = platform.get('agent_scheduler') or DEFAULT
    if name == DEFAULT:
        methods = (platform.get('launch_methods') or {}).get('order', ())
        if 'JSRUN' in methods:
            name = 'CONTINUOUS_JSRUN'
        elif not DVM_METHODS.isdisjoint(methods):
            name = 'CONTINUOUS_DVM'
    own = {DEFAULT: 'rp_agent.scheduler.policies.continuous:Continuous'}
    return cast('type[Policy]', extensions.find(GROUP, name, own, f'agent_scheduler {name!r} of the platform'))

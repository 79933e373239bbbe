"""The task scheduling component: binds tasks, from TMGR_SCHEDULING_PENDING to TMGR_STAGING_INPUT_PENDING."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from rp_api import constants, extensions, states
from rp_api.description import task as names
from rp_api.description.partitions import partition_uid
from rp_api.errors import PlatformError
from rp_api.uid_set import UidSet
from rp_client.common_description import NOTHING, CommonDescription
from rp_client.component import ClientComponent
from rp_client.core.pilot import PartitionRecord, PilotRecord
from rp_client.core.task import TaskRecord
from rp_client.scheduler.base import Binding, Request, TaskScheduler
from rp_client.scheduler.masters import Followers
from rp_client.scheduler.places import Need, Place, Places
from rp_client.scheduler.room import nodes_of
from rp_profiling.write.tracer import Tracer

RELEASED = states.TASK.value(states.AGENT_STAGING_OUTPUT_PENDING)
"""Value of the first state in which a task needs no resources of its pilot any more."""

GROUP = 'radical_pilot.task_schedulers'
_OWN = {constants.SCHEDULER_ROUND_ROBIN: 'rp_client.scheduler.round_robin:RoundRobin',
        constants.SCHEDULER_BACKFILLING: 'rp_client.scheduler.backfilling:Backfilling'}


class TaskScheduling(ClientComponent):
    """Runs a task scheduler; calls `on_waiting` when the number of tasks that wait for a pilot changes.

    Methods that can bind tasks return those that were bound.
    """

    def __init__(self, index: str, tracer: Tracer, advanced: Callable[[Sequence[TaskRecord], str], None],
                 scheduler: TaskScheduler, tasks: Mapping[str, TaskRecord], on_waiting: Callable[[int], None]) -> None:
        super().__init__(f'{constants.TMGR_SCHEDULING_COMPONENT}.{index}', tracer, advanced)
        self._scheduler = scheduler
        self._tasks = tasks
        self._pilots: dict[str, PilotRecord] = {}   # and partitions
        self._pilots_in_use: set[str] = set()
        self._ending: set[str] = set()   # partitions that end
        self._places = Places(self._need)
        scheduler.place, scheduler.knows, scheduler.need = self._places.choose, self._places.has, self._need
        self._last_need: tuple[CommonDescription, Need] | None = None
        self._followers = Followers(tasks)
        self._leads: dict[str, str] = {}   # tasks that others depend on and are bound to the pilots of
        self._led = UidSet()               # tasks that another one has been bound to the pilot of
        self._on_waiting = on_waiting
        self._waiting = 0

    def lead(self, leads: Mapping[str, str]) -> None:
        """Bind tasks, by uid, to the pilots of tasks that they depend on, when they are put the first time.

        The first of the tasks that depend on the same one follows it, so that chains stay on a pilot and branches are
        distributed.
        """
        for uid, other in leads.items():
            if self._led.add(other):
                self._leads[uid] = other

    @property
    def size(self) -> int:
        """The number of tasks that wait for a pilot."""
        return self._waiting

    def put(self, tasks: list[TaskRecord]) -> list[TaskRecord]:
        """Accept tasks to bind."""
        self.received(tasks)
        self.advance(tasks, states.TMGR_SCHEDULING)
        wanted, theirs, led = [], [], []
        for task in tasks:
            common = task.common
            if common.mode == constants.RAPTOR_MASTER:
                self._followers.know(task)
            # in a pilot with partitions, the task goes to the partition of its master
            if common.raptor_id and (not common.pilot or self._places.divided(common.pilot)
                                     or self._followers.is_no_master(common.raptor_id)):
                theirs.append(task)
            elif self._leads and not common.pilot and task.uid in self._leads:
                led.append(task)
            else:
                wanted.append(Request(task.uid, common.pilot))
        bound = self._bound(self._scheduler.submit(wanted))
        if led:
            bound += self._follow_leads(led)
        if theirs:
            bound += self._follow(self._followers.place(theirs))
            self._count()
        return bound

    def _follow(self, placed: list[tuple[str, list[TaskRecord]]]) -> list[TaskRecord]:
        """Bind rows of tasks to the pilots of their masters."""
        bound = []
        for pilot, tasks in placed:
            whole = not self._places.divided(pilot) and not self._places.has(pilot)
            are_calls = tasks[0].common.mode != constants.RAPTOR_WORKER
            if whole and are_calls and self._scheduler.binds_at_once(pilot):
                for task in tasks:
                    task.pilot = self._pilots[pilot]
                bound += self._pass_on(tasks)
            else:
                bound += self._bound(self._scheduler.submit([Request(task.uid, pilot) for task in tasks]))
        return bound

    def _follow_leads(self, tasks: list[TaskRecord]) -> list[TaskRecord]:
        """Bind tasks to the pilots of tasks that they depend on, and to others if that is not possible now."""
        bound, wanted = [], []
        for task in tasks:
            pilot = self._pilot_of_lead(self._leads.pop(task.uid))
            if pilot is None:
                wanted.append(Request(task.uid, ''))
            else:
                task.pilot = pilot   # the next one may depend on it
                bound.append(task)
        return self._pass_on(bound) + self._bound(self._scheduler.submit(wanted))

    def _pilot_of_lead(self, uid: str) -> PilotRecord | None:
        task = self._tasks.get(uid)   # it may have been removed
        pilot = task.pilot if task is not None else None
        if pilot is None or pilot.uid not in self._pilots_in_use or self._places.divided(pilot.uid):
            return None
        return pilot if self._scheduler.binds_at_once(pilot.uid) else None

    def know(self, task: TaskRecord) -> None:
        """Register a restored task, which other tasks may have to follow."""
        self._followers.know(task)
        if task.pilot is not None and states.TASK.value(task.state) < RELEASED:
            self._scheduler.restored(task.uid, task.pilot.uid)
            if isinstance(task.pilot, PartitionRecord):
                self._places.bound(task.uid, task.pilot.uid)

    @property
    def counting(self) -> bool:
        """True if `left` has to be called for tasks that leave their pilots."""
        return self._scheduler.follows or bool(self._places)

    @property
    def pilot_count(self) -> int:
        """The number of pilots in use."""
        return len(self._scheduler.pilots)

    @property
    def binds_late(self) -> bool:
        """True if tasks that their pilot has not started are to be bound again when the pilot ends."""
        return self._scheduler.follows

    def left(self, uids: Sequence[str]) -> list[TaskRecord]:
        """Free the resources that these tasks used on their pilots, and bind waiting tasks."""
        self._places.left(uids)
        return self._bound(self._scheduler.left(uids))

    def returned(self, uids: Sequence[str]) -> None:
        """Free the resources of tasks whose pilot has ended, and that are put again next."""
        self._places.left(uids)
        self._scheduler.returned(uids)

    def hopeless(self) -> list[tuple[TaskRecord, str]]:
        """Remove and return tasks that wait for a partition that has ended, with its uid."""
        found = []
        for request in list(self._scheduler.waiting):
            lost = self._places.lost(request.uid, [request.pilot] if request.pilot else self._pilots_in_use)
            if lost is not None and self._scheduler.forget([request.uid]):
                found.append((self._tasks[request.uid], partition_uid(*lost)))
        if found:
            self._count()
        return found

    def orphans(self) -> list[tuple[TaskRecord, str]]:
        """Remove and return tasks that wait for a RAPTOR master that ended without a pilot, with the reason."""
        orphans = self._followers.orphans() if self._followers.waiting else []
        if orphans:
            self._count()
        return orphans

    def without_master(self, tasks: Iterable[TaskRecord]) -> list[TaskRecord]:
        """Return one task for each RAPTOR master that tasks request and that was not submitted."""
        theirs = [task for task in tasks if task.common.raptor_id]
        return self._followers.without_master(theirs) if theirs else []

    def wanted_pilot(self, uid: str) -> str:
        """Return the pilot that a task waits for; empty if it does not wait, or for any pilot."""
        return self._scheduler.wanted(uid)

    def add_pilots(self, pilots: Iterable[PilotRecord]) -> list[TaskRecord]:
        """Bind tasks to these pilots, and to the present ones."""
        added = {pilot.uid: pilot for pilot in pilots}
        self._pilots.update(added)
        self._pilots_in_use.update(added)
        for pilot in added.values():
            self._update_places(pilot)
        return self._bound(self._scheduler.add_pilots(added))

    def remove_pilots(self, uids: Iterable[str]) -> None:
        """Bind no more tasks to these pilots."""
        gone = set(uids)
        self._pilots_in_use -= gone
        for uid in gone:
            if self._places.divided(uid):
                self._places.forget(uid)
        self._scheduler.remove_pilots(gone)

    def leave(self, place: PilotRecord) -> None:
        """Bind no more tasks to a pilot, or partition, that ends."""
        if isinstance(place, PartitionRecord):
            self._ending.add(place.uid)
            self._update_places(place.whole)
        else:
            self.remove_pilots([place.uid])

    def has_master(self, task: TaskRecord) -> bool:
        """Return whether a RAPTOR master may run a task of which the pilot has ended."""
        return self._followers.may_run(task)

    def uses(self, pilot: str) -> bool:
        """Return whether tasks are bound to that pilot."""
        return pilot in self._pilots_in_use

    def bind_those_for(self, places: Collection[str]) -> list[TaskRecord]:
        """Bind waiting tasks that request one of these pilots or partitions, also beyond what can run there at once."""
        bindings = []
        for request in list(self._scheduler.waiting):
            place = self._places.choose(request.pilot, request.uid) if request.pilot in places else ''
            if place and self._scheduler.forget([request.uid]):
                bindings.append(Binding(request.uid, place))
        return self._bound(bindings)

    def places_changed(self, pilot: PilotRecord) -> list[TaskRecord]:
        """Bind tasks to the present nodes or partitions of a pilot only."""
        self._update_places(pilot)
        return self._bound(self._scheduler.retry())

    def _update_places(self, pilot: PilotRecord) -> None:
        active = [place for place in active_places(pilot) if place.uid not in self._ending]
        if pilot.divided:
            self._pilots.update((partition.uid, partition) for partition in pilot.partitions)
            self._places.update(pilot.uid, {place.uid: _place(place) for place in active},
                                [place.number for place in pilot.partitions if place.state in states.FINAL])
        self._scheduler.places_changed(
            pilot.uid, {place.uid: (getattr(place, 'number', None), nodes_of(place.resource_details or {}))
                        for place in active}, pending=_is_pending(pilot))

    def _need(self, uid: str) -> Need:
        task = self._tasks[uid]
        if task.own != NOTHING:
            return _need(task)
        if self._last_need is None or self._last_need[0] is not task.common:   # consecutive tasks are mostly equal
            self._last_need = task.common, _need(task)
        return self._last_need[1]

    def waiting(self) -> list[TaskRecord]:
        """Return the tasks that wait for a pilot."""
        return [*(self._tasks[request.uid] for request in self._scheduler.waiting), *self._followers.waiting.values()]

    def forget(self, uids: Iterable[str]) -> list[TaskRecord]:
        """Remove waiting tasks, and return those that were waiting."""
        wanted = list(uids)
        forgotten = [self._tasks[uid] for uid in self._scheduler.forget(wanted)]
        if self._followers.waiting:
            forgotten += [task for task in map(self._followers.forget, wanted) if task is not None]
        self._count()
        return forgotten

    def _bound(self, bindings: list[Binding]) -> list[TaskRecord]:
        tasks = []
        for uid, pilot in bindings:
            task = self._tasks[uid]
            task.pilot = self._pilots[pilot]
            tasks.append(task)
        return self._pass_on(tasks)

    def _pass_on(self, tasks: list[TaskRecord]) -> list[TaskRecord]:
        """Return tasks that have been bound, and those that were waiting for a master among them."""
        self.advance(tasks, states.TMGR_STAGING_INPUT_PENDING)
        self._count()
        self.leaving(tasks)
        return tasks + self._follow(self._followers.ready()) if tasks and self._followers.waiting else tasks

    def _count(self) -> None:
        waiting = len(self._scheduler.waiting) + len(self._followers.waiting)
        if waiting != self._waiting:
            self._waiting = waiting
            self._on_waiting(waiting)


def active_places(pilot: PilotRecord) -> list[Any]:
    """Return the active partitions of a pilot, or the pilot itself if it is active and not divided."""
    if pilot.state != states.PMGR_ACTIVE:
        return []
    return [place for place in (pilot.partitions if pilot.divided else [pilot]) if place.state == states.PMGR_ACTIVE]


def _is_pending(pilot: PilotRecord) -> bool:
    """Return whether a pilot, or one of its partitions, is still to become active."""
    return any(place.state not in (*states.FINAL, states.PMGR_ACTIVE) for place in (pilot, *pilot.partitions))


def _need(task: TaskRecord) -> Need:
    described = task.sparse()
    ranks = described.get(names.RANKS, 1)
    return Need(described.get(names.PARTITION), ranks, described.get(names.CORES_PER_RANK, 1),
                described.get(names.GPUS_PER_RANK, 0.0), described.get(names.MEM_PER_RANK, 0),
                described.get(names.LFS_PER_RANK, 0), described.get(names.RANKS_PER_NODE) or 0,
                ranks > 1 and described.get(names.USE_MPI) is False, described.get(names.PRIORITY, 0),
                _is_counted(task, described.get(names.TAGS) or {}, bool(described.get(names.AFTER))))


def _is_counted(task: TaskRecord, tags: Mapping[str, Any], has_dependencies: bool) -> bool:
    """Return whether a task takes resources of its pilot as soon as they are free.

    RAPTOR's calls run in workers. Tasks with bags wait in the agent until all tasks of the bag have arrived there, and
    tasks with dependencies until these have ended: if they took resources now, these might never be started.
    """
    if has_dependencies or (task.common.raptor_id and task.common.mode != constants.RAPTOR_WORKER):
        return False
    return 'order' not in tags and not isinstance(tags.get('colocate'), Mapping)


def _place(partition: PartitionRecord) -> Place:
    details = partition.resource_details or {}
    cores, gpus, cores_per_node, gpus_per_node, mem_per_node = (details.get(name, 0) for name in (
        'cores', 'gpus', 'cores_per_node', 'gpus_per_node', 'mem_per_node'))
    return Place(partition.number, cores, gpus, cores_per_node, gpus_per_node, mem_per_node,
                 mem_per_node * len(details.get('node_list', ())))


def find_scheduler(name: str) -> type[TaskScheduler]:
    """Return the class of the task scheduler of that name; raise `ValueError`, with all names, if it is unknown."""
    try:
        return cast('type[TaskScheduler]', extensions.find(GROUP, name, _OWN, f'scheduler {name!r}'))
    except PlatformError as error:
        raise ValueError(str(error)) from None

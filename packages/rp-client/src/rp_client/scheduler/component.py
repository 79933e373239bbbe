"""The task scheduling component: binds tasks, from TMGR_SCHEDULING_PENDING to TMGR_STAGING_INPUT_PENDING."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rp_api import states
from rp_api.constants import RAPTOR_MASTER, TMGR_SCHEDULING_COMPONENT
from rp_api.description import task as names
from rp_api.partitions import partition_uid
from rp_client.component import ClientComponent
from rp_client.partition import Partition
from rp_client.pilot import Pilot
from rp_client.scheduler.base import Binding, Request, TaskScheduler
from rp_client.scheduler.masters import Followers
from rp_client.scheduler.places import Need, Place, Places
from rp_client.task import Task
from rp_profiling.write.tracer import Tracer


class TaskScheduling(ClientComponent):
    """Runs a task scheduler; calls `on_waiting` when the number of tasks that wait for a pilot changes."""

    def __init__(self, index: str, tracer: Tracer, scheduler: TaskScheduler, tasks: Mapping[str, Task],
                 on_waiting: Callable[[int], None]) -> None:
        super().__init__(f'{TMGR_SCHEDULING_COMPONENT}.{index}', tracer)
        self._scheduler = scheduler
        self._tasks = tasks
        self._pilots: dict[str, Pilot] = {}   # and partitions
        self._pilots_in_use: set[str] = set()
        self._places = Places(lambda uid: _need(tasks[uid]))
        scheduler.place, scheduler.knows = self._places.choose, self._places.has
        self._followers = Followers()
        self._on_waiting = on_waiting
        self._waiting = 0

    def put(self, tasks: list[Task]) -> None:
        """Accept tasks to bind."""
        self.advance(tasks, states.TMGR_SCHEDULING)
        wanted, theirs = [], []
        for task in tasks:
            common = task.common
            if common.mode == RAPTOR_MASTER:
                self._followers.know(task)
            # in a pilot with partitions, the task goes to the partition of its master
            if common.raptor_id and (not common.pilot or self._places.divided(common.pilot)):
                theirs.append(task)
            else:
                wanted.append(Request(task.uid, common.pilot))
        self._bound(self._scheduler.submit(wanted))
        if theirs:
            self._follow(theirs)

    def _follow(self, tasks: list[Task]) -> None:
        """Bind tasks to the pilots of their masters."""
        self._bound(self._scheduler.submit([Request(task.uid, pilot) for task, pilot in self._followers.place(tasks)]))

    def know(self, task: Task) -> None:
        """Register a restored task, which other tasks may have to follow."""
        self._followers.know(task)
        if isinstance(task.bound, Partition) and task.state not in states.FINAL:
            self._places.bound(task.uid, task.bound.uid)

    @property
    def counting(self) -> bool:
        """True if `left` has to be called for tasks that leave their pilots."""
        return bool(self._places)

    def left(self, uids: Iterable[str]) -> None:
        """Free the resources that these tasks used on their pilots."""
        self._places.left(uids)

    def hopeless(self) -> list[tuple[Task, str]]:
        """Remove and return tasks that wait for a partition that has ended, with its uid."""
        found = []
        for request in list(self._scheduler.waiting):
            lost = self._places.lost(request.uid, [request.pilot] if request.pilot else self._pilots_in_use)
            if lost is not None and self._scheduler.forget([request.uid]):
                found.append((self._tasks[request.uid], partition_uid(*lost)))
        if found:
            self._count()
        return found

    def orphans(self) -> list[tuple[Task, str]]:
        """Remove and return tasks that wait for a RAPTOR master that ended without a pilot, with the reason."""
        orphans = self._followers.orphans() if self._followers else []
        if orphans:
            self._count()
        return orphans

    def wanted_pilot(self, uid: str) -> str:
        """Return the pilot that a task waits for; empty if it does not wait, or for any pilot."""
        return self._scheduler.wanted(uid)

    def add_pilots(self, pilots: Iterable[Pilot]) -> None:
        """Bind tasks to these pilots, and to the present ones."""
        added = {pilot.uid: pilot for pilot in pilots}
        self._pilots.update(added)
        self._pilots_in_use.update(added)
        for pilot in added.values():
            if pilot.divided:
                self._update_places(pilot)
        self._bound(self._scheduler.add_pilots(added))

    def remove_pilots(self, uids: Iterable[str]) -> None:
        """Bind no more tasks to these pilots."""
        gone = set(uids)
        self._pilots_in_use -= gone
        for uid in gone:
            if self._places.divided(uid):
                self._places.forget(uid)
        self._scheduler.remove_pilots(gone)

    def partitions_changed(self, pilot: Pilot) -> None:
        """Bind tasks to the present partitions of a pilot only."""
        self._update_places(pilot)
        self._bound(self._scheduler.retry())

    def _update_places(self, pilot: Pilot) -> None:
        active = pilot.partitions if pilot.state == states.PMGR_ACTIVE else []
        places = {partition.uid: _place(partition) for partition in active if partition.state == states.PMGR_ACTIVE}
        self._pilots.update((partition.uid, partition) for partition in pilot.partitions)
        self._places.update(pilot.uid, places, [partition.number for partition in pilot.partitions
                                                if partition.state in states.FINAL])

    def waiting(self) -> list[Task]:
        """Return the tasks that wait for a pilot."""
        return [self._tasks[request.uid] for request in self._scheduler.waiting] + self._followers.waiting

    def forget(self, uids: Iterable[str]) -> list[Task]:
        """Remove waiting tasks, and return those that were waiting."""
        wanted = list(uids)
        forgotten = [self._tasks[uid] for uid in self._scheduler.forget(wanted)]
        if self._followers:
            forgotten += [task for task in map(self._followers.forget, wanted) if task is not None]
        self._count()
        return forgotten

    def _bound(self, bindings: list[Binding]) -> None:
        tasks = []
        for uid, pilot in bindings:
            task = self._tasks[uid]
            task.bind(self._pilots[pilot])
            tasks.append(task)
        self.advance(tasks, states.TMGR_STAGING_INPUT_PENDING)
        self._count()
        if tasks:
            self.output(tasks)
        if tasks and self._followers:
            ready = self._followers.ready()
            if ready:
                self._bound(self._scheduler.submit([Request(task.uid, pilot) for task, pilot in ready]))

    def _count(self) -> None:
        waiting = len(self._scheduler.waiting) + len(self._followers)
        if waiting != self._waiting:
            self._waiting = waiting
            self._on_waiting(waiting)


def _need(task: Task) -> Need:
    described = task.sparse()
    return Need(described.get(names.PARTITION), described.get(names.RANKS, 1), described.get(names.CORES_PER_RANK, 1),
                described.get(names.GPUS_PER_RANK, 0.0), described.get(names.MEM_PER_RANK, 0))


def _place(partition: Partition) -> Place:
    details = partition.resource_details or {}
    sizes = [details.get(name, 0) for name in ('cores', 'gpus', 'cores_per_node', 'gpus_per_node', 'mem_per_node')]
    return Place(partition.number, *sizes, sizes[-1] * len(details.get('node_list', ())))

"""Fleet: assigns tasks to instances, and handles failures of instances and launches: events in, commands out.

    NEW -> STARTING -> READY -> DRAINING -+-> STARTING, if it may be restarted
                |        |                +-> LOST
                +--------+--> STOPPING -> STOPPED

Rules of this file:

- A task waits here until an instance takes it, and is known here until its launch has ended.
- Some tasks must run on a certain instance, because their slots are there or the application requests it. The others go
  to the instance with the least load relative to its size.
- An instance whose process has ended, or that was not ready in time, is restarted, at most `RESTARTS` times without a
  completed task in between; then it is lost. After `FAULTS` failed launches in a row it gets no more tasks, and is
  restarted when its running tasks have ended.
- A task whose launch has failed, or whose instance has ended, is launched again, at most `RETRIES` times if it has
  started, as the task may be the cause. All processes of the old launch must end first.
- There are no clocks and no processes here: the supervisor reports events and carries out the commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

RESTARTS = 3
"""Maximum number of restarts of an instance without a completed task in between."""
FAULTS = 3
"""Number of failed launches in a row after which an instance is restarted."""
RETRIES = 2
"""Maximum number of retries of a task; fewer than RESTARTS, so that no task can cause the loss of an instance."""


class State(Enum):
    """The state of an instance."""

    NEW = 'new'
    STARTING = 'starting'
    READY = 'ready'
    DRAINING = 'draining'
    STOPPING = 'stopping'
    STOPPED = 'stopped'
    LOST = 'lost'


_FINAL = (State.STOPPING, State.STOPPED, State.LOST)
"""States after which an instance does not become ready again."""


@dataclass(frozen=True)
class _OfInstance:
    instance: int


@dataclass(frozen=True)
class _OfTask:
    uid: str
    reason: str


class Start(_OfInstance):
    """Start the process of an instance."""


class Stop(_OfInstance):
    """End the process of an instance gracefully."""


class Kill(_OfInstance):
    """Kill the process of an instance."""


@dataclass(frozen=True, slots=True)
class LaunchTask:
    """Launch a task with an instance."""

    uid: str
    instance: int


class Abandon(_OfTask):
    """End the remaining processes of a task whose instance has ended, then report it as failed or done."""


class PlaceAgain(_OfTask):
    """Place a task on other nodes, because the instance on its nodes is lost."""


class Refuse(_OfTask):
    """Fail a task."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Stop using the nodes of an instance."""

    instance: int
    reason: str


Command = Start | Stop | Kill | LaunchTask | Abandon | PlaceAgain | Refuse | Lost


@dataclass(slots=True)
class Demand:
    """A task: its number of cores, and the instance on which it must run, None for any.

    `placed` means that it has slots on that instance, and can be placed again.
    """

    uid: str
    cores: int
    instance: int | None = None
    placed: bool = False
    retries: int = 0


@dataclass(slots=True)
class FleetInstance:
    """One instance; `size` is its number of nodes; `starts` and `faults` count since the last completed task."""

    size: int
    state: State = State.NEW
    starts: int = 0
    faults: int = 0
    load: int = 0
    reason: str = ''
    running: dict[str, Demand] = field(default_factory=dict)

    def enter(self, state: State, reason: str = '') -> None:
        """Change the state, for this reason if there is one."""
        self.state = state
        self.reason = reason or self.reason


class Fleet:
    """The instances of a pilot; `sizes` are their numbers of nodes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.instances = [FleetInstance(size) for size in sizes]
        self.waiting: dict[str, Demand] = {}
        self.abandoned: dict[str, Demand] = {}
        self._runs_on: dict[str, int] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self.waiting or uid in self._runs_on or uid in self.abandoned

    def instance_of(self, uid: str) -> int:
        """Return the index of the instance that runs a task; -1 if there is none."""
        return self._runs_on.get(uid, -1)

    @property
    def stopped(self) -> bool:
        """True if no instance has a process or will have one."""
        return all(instance.state in (State.NEW, State.STOPPED, State.LOST) for instance in self.instances)

    # events

    def start(self) -> list[Command]:
        """Start all new instances."""
        return [command for index, instance in enumerate(self.instances) if instance.state is State.NEW
                for command in self._start(index)]

    def admit(self, demand: Demand) -> list[Command]:
        """Accept a task."""
        self.waiting[demand.uid] = demand
        return list(self._assign(demand))

    def forget(self, uid: str) -> list[Command]:
        """Remove a task, without counting a fault."""
        self.waiting.pop(uid, None)
        self.abandoned.pop(uid, None)
        index = self._runs_on.get(uid)
        if index is None:
            return []
        self._take_out(uid)
        return self._drained(index)

    def ready(self, index: int) -> list[Command]:
        """Note that an instance can launch tasks."""
        instance = self.instances[index]
        if instance.state is not State.STARTING:
            return []
        instance.enter(State.READY)
        return self._assign_all()

    def done(self, uid: str) -> list[Command]:
        """Note that the launch of a task has ended normally, whatever the outcome of the task."""
        index = self._runs_on.get(uid)
        if index is None:
            return self.forget(uid)
        self._take_out(uid)
        instance = self.instances[index]
        instance.starts, instance.faults = 1, 0
        return self._drained(index)

    def failed(self, uid: str, reason: str, *, blame: bool = True, started: bool = True) -> list[Command]:
        """Note that the launch of a task has failed for a reason outside of the task; count a fault with `blame`.

        A task that has not `started` waits again; its launch does not count.
        """
        if uid in self.abandoned:
            return self._retry(self.abandoned.pop(uid), reason, started)
        index = self._runs_on.get(uid)
        if index is None:
            return []
        demand = self._take_out(uid)
        instance = self.instances[index]
        instance.faults += blame
        if instance.state is State.READY and instance.faults >= FAULTS:
            instance.enter(State.DRAINING, f'{instance.faults} launches in a row have failed, the last one: {reason}')
        return [*self._drained(index), *self._retry(demand, reason, started)]

    def overdue(self, index: int, reason: str) -> list[Command]:
        """Note that an instance is not ready in time."""
        instance = self.instances[index]
        if instance.state is not State.STARTING:
            return []
        instance.reason = reason
        return [Kill(index)]

    def unreachable(self, index: int, reason: str) -> list[Command]:
        """Note that nothing can be launched with an instance any more, whose process is alive."""
        instance = self.instances[index]
        if instance.state not in (State.READY, State.DRAINING):
            return []
        instance.enter(State.DRAINING, reason)
        return [Kill(index)]

    def ended(self, index: int, reason: str) -> list[Command]:
        """Note that the process of an instance has ended."""
        instance = self.instances[index]
        reason = instance.reason or reason
        instance.reason = ''
        commands: list[Command] = []
        for uid in list(instance.running):
            self.abandoned[uid] = self._take_out(uid)
            commands.append(Abandon(uid, reason))
        if instance.state is State.STOPPING:
            instance.enter(State.STOPPED)
        elif instance.starts <= RESTARTS:
            commands += self._start(index)
        else:
            instance.enter(State.LOST, reason)
            commands += [Lost(index, reason), *self._assign_all()]
        return commands

    def stop(self) -> list[Command]:
        """Stop all instances."""
        commands: list[Command] = []
        for index, instance in enumerate(self.instances):
            if instance.state is State.NEW:
                instance.enter(State.STOPPED)
            elif instance.state not in _FINAL:
                instance.enter(State.STOPPING)
                commands.append(Stop(index))
        return commands

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""
        uids = [*self.waiting, *self.abandoned, *(uid for instance in self.instances for uid in instance.running)]
        assert len(uids) == len(set(uids)), f'tasks in several places: {sorted(uids)}'
        unlaunched = self.waiting.keys() | self.abandoned.keys()
        assert self._runs_on.keys() == set(uids) - unlaunched, 'unknown tasks run'
        for index, instance in enumerate(self.instances):
            assert instance.load == sum(demand.cores for demand in instance.running.values()), f'load of {index}'
            assert instance.state in (State.READY, State.DRAINING, State.STOPPING) or not instance.running, \
                f'instance {index} is {instance.state}, and has {list(instance.running)}'
            assert instance.starts <= 1 + RESTARTS, f'instance {index} was started too often'
        for demand in self.waiting.values():
            assert not self._usable(demand), f'{demand.uid} waits, although an instance is ready'

    # commands

    def _start(self, index: int) -> list[Command]:
        instance = self.instances[index]
        instance.enter(State.STARTING)
        instance.starts += 1
        instance.faults = 0
        return [Start(index)]

    def _assign_all(self) -> list[Command]:
        return [command for demand in list(self.waiting.values()) for command in self._assign(demand)]

    def _assign(self, demand: Demand) -> Iterator[Command]:
        """Launch a waiting task if an instance is ready; give it up if none will be."""
        usable = self._usable(demand)
        if usable:
            index = min(usable, key=lambda each: self.instances[each].load / self.instances[each].size)
            instance = self.instances[index]
            instance.running[demand.uid] = self.waiting.pop(demand.uid)
            self._runs_on[demand.uid] = index
            instance.load += demand.cores
            yield LaunchTask(demand.uid, index)
        elif all(self.instances[index].state in _FINAL for index in self._possible(demand)):
            del self.waiting[demand.uid]
            yield self._give_up(demand)

    def _possible(self, demand: Demand) -> Sequence[int]:
        return range(len(self.instances)) if demand.instance is None else (demand.instance,)

    def _usable(self, demand: Demand) -> list[int]:
        return [index for index in self._possible(demand) if self.instances[index].state is State.READY]

    def _give_up(self, demand: Demand) -> Command:
        """Return the command for a task that no instance will run."""
        index = self._possible(demand)[-1]
        instance = self.instances[index]
        which = 'no instance is left, the last one' if demand.instance is None else f'instance {index}'
        how = f'is lost: {instance.reason}' if instance.state is State.LOST else 'was stopped'
        others = any(each.state not in _FINAL for each in self.instances)
        again = demand.placed and others and instance.state is State.LOST and demand.retries < RETRIES
        return (PlaceAgain if again else Refuse)(demand.uid, f'{which} {how}')

    def _retry(self, demand: Demand, reason: str, started: bool) -> list[Command]:
        """Launch a task again, or refuse it after `RETRIES` retries."""
        demand.retries += started
        if demand.retries > RETRIES:
            return [Refuse(demand.uid, f'{demand.retries} launches have failed, the last one: {reason}')]
        return self.admit(demand)

    def _drained(self, index: int) -> list[Command]:
        instance = self.instances[index]
        return [Kill(index)] if instance.state is State.DRAINING and not instance.running else []

    def _take_out(self, uid: str) -> Demand:
        instance = self.instances[self._runs_on.pop(uid)]
        demand = instance.running.pop(uid)
        instance.load -= demand.cores
        return demand

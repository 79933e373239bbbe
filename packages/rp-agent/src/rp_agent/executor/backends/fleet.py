"""Which instance runs a task, and what follows when instances or launches fail: events in, commands out.

    NEW -> STARTING -> READY -> DRAINING -+-> STARTING, if it may be started again
                |        |                +-> LOST
                +--------+--> STOPPING -> STOPPED

Rules of this file:

- A task waits here until an instance takes it, and is known here until its launch has ended.
- Some tasks have to run on a certain instance, because their slots are there or because the application says so. The
  others go to the one with the least load for its size.
- An instance whose process has ended, or that was not ready in time, is started again, `RESTARTS` times without a task
  done in between; then it is lost. After `FAULTS` failed launches in a row it gets no more tasks, and is ended and
  started again when those that it has are done.
- A task whose launch has failed, or whose instance is gone, is launched again, `RETRIES` times: it may be the reason.
  What is left of the old launch has to end before that.
- No clocks, no processes: the supervisor tells what happens, and does what it is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

RESTARTS = 3
FAULTS = 3
RETRIES = 2   # fewer than restarts: a task that breaks its instance is refused before it has cost one


class State(Enum):
    """What an instance is doing."""

    NEW = 'new'
    STARTING = 'starting'
    READY = 'ready'
    DRAINING = 'draining'
    STOPPING = 'stopping'
    STOPPED = 'stopped'
    LOST = 'lost'


_GONE = (State.STOPPING, State.STOPPED, State.LOST)


@dataclass(frozen=True, slots=True)
class Start:
    """Start the process of an instance."""

    instance: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Have the process of an instance end in order."""

    instance: int


@dataclass(frozen=True, slots=True)
class Kill:
    """End the process of an instance at once."""

    instance: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch a task with an instance."""

    uid: str
    instance: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """End what is left of the launch of a task, whose instance is gone, and tell that it has failed or is done."""

    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlaceAgain:
    """Find another place for a task: the instance of the one that it has is lost."""

    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Fail a task."""

    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Use the nodes of an instance no more."""

    instance: int
    reason: str


Command = Start | Stop | Kill | Launch | Abandon | PlaceAgain | Refuse | Lost


@dataclass(slots=True)
class Demand:
    """A task: how many cores it uses, and the instance that it has to run on, None if any will do.

    `placed` tells that it has slots on that instance, and could be given others.
    """

    uid: str
    cores: int
    instance: int | None = None
    placed: bool = False
    retries: int = 0


@dataclass(slots=True)
class Instance:
    """One instance; `size` is its number of nodes, `starts` and `faults` count since the last task that was done."""

    size: int
    state: State = State.NEW
    starts: int = 0
    faults: int = 0
    load: int = 0
    reason: str = ''
    running: dict[str, Demand] = field(default_factory=dict)


class Fleet:
    """The instances of a pilot, of which each has so many nodes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.instances = [Instance(size) for size in sizes]
        self.waiting: dict[str, Demand] = {}
        self.abandoned: dict[str, Demand] = {}
        self._runs_on: dict[str, int] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self.waiting or uid in self._runs_on or uid in self.abandoned

    def instance_of(self, uid: str) -> int:
        """Which instance the task was launched with; -1 if it was not, or that one is gone."""
        return self._runs_on.get(uid, -1)

    @property
    def stopped(self) -> bool:
        """Whether no instance has a process, nor will have one."""
        return all(instance.state in (State.NEW, State.STOPPED, State.LOST) for instance in self.instances)

    # what the supervisor tells

    def start(self) -> list[Command]:
        """Instances are needed from now on."""
        return [command for index, instance in enumerate(self.instances) if instance.state is State.NEW
                for command in self._start(index)]

    def admit(self, demand: Demand) -> list[Command]:
        """A task has come."""
        self.waiting[demand.uid] = demand
        return list(self._assign(demand))

    def forget(self, uid: str) -> list[Command]:
        """The task is no matter of ours any more, and nobody is to blame."""
        self.waiting.pop(uid, None)
        self.abandoned.pop(uid, None)
        index = self._runs_on.get(uid)
        if index is None:
            return []
        self._take_out(uid)
        return self._drained(index)

    def ready(self, index: int) -> list[Command]:
        """The instance can launch tasks."""
        instance = self.instances[index]
        if instance.state is not State.STARTING:
            return []
        instance.state = State.READY
        return self._assign_all()

    def done(self, uid: str) -> list[Command]:
        """The launch of a task has ended as it should, whatever the task has made of it."""
        index = self._runs_on.get(uid)
        if index is None:
            return self.forget(uid)
        self._take_out(uid)
        instance = self.instances[index]
        instance.starts, instance.faults = 1, 0
        return self._drained(index)

    def failed(self, uid: str, reason: str, *, blame: bool = True) -> list[Command]:
        """The launch of a task has failed, and that is not the task's fault; nor, perhaps, that of the instance."""
        if uid in self.abandoned:
            return self._retry(self.abandoned.pop(uid), reason)
        index = self._runs_on.get(uid)
        if index is None:
            return []
        demand = self._take_out(uid)
        instance = self.instances[index]
        instance.faults += blame
        if instance.state is State.READY and instance.faults >= FAULTS:
            instance.state = State.DRAINING
            instance.reason = f'{instance.faults} launches in a row have failed, the last one: {reason}'
        return [*self._drained(index), *self._retry(demand, reason)]

    def overdue(self, index: int, reason: str) -> list[Command]:
        """The instance was to be ready by now."""
        instance = self.instances[index]
        if instance.state is not State.STARTING:
            return []
        instance.reason = reason
        return [Kill(index)]

    def ended(self, index: int, reason: str) -> list[Command]:
        """The process of the instance has ended."""
        instance = self.instances[index]
        reason = instance.reason or reason
        instance.reason = ''
        commands: list[Command] = []
        for uid in list(instance.running):
            self.abandoned[uid] = self._take_out(uid)
            commands.append(Abandon(uid, reason))
        if instance.state is State.STOPPING:
            instance.state = State.STOPPED
        elif instance.starts <= RESTARTS:
            commands += self._start(index)
        else:
            instance.state = State.LOST
            instance.reason = reason
            commands += [Lost(index, reason), *self._assign_all()]
        return commands

    def stop(self) -> list[Command]:
        """No instance is needed any more."""
        commands: list[Command] = []
        for index, instance in enumerate(self.instances):
            if instance.state is State.NEW:
                instance.state = State.STOPPED
            elif instance.state not in _GONE:
                instance.state = State.STOPPING
                commands.append(Stop(index))
        return commands

    def check(self) -> None:
        """Verify all invariants; raises AssertionError."""
        uids = [*self.waiting, *self.abandoned, *(uid for instance in self.instances for uid in instance.running)]
        assert len(uids) == len(set(uids)), f'tasks in several places: {sorted(uids)}'
        unlaunched = self.waiting.keys() | self.abandoned.keys()
        assert self._runs_on.keys() == set(uids) - unlaunched, 'tasks run that nobody knows'
        for index, instance in enumerate(self.instances):
            assert instance.load == sum(demand.cores for demand in instance.running.values()), f'load of {index}'
            assert instance.state in (State.READY, State.DRAINING, State.STOPPING) or not instance.running, \
                f'instance {index} is {instance.state}, and has {list(instance.running)}'
            assert instance.starts <= 1 + RESTARTS, f'instance {index} was started too often'
        for demand in self.waiting.values():
            assert not self._usable(demand), f'{demand.uid} waits for nothing'

    # what follows

    def _start(self, index: int) -> list[Command]:
        instance = self.instances[index]
        instance.state = State.STARTING
        instance.starts += 1
        instance.faults = 0
        return [Start(index)]

    def _assign_all(self) -> list[Command]:
        return [command for demand in list(self.waiting.values()) for command in self._assign(demand)]

    def _assign(self, demand: Demand) -> Iterator[Command]:
        """Launch a waiting task, if there is an instance for it; give it up if there never will be."""
        usable = self._usable(demand)
        if usable:
            index = min(usable, key=lambda each: self.instances[each].load / self.instances[each].size)
            instance = self.instances[index]
            instance.running[demand.uid] = self.waiting.pop(demand.uid)
            self._runs_on[demand.uid] = index
            instance.load += demand.cores
            yield Launch(demand.uid, index)
        elif all(self.instances[index].state in _GONE for index in self._possible(demand)):
            del self.waiting[demand.uid]
            yield self._give_up(demand)

    def _possible(self, demand: Demand) -> Sequence[int]:
        return range(len(self.instances)) if demand.instance is None else (demand.instance,)

    def _usable(self, demand: Demand) -> list[int]:
        return [index for index in self._possible(demand) if self.instances[index].state is State.READY]

    def _give_up(self, demand: Demand) -> Command:
        """No instance that could run the task will come."""
        index = self._possible(demand)[-1]
        instance = self.instances[index]
        which = 'no instance is left, the last one' if demand.instance is None else f'instance {index}'
        how = f'is lost: {instance.reason}' if instance.state is State.LOST else 'was stopped'
        others = any(each.state not in _GONE for each in self.instances)
        again = demand.placed and others and instance.state is State.LOST and demand.retries < RETRIES
        return (PlaceAgain if again else Refuse)(demand.uid, f'{which} {how}')

    def _retry(self, demand: Demand, reason: str) -> list[Command]:
        """A task is to be launched again, unless that was done often enough."""
        demand.retries += 1
        if demand.retries > RETRIES:
            return [Refuse(demand.uid, f'launched {demand.retries} times in vain, the last time: {reason}')]
        return self.admit(demand)

    def _drained(self, index: int) -> list[Command]:
        instance = self.instances[index]
        return [Kill(index)] if instance.state is State.DRAINING and not instance.running else []

    def _take_out(self, uid: str) -> Demand:
        instance = self.instances[self._runs_on.pop(uid)]
        demand = instance.running.pop(uid)
        instance.load -= demand.cores
        return demand

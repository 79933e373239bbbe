"""The launchers of a simulated pilot: the agent's own fleet says which one has which task, and what if one fails.

Each launcher has its part of the nodes. As many as the model says fail at some time, and cannot be started again: that
is tried as often, and takes as long, as in a pilot. Then their nodes are lost, and their tasks are placed on others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from rp_agent.executor.backends import fleet
from rp_agent.executor.backends.fleet import Demand, Fleet
from rp_agent.executor.backends.launcher import InstanceLauncher
from rp_agent.simulation.launching import Launcher
from rp_agent.task import AgentTask
from rp_api.errors import DescriptionError
from rp_api.simulation.clock import VirtualClock
from rp_api.simulation.model import Cost

LOST = 'has ended, as the model says'


class FleetEvents(Protocol):
    """What launchers tell, besides what each of them tells of its tasks."""

    def started(self, number: int, *, ready: bool) -> None:
        """A launcher was started, and is `ready` for tasks, or never will be; each start has its number."""

    def stopped(self, number: int) -> None:
        """The launcher that was started with this number is gone."""

    def given_up(self, task: AgentTask) -> None:
        """The launcher of a task is gone before its program has ended."""

    def place_again(self, task: AgentTask) -> None:
        """The nodes of a task are lost."""

    def refused(self, task: AgentTask, reason: str) -> None:
        """No launcher will launch a task."""

    def nodes_lost(self, nodes: range, reason: str) -> None:
        """Nothing is launched on these nodes any more."""


class Launchers:
    """Launchers with these parts of the nodes, of which `lost` fail, each after a time that is drawn from `life`."""

    def __init__(self, clock: VirtualClock, parts: Sequence[range], make: Callable[[], Launcher], lost: int, life: Cost,
                 random: Random, events: FleetEvents) -> None:
        if lost > len(parts):
            raise DescriptionError(f'model.lost_launchers is {lost}, and there are {len(parts)} launcher(s)')
        self._clock = clock
        self._parts = parts
        self._firsts = [part.start for part in parts]
        self._launchers = [make() for _ in parts]
        self._fleet = Fleet([len(part) for part in parts])
        self._lives = {index: life.draw(random) for index in sorted(random.sample(range(len(parts)), lost))}
        self._events = events
        self._tasks: dict[str, AgentTask] = {}
        """Those that are here, by their uid."""
        self._stopped = False
        self._starts = 0
        self._numbers: dict[int, int] = {}
        """Of the starts of those launchers that are there."""

    def start(self) -> None:
        """Start all launchers."""
        self._do(self._fleet.start())
        for index, life in self._lives.items():
            self._clock.call_later(life, self._fail, index)

    def put(self, task: AgentTask) -> None:
        """Have a task launched by the launcher that has its nodes, or by any if the policy places it nowhere."""
        self._tasks[task.uid] = task
        description, index = task.description, None
        if task.placement is not None:
            index = bisect_right(self._firsts, min(task.placement.nodes())) - 1
        cores = description['ranks'] * description['cores_per_rank']
        can_move = index is not None and not description['slots']
        self._do(self._fleet.admit(Demand(task.uid, cores, index, placed=can_move)))

    def done(self, task: AgentTask) -> None:
        """A task has left its launcher."""
        del self._tasks[task.uid]
        self._do(self._fleet.done(task.uid))

    def stop(self) -> list[AgentTask]:
        """End all launchers; gives the tasks that they had, or that waited for one."""
        self._stopped = True
        for launcher in self._launchers:
            launcher.stop()
        for index in list(self._numbers):
            self._gone(index)
        left, self._tasks = list(self._tasks.values()), {}
        return left

    def _do(self, commands: Sequence[fleet.Command]) -> None:
        for command in commands:
            if self._stopped:   # by what has followed from the command before
                return
            if isinstance(command, fleet.Launch):
                self._launchers[command.instance].put(self._tasks[command.uid])
            elif isinstance(command, fleet.Start):
                self._start(command.instance)
            elif isinstance(command, fleet.Kill):
                self._ended(command.instance)
            elif isinstance(command, fleet.PlaceAgain):
                self._events.place_again(self._tasks.pop(command.uid))
            elif isinstance(command, fleet.Refuse):
                self._events.refused(self._tasks.pop(command.uid), command.reason)
            elif isinstance(command, fleet.Lost):
                self._events.nodes_lost(self._parts[command.instance], command.reason)

    def _start(self, index: int) -> None:
        """Start a launcher; one that has failed before hangs until it has used up its time."""
        self._numbers[index] = number = self._starts
        self._starts += 1
        is_ready = self._fleet.instances[index].starts == 1
        self._events.started(number, ready=is_ready)
        if is_ready:
            self._do(self._fleet.ready(index))
        else:
            self._clock.call_later(InstanceLauncher.SECONDS_TO_START, self._overdue, index)

    def _overdue(self, index: int) -> None:
        if index in self._numbers:
            limit = InstanceLauncher.SECONDS_TO_START
            self._do(self._fleet.overdue(index, f'was not ready within {limit:g} s'))

    def _fail(self, index: int) -> None:
        """A launcher fails, and with it what it has not brought to an end."""
        if index not in self._numbers:
            return
        gone = self._launchers[index].fail()
        for task in gone:
            self._events.given_up(task)
        self._ended(index)
        for task in gone:
            self._do(self._fleet.failed(task.uid, LOST))

    def _ended(self, index: int) -> None:
        self._gone(index)
        self._do(self._fleet.ended(index, LOST))

    def _gone(self, index: int) -> None:
        self._events.stopped(self._numbers.pop(index))

"""The launchers of a simulated pilot. The agent's fleet assigns tasks to launchers and handles failed launchers.

Each launcher has a part of the nodes. The number of launchers in the model fails during the run and cannot be
restarted: attempts are as many and take as long as in a real pilot. Then their nodes are lost, and their tasks are
placed on other nodes.
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

LOST = 'has failed, as the model specifies'


class FleetEvents(Protocol):
    """Events of the fleet; `LaunchEvents` has the events of a task at its launcher."""

    def started(self, number: int, *, ready: bool) -> None:
        """A launcher was started, as the start with this number; it never becomes ready unless `ready` is set."""

    def stopped(self, number: int) -> None:
        """The launcher of the start with this number has ended."""

    def given_up(self, task: AgentTask) -> None:
        """The launcher of a task has ended before the task's program."""

    def place_again(self, task: AgentTask) -> None:
        """The nodes of a task are lost."""

    def refused(self, task: AgentTask, reason: str) -> None:
        """No launcher accepts the task."""

    def nodes_lost(self, nodes: range, reason: str) -> None:
        """These nodes are lost for launching."""


class SimulatedLaunchers:
    """One launcher per part of the nodes; `lost` of them fail, after times drawn from `life`."""

    def __init__(self, clock: VirtualClock, parts: Sequence[range], make: Callable[[], Launcher], lost: int, life: Cost,
                 random: Random, events: FleetEvents) -> None:
        if lost > len(parts):
            raise DescriptionError(f'model.lost_launchers must be at most {len(parts)}, the number of launchers, '
                                   f'not {lost}')
        self._clock = clock
        self._parts = parts
        self._firsts = [part.start for part in parts]
        self._launchers = [make() for _ in parts]
        self._fleet = Fleet([len(part) for part in parts])
        self._lives = {index: life.draw(random) for index in sorted(random.sample(range(len(parts)), lost))}
        self._events = events
        self._tasks: dict[str, AgentTask] = {}
        """Tasks of all launchers, by uid."""
        self._stopped = False
        self._starts = 0
        self._numbers: dict[int, int] = {}
        """Number of the last start of each running launcher."""

    def start(self) -> None:
        """Start all launchers."""
        self._execute(self._fleet.start())
        for index, life in self._lives.items():
            self._clock.call_later(life, self._fail, index)

    def put(self, task: AgentTask) -> None:
        """Launch a task on the launcher of its nodes, or on any launcher if the policy does not place tasks."""
        self._tasks[task.uid] = task
        description, index = task.description, None
        if task.placement is not None:
            index = bisect_right(self._firsts, min(task.placement.nodes())) - 1
        cores = description['ranks'] * description['cores_per_rank']
        can_move = index is not None and not description['slots']
        self._execute(self._fleet.admit(Demand(task.uid, cores, index, placed=can_move)))

    def done(self, task: AgentTask) -> None:
        """Record that a task has left its launcher."""
        del self._tasks[task.uid]
        self._execute(self._fleet.done(task.uid))

    def stop(self) -> list[AgentTask]:
        """End all launchers; return their tasks, including those that wait for a launcher."""
        self._stopped = True
        for launcher in self._launchers:
            launcher.stop()
        for index in list(self._numbers):
            self._remove(index)
        left, self._tasks = list(self._tasks.values()), {}
        return left

    def _execute(self, commands: Sequence[fleet.Command]) -> None:
        for command in commands:
            if self._stopped:   # by an effect of the previous command
                return
            if isinstance(command, fleet.LaunchTask):
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
        """Start a launcher; one that has failed before hangs until the timeout."""
        self._numbers[index] = number = self._starts
        self._starts += 1
        is_ready = self._fleet.instances[index].starts == 1
        self._events.started(number, ready=is_ready)
        if is_ready:
            self._execute(self._fleet.ready(index))
        else:
            self._clock.call_later(InstanceLauncher.SECONDS_TO_START, self._overdue, index)

    def _overdue(self, index: int) -> None:
        if index in self._numbers:
            limit = InstanceLauncher.SECONDS_TO_START
            self._execute(self._fleet.overdue(index, f'was not ready within {limit:g} s'))

    def _fail(self, index: int) -> None:
        """End a launcher together with its unfinished tasks."""
        if index not in self._numbers:
            return
        interrupted = self._launchers[index].fail()
        for task in interrupted:
            self._events.given_up(task)
        self._ended(index)
        for task in interrupted:
            self._execute(self._fleet.failed(task.uid, LOST))

    def _ended(self, index: int) -> None:
        self._remove(index)
        self._execute(self._fleet.ended(index, LOST))

    def _remove(self, index: int) -> None:
        self._events.stopped(self._numbers.pop(index))

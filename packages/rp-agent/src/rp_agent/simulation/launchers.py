"""The launchers of a simulated pilot: compute when programs run, and when the agent learns that they have ended.

The agent's fleet assigns tasks to launchers and handles failed launchers. Each launcher has a part of the nodes. The
number of launchers in the model fails during the run and cannot be restarted: attempts are as many and take as long as
in a real pilot. Then their nodes are lost, and their tasks are placed on other nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from rp_agent.executor.backends import fleet
from rp_agent.executor.backends.fleet import Demand, Fleet
from rp_agent.executor.backends.launcher import InstanceLauncher
from rp_agent.task import AgentTask
from rp_api.errors import DescriptionError
from rp_api.simulation.contract import VirtualClock
from rp_api.simulation.model import Cost, Model

LOST = 'has failed, as the model specifies'


class LaunchEvents(Protocol):
    """Events of launchers, of tasks at a launcher, and of the fleet."""

    def took(self, task: AgentTask) -> None:
        """The launcher has taken a task and begins to launch it."""

    def runs(self, task: AgentTask) -> None:
        """The program of a task has started."""

    def ran(self, task: AgentTask) -> None:
        """The program of a task has ended."""

    def done(self, task: AgentTask) -> None:
        """The agent has learnt that a task has ended, or could not be launched."""

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


class Storage:
    """The file system that all launchers of a pilot share; serves launches one after the other."""

    def __init__(self, clock: VirtualClock, cost: Cost, nodes: int, random: Random) -> None:
        self._clock = clock
        self._cost = cost
        self._nodes = nodes
        self._random = random
        self._free_at = 0.0
        self._served = 0

    def serve(self) -> float:
        """Return the seconds until it has served a launch that begins now, after all earlier ones."""
        took = self._cost.draw(self._random, self._nodes, self._served)
        self._served += 1
        self._free_at = max(self._free_at, self._clock.now) + took
        return self._free_at - self._clock.now


class Launcher:
    """Takes tasks and collects ended ones, within the rates and the concurrency of the model.

    `nodes` is the number of nodes of the pilot. `storage` is shared with the other launchers. `duration` returns the
    run time of a task's program in seconds by the uid.
    """

    def __init__(self, clock: VirtualClock, model: Model, nodes: int, random: Random, storage: Storage,
                 duration: Callable[[str], float], events: LaunchEvents) -> None:
        self._clock = clock
        self._model = model
        self._nodes = nodes
        self._random = random
        self._storage = storage
        self._duration = duration
        self._events = events
        self._interval = 1 / model.launch_rate if model.launch_rate else 0.0
        self._free_at = 0.0
        self._collect_interval = 1 / model.acknowledge_rate if model.acknowledge_rate else 0.0
        self._collects_at = 0.0
        self._waiting: deque[AgentTask] = deque()
        # dicts keep the order; a task that is in none of them was ended
        self._launching: dict[AgentTask, None] = {}
        self._running: dict[AgentTask, None] = {}
        self._ended: dict[AgentTask, None] = {}
        self._used: set[int] = set()
        self._due = False

    def put(self, task: AgentTask) -> None:
        """Launch a task as soon as possible."""
        self._waiting.append(task)
        self._take_waiting()

    def fail(self) -> list[AgentTask]:
        """End at once; return the tasks whose programs have not ended. Ended ones are still acknowledged."""
        unfinished = [*self._waiting, *self._launching, *self._running]
        for tasks in (self._waiting, self._launching, self._running):
            tasks.clear()
        return unfinished

    def stop(self) -> None:
        """End at once, without further events."""
        self.fail()
        self._ended.clear()

    @property
    def _tasks(self) -> int:
        """Number of tasks taken and not acknowledged."""
        return len(self._launching) + len(self._running) + len(self._ended)

    def _take_waiting(self) -> None:
        """Take the tasks that can be taken now, and schedule a call for the others."""
        clock = self._clock
        while self._waiting and not self._due and not self._is_full():
            if self._free_at > clock.now:
                self._due = True
                clock.call_at(self._free_at, self._on_free)
                return
            self._free_at = clock.now + self._interval
            self._take(self._waiting.popleft())

    def _is_full(self) -> bool:
        """Return whether the limits of the model on concurrent tasks and launches are reached."""
        model = self._model
        return (0 < model.concurrent <= self._tasks) or (0 < model.launching <= len(self._launching))

    def _on_free(self) -> None:
        self._due = False
        self._take_waiting()

    def _take(self, task: AgentTask) -> None:
        self._launching[task] = None
        wait = self._storage.serve()
        if wait:
            self._clock.call_later(wait, self._launch, task)
        else:
            self._launch(task)

    def _launch(self, task: AgentTask) -> None:
        if task not in self._launching:
            return
        self._events.took(task)
        model, random = self._model, self._random
        fails = bool(model.failures) and random.random() < model.failures
        delay = model.launch.draw(random, self._nodes, self._tasks)
        if model.first_launch.mean(self._nodes):
            delay += self._first_launch(task)
        self._clock.call_later(delay, self._failed if fails else self._runs, task)

    def _first_launch(self, task: AgentTask) -> float:
        """Return the additional seconds of the first launch on a node, if this is one."""
        nodes = task.placement.nodes() if task.placement else ()
        if self._used.issuperset(nodes):
            return 0.0
        self._used.update(nodes)
        return self._model.first_launch.draw(self._random, self._nodes)

    def _runs(self, task: AgentTask) -> None:
        if task not in self._launching:
            return
        del self._launching[task]
        self._running[task] = None
        self._events.runs(task)
        self._clock.call_later(self._duration(task.uid), self._ran, task)
        self._take_waiting()

    def _ran(self, task: AgentTask) -> None:
        if task not in self._running:
            return
        self._events.ran(task)
        now = self._clock.now
        self._collects_at = max(self._collects_at, now) + self._collect_interval
        delay = self._model.acknowledge.draw(self._random, self._nodes, self._tasks)
        del self._running[task]
        self._ended[task] = None
        self._clock.call_later(self._collects_at - now + delay, self._done, task)

    def _done(self, task: AgentTask) -> None:
        if task not in self._ended:
            return
        del self._ended[task]
        self._events.done(task)
        self._take_waiting()

    def _failed(self, task: AgentTask) -> None:
        if task not in self._launching:
            return
        del self._launching[task]
        self._ended[task] = None
        task.fail('the launcher has failed', f'the model specifies a share of {self._model.failures:g} of all tasks')
        self._done(task)


class SimulatedLaunchers:
    """One launcher per part of the nodes; `lost` of them fail, after times drawn from `life`."""

    def __init__(self, clock: VirtualClock, parts: Sequence[range], make: Callable[[], Launcher], lost: int, life: Cost,
                 random: Random, events: LaunchEvents) -> None:
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

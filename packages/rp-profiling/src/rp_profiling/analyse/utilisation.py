"""Resource utilisation, time to execution and overhead, as the paper below defines them.

- TTX is the time from the arrival of the first task at the agent's scheduler to the end of the last one.
- OVH is the time during which resources are available and no task runs.
- RU is the share of the available device-time that is spent on each activity of `ACTIVITIES`.

Source: Merzky et al., *Design and Performance Characterization of RADICAL-Pilot on Leadership-class
Platforms*, section IV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rp_profiling.analyse.intervals import union
from rp_profiling.analyse.occupation import Occupation
from rp_profiling.read.calls import Calls, read_calls
from rp_profiling.read.columns import TICKS
from rp_profiling.read.description import Description
from rp_profiling.read.trace import NEVER, Times, Trace
from rp_profiling.write.slots import CORE, GPU

ACTIVITIES = {
    'bootstrap': 'the pilot has the devices, and its agent starts',
    'scheduling': 'tasks wait for the scheduler while the devices are free',
    'prepare exec': 'the devices are assigned to tasks that do not run yet',
    'exec cmd': 'tasks run on the devices',
    'launcher': 'tasks have ended, and the end is not acknowledged or the devices are not released',
    'draining': 'all tasks are placed and the devices are free, while other tasks still run',
    'idle': 'the devices are free, and no task waits',
    'termination': 'the pilot ends',
}
_FREE = 'free'

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Utilisation:
    """The use of the devices of one kind, on all pilots together.

    From `times[i]` (seconds since the start of the trace) to the next one, `levels[activity][i]` devices are so used.
    """

    kind: str
    times: Array
    levels: Mapping[str, Array]

    @property
    def available(self) -> float:
        """Device-seconds that were available."""
        return sum(self.spent.values())

    @property
    def spent(self) -> dict[str, float]:
        """Device-seconds by activity."""
        lengths = np.diff(self.times)
        return {name: float((level[:-1] * lengths).sum()) for name, level in self.levels.items()}

    @property
    def shares(self) -> dict[str, float]:
        """Percent of the available device-time by activity; all 0 where there was none."""
        available = self.available
        return {name: 100 * spent / available if available else 0.0 for name, spent in self.spent.items()}

    @property
    def most(self) -> float:
        """The largest number of devices at a time."""
        return float(sum(self.levels.values(), np.zeros(len(self.times))).max(initial=0.0))


@dataclass(frozen=True)
class _Pilot:
    place: int
    start: int
    active: int
    ending: int
    stop: int
    amounts: Mapping[str, float]


class Analysis:
    """Figures of one session; `description` has facts that traces of older versions lack."""

    def __init__(self, trace: Trace, description: Description | None = None) -> None:
        self.trace = trace
        self.occupation = Occupation(trace)
        self._description = description or Description()
        self._utilisations: dict[str, Utilisation] = {}
        self._pilots = self._find_pilots()
        self.runs = self._find_runs()
        """For each entity, the start and the end of its program, as precisely as the trace has them."""
        self._begins, self._ends = self.runs

    @cached_property
    def calls(self) -> Calls:
        """The function calls that ranks of RAPTOR workers have recorded."""
        return read_calls(self.trace)

    @property
    def ttx(self) -> float:
        """Seconds from the arrival of the first task at a scheduler of an agent to the end of the last one."""
        first = self.trace.entered('AGENT_SCHEDULING')
        ran = self._ends[self._ends != NEVER]
        return float(ran.max() - first.min()) / TICKS if len(ran) and first.min() != NEVER else 0.0

    @property
    def overhead(self) -> float:
        """Seconds during which a pilot had its resources and no task ran."""
        there = union([(pilot.start, pilot.stop) for pilot in self._pilots])
        ran = (self._begins != NEVER) & (self._ends != NEVER)
        runs: list[tuple[int, int]] = union(zip(self._begins[ran].tolist(), self._ends[ran].tolist(), strict=True))
        length = sum(stop - start for start, stop in there)
        running = sum(max(0, min(stop, last) - max(start, first)) for start, stop in there for first, last in runs)
        return (length - running) / TICKS

    def utilisation(self, kind: str = CORE) -> Utilisation:
        """Return the use of the devices of a kind (`core` or `GPU`)."""
        if kind not in (CORE, GPU):
            raise ValueError(f'kind must be {CORE!r} or {GPU!r}, it is {kind!r}')
        if kind not in self._utilisations:
            self._utilisations[kind] = self._utilisation(kind)
        return self._utilisations[kind]

    def _utilisation(self, kind: str) -> Utilisation:
        changes = _Changes()
        for pilot in self._pilots:
            amount = pilot.amounts[kind]
            changes.add('bootstrap', np.array([pilot.start]), np.array([amount]))
            changes.move('bootstrap', _FREE, np.array([pilot.active]), np.array([amount]))
            changes.move(_FREE, 'termination', np.array([pilot.ending]), np.array([amount]))
            changes.add('termination', np.array([pilot.stop]), np.array([-amount]))
            self._add_stays(changes, pilot, kind)
        times, levels = changes.levels()
        stops = self.occupation.stop
        placed, freed = self.occupation.start.max(initial=0), stops[stops != NEVER].max(initial=0)
        times, levels = _split(times, levels, self._waiting(), int(placed), int(freed))
        return Utilisation(kind, (times - self.trace.span[0]) / TICKS, levels)

    def _find_pilots(self) -> list[_Pilot]:
        """Return the time for which each pilot had its resources, from its bootstrapper's or its agent's profile."""
        trace, found = self.trace, []
        active_at = trace.entered('PMGR_ACTIVE')
        times, places = trace.columns.time, trace.place_of_source[trace.columns.source]
        cancels = trace.rows_of('cmd')
        for place, name in enumerate(trace.places):
            here = times[places == place] if name or len(trace.places) == 1 else times[:0]
            if not len(here):
                continue
            start, stop = int(here.min()), int(here.max())
            uid = trace.columns.uids.find(name) if name else -1
            active = int(active_at[uid]) if uid >= 0 and active_at[uid] != NEVER else start
            commands = [int(times[row]) for row in cancels if places[row] == place and
                        trace.columns.messages[trace.columns.message[row]].startswith('cancel_pilot')]
            active = min(max(active, start), stop)
            # tasks that run when the pilot is cancelled have their devices until they are killed
            freed = self.occupation.stop[(self.occupation.place == place) & (self.occupation.stop != NEVER)]
            ending = min(max(min(commands, default=stop), int(freed.max(initial=active))), stop)
            found.append(_Pilot(place, start, active, ending, stop, self._amounts(place, name)))
        return found

    def _amounts(self, place: int, name: str) -> dict[str, float]:
        """Return the devices of a pilot: from its agent, its description, or the largest number used at once."""
        told = self.occupation.resources.get(place)
        if told is not None:
            return {kind: float(told.of(kind)) for kind in (CORE, GPU)}
        if name in self._description.pilots:
            return dict(zip((CORE, GPU), map(float, self._description.pilots[name]), strict=True))
        stays = np.flatnonzero((self.occupation.place == place) & (self.occupation.stop != NEVER))
        found = {}
        for kind in (CORE, GPU):
            amounts = self._of_stays(kind)[stays]
            times = np.concatenate([self.occupation.start[stays], self.occupation.stop[stays]])
            order = np.argsort(times, kind='stable')
            found[kind] = float(np.cumsum(np.concatenate([amounts, -amounts])[order]).max(initial=0.0))
        return found

    def _of_stays(self, kind: str) -> Array:
        """Return the devices of each stay; a task of which nothing is known has one core."""
        if len(self.occupation.devices.table):
            return self.occupation.amounts(kind)
        uids, tasks = self.trace.columns.uids, self._description.tasks
        default = (1.0, 0.0)
        which = 0 if kind == CORE else 1
        return np.array([tasks.get(uids[int(task)], default)[which] for task in self.occupation.task], np.float64)

    def _find_runs(self) -> tuple[Times, Times]:
        """Return for each entity start and end of its program, as precisely as the trace has them."""
        trace = self.trace
        begins = self._last_begins()
        for event in ('exec_start', 'launch_submit', 'task_run_start'):
            begins = np.where(begins == NEVER, trace.first(event), begins)
        ends = trace.last('rank_stop')
        for event in ('exec_stop', 'launch_collect', 'task_run_stop'):
            ends = np.where(ends == NEVER, trace.last(event), ends)
        unrun = self._ended_before_they_ran()
        begins[unrun] = ends[unrun] = NEVER
        return begins, ends

    def _ended_before_they_ran(self) -> NDArray[np.bool_]:
        """Return for each entity whether it was killed, or returned, before a rank of it ran."""
        trace = self.trace
        ran = trace.first('rank_start') != NEVER
        killed = trace.first('task_run_cancel_start') != NEVER
        launched = (trace.first('launch_start') != NEVER) | (trace.first('exec_start') != NEVER)
        # without any `rank_start`, as in traces of older versions, this is unknown
        return np.asarray(~ran & (killed | ~launched) & ran.any(), np.bool_)

    def _last_begins(self) -> Times:
        """Return for each entity the start of its first rank, in the last placement if there were several."""
        trace, columns = self.trace, self.trace.columns
        begins = trace.first('rank_start')
        again = np.bincount(columns.uid[trace.rows_of('schedule_ok')], minlength=len(columns.uids)) > 1
        if again.any():
            placed, rows = trace.last('schedule_ok'), trace.rows_of('rank_start')
            last = np.full(len(begins), NEVER, np.int64)
            rows = rows[columns.time[rows] >= placed[columns.uid[rows]]]
            np.minimum.at(last, columns.uid[rows], columns.time[rows])
            begins = np.where(again, last, begins)
        return begins

    def _add_stays(self, changes: _Changes, pilot: _Pilot, kind: str) -> None:
        stays = np.flatnonzero(self.occupation.place == pilot.place)
        amounts = self._of_stays(kind)[stays]
        stays, amounts = stays[amounts > 0], amounts[amounts > 0]
        tasks = self.occupation.task[stays]
        start = np.clip(self.occupation.start[stays], pilot.active, pilot.ending)
        stop = np.clip(self.occupation.stop[stays], start, pilot.ending)   # NEVER: until the end
        # of a task that ran several times, the program's times belong to the last stay
        begin = np.where(self._begins[tasks] >= start, np.minimum(self._begins[tasks], stop), stop)
        end = np.clip(np.where(self._ends[tasks] == NEVER, stop, self._ends[tasks]), begin, stop)
        changes.move(_FREE, 'prepare exec', start, amounts)
        changes.move('prepare exec', 'exec cmd', begin, amounts)
        changes.move('exec cmd', 'launcher', end, amounts)
        changes.move('launcher', _FREE, stop, amounts)

    def _waiting(self) -> tuple[Times, NDArray[np.int64]]:
        """Return when tasks begin to wait at the scheduler, and when no task waits: (times, number then)."""
        trace = self.trace
        came, placed = trace.entered('AGENT_SCHEDULING'), trace.first('schedule_ok')
        known = (came != NEVER) & (placed != NEVER)
        times = np.concatenate([came[known], placed[known]])
        order = np.argsort(times, kind='stable')
        times, count = times[order], np.cumsum(np.repeat(np.array([1, -1]), int(known.sum()))[order])
        # only changes between none and some
        turns = np.flatnonzero(np.diff(count > 0, prepend=False))
        return times[turns], count[turns]


class _Changes:
    """Changes of the number of devices in each use, in any order."""

    def __init__(self) -> None:
        self._times: list[Times] = []
        self._activities: list[tuple[str, Array]] = []

    def add(self, activity: str, times: Times, amounts: Array) -> None:
        self._times.append(times)
        self._activities.append((activity, amounts))

    def move(self, before: str, after: str, times: Times, amounts: Array) -> None:
        self.add(before, times, -amounts)
        self.add(after, times, amounts)

    def levels(self) -> tuple[Times, dict[str, Array]]:
        """Return the times of all changes, and the number of devices in each use from then on."""
        if not self._times:
            return np.zeros(0, np.int64), {name: np.zeros(0) for name in (*ACTIVITIES, _FREE)}
        grid, place = np.unique(np.concatenate(self._times), return_inverse=True)
        levels = {name: np.zeros(len(grid)) for name in (*ACTIVITIES, _FREE)}
        first = 0
        for activity, amounts in self._activities:
            levels[activity] += np.bincount(place[first:first + len(amounts)], amounts, len(grid))
            first += len(amounts)
        return grid, {name: np.cumsum(change) for name, change in levels.items()}


def _split(times: Times, levels: dict[str, Array], waiting: tuple[Times, NDArray[np.int64]], placed: int,
           freed: int) -> tuple[Times, dict[str, Array]]:
    """Divide the free devices by the reason why they are free, which changes more often than their number."""
    when, how_many = waiting
    if not len(times):
        return times, {name: levels[name] for name in ACTIVITIES}
    grid = np.union1d(times, np.clip(np.concatenate([when, [placed, freed]]), times[0], times[-1]))
    levels = {name: level[np.searchsorted(times, grid, side='right') - 1] for name, level in levels.items()}
    free = levels.pop(_FREE)
    at = np.searchsorted(when, grid, side='right') - 1
    waits = (how_many[at] > 0) & (at >= 0) if len(when) else np.zeros(len(grid), np.bool_)
    drains = ~waits & (grid >= placed) & (grid < freed)
    levels['scheduling'] = np.where(waits, free, 0.0)
    levels['draining'] = np.where(drains, free, 0.0)
    levels['idle'] = np.where(waits | drains, 0.0, free)
    return grid, levels

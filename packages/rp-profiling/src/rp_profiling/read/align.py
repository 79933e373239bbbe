"""Aligns all events of a trace to one clock: that of the host which the other hosts compare their clocks with.

- Profiles record their host and the offset of its clock (`sync_abs`, mode `ntp`); the statement of one profile holds
  for all profiles of the host. `sync_rel` states it again later: in between, a clock is taken to drift evenly.
- Shells record no host. The profile of a task uses the clock of the executor that has started it, other profiles that
  of the agent in the same directory, unless they share a moment (`sync_rel`) with a profile of a known clock.
- Remaining offsets show as effects before their causes: the clock of a pilot is then moved by the least amount that
  restores their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rp_profiling.read.columns import TICKS
from rp_profiling.read.files import name_of
from rp_profiling.read.trace import NEVER, Times, Trace

Host = tuple[str, str]
Curve = dict[float, float]
"""Offset of a clock in seconds, at times by that clock."""

_ADVANCE = 'advance'

CONFLICT = 1.0
"""Seconds between two statements on one clock above which they are in conflict."""


def align(trace: Trace) -> None:
    """Move the times of all events to one clock."""
    clocks = _Clocks(trace)
    trace.remarks += conflicts(list(clocks.syncs.values()))
    _subtract(trace, clocks)
    _order_causes(trace)


def on_reference(trace: Trace, sync: Sync | None, place: int, times: Times) -> Times:
    """Return times by the clock of a host at a place as times on the clock of an aligned trace."""
    curve = sorted(_Clocks(trace).curves.get(sync.host, {}).items()) if sync else []
    if curve:
        points, seconds = np.array(curve).T
        times = times - np.rint(np.interp(times / TICKS, points, seconds) * TICKS).astype(np.int64)
    return times + trace.moved.get(place, 0)


class _Clocks:
    """The clocks of hosts, as their profiles describe them."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.syncs: dict[int, Sync] = {}
        """The first statement of each writer."""
        self.curves: dict[Host, Curve] = {}
        """The offset of each host's clock."""
        self._related: set[Host] = set()
        for row in trace.rows_of('sync_abs'):
            if sync := self._said(row):
                self.syncs[self._writer(row)] = sync
        for row in trace.rows_of('sync_rel'):
            if sync := self._said(row):
                self._related.add(sync.host)

    def curve_of(self, writer: int) -> Curve:
        """Return the offset of this writer's clock; empty if it is unknown."""
        sync = self.syncs.get(writer) or self._beside(writer)
        if sync is None:
            return {}
        if sync.mode == 'ntp' and sync.host not in self._related:
            return {sync.here: sync.ahead}
        return self.curves.get(sync.host, {})

    def _said(self, row: int) -> Sync | None:
        columns = self._trace.columns
        sync = parse_sync(columns.messages[columns.message[row]])
        if sync is not None and sync.mode == 'ntp':
            self.curves.setdefault(sync.host, {})[sync.here] = sync.ahead
        return sync

    def _writer(self, row: int) -> int:
        return int(self._trace.writer_of_source[self._trace.columns.source[row]])

    @cached_property
    def _started(self) -> Times:
        """For each task, the row in which the executor has recorded its start."""
        return self._trace.first_row('task_run_start')

    @cached_property
    def _agents(self) -> dict[int, Sync]:
        """The statement of each place's agent; that of another writer there if the agent has none."""
        trace = self._trace
        found: dict[int, Sync] = {}
        for writer, sync in self.syncs.items():
            file = trace.files[trace.writers[writer].file]
            place = trace.places.index(file.place)
            if place not in found or file.path.name.startswith('agent_0'):
                found[place] = sync
        return found

    def _beside(self, writer: int) -> Sync | None:
        """Return the statement of the clock that a writer without statements uses."""
        trace = self._trace
        file = trace.files[trace.writers[writer].file]
        task = trace.columns.uids.find(name_of(file.path))
        if task >= 0 and self._started[task] >= 0:
            return self.syncs.get(self._writer(int(self._started[task])))
        return self._agents.get(trace.places.index(file.place))


def _subtract(trace: Trace, clocks: _Clocks) -> None:
    """Subtract from all times the offset of their host's clock."""
    columns = trace.columns
    ahead = -_relative(trace, clocks)
    drifting: dict[tuple[tuple[float, float], ...], list[int]] = {}
    for source, writer in enumerate(trace.writer_of_source if clocks.curves else ()):
        curve = sorted(clocks.curve_of(int(writer)).items())
        if len(curve) == 1:
            ahead[source] += round(curve[0][1] * TICKS)
        elif curve:
            drifting.setdefault(tuple(curve), []).append(source)
    if not ahead.any() and not drifting:
        return
    by_row: Times = ahead[columns.source]
    for points, sources in drifting.items():
        rows = np.isin(columns.source, sources)
        times, seconds = np.array(points).T
        by_row[rows] += np.rint(np.interp(columns.time[rows] / TICKS, times, seconds) * TICKS).astype(np.int64)
    columns.time[:] -= by_row


def _relative(trace: Trace, clocks: _Clocks) -> Times:
    """Return the move of each source without statements that shares a moment with one that has some."""
    columns = trace.columns
    moved = np.zeros(len(columns.sources), np.int64)
    known: dict[int, int] = {}
    unknown: dict[int, tuple[int, int]] = {}
    for row in trace.rows_of('sync_rel'):
        message, writer = int(columns.message[row]), int(trace.writer_of_source[columns.source[row]])
        if writer in clocks.syncs:
            known[message] = int(columns.time[row]) - round(clocks.syncs[writer].ahead * TICKS)
        else:
            unknown[writer] = (message, int(columns.time[row]))
    for writer, (message, time) in unknown.items():
        if message in known:
            moved[trace.writer_of_source == writer] = known[message] - time
    return moved


def _order_causes(trace: Trace) -> None:
    """Move clocks of pilots if tasks arrive at an agent before they were sent, or return before they left it."""
    if len(trace.places) < 2:
        return
    columns = trace.columns
    rows = trace.rows_of(_ADVANCE)
    place = trace.place_of_source[columns.source[rows]]
    sent, arrived = trace.entered('AGENT_STAGING_INPUT_PENDING'), trace.entered('AGENT_STAGING_INPUT')
    left, back = trace.last(_ADVANCE, 'TMGR_STAGING_OUTPUT_PENDING'), trace.last(_ADVANCE, 'TMGR_STAGING_OUTPUT')
    for number in range(1, len(trace.places)):
        tasks = np.unique(columns.uid[rows[place == number]])
        only = tasks[(sent[tasks] != NEVER) & (arrived[tasks] != NEVER)]
        away = tasks[(left[tasks] != NEVER) & (back[tasks] != NEVER)]
        there = int((arrived[only] - sent[only]).min()) if len(only) else None
        home = int((back[away] - left[away]).min()) if len(away) else None
        moved = int(shift(there, home))
        if moved:
            columns.time[trace.place_of_source[columns.source] == number] += moved
            trace.moved[number] = moved
            trace.remarks.append(f'the clock of {trace.places[number]} was moved by {moved / TICKS:.3f} s, so that '
                                 f'tasks do not arrive before they were sent')


@dataclass(frozen=True)
class Sync:
    """A statement on a clock: its host (name and address), its time, and the seconds by which it is ahead."""

    host: tuple[str, str]
    here: float
    ahead: float
    mode: str


def parse_sync(message: str) -> Sync | None:
    """Return the statement in the message of a `sync_abs` or `sync_rel`; None if it names no host."""
    fields = message.split(':')
    if len(fields) < 5:   # shells write a time only
        return None
    host, mode = (fields[0], ':'.join(fields[1:-3])), fields[-1]
    try:
        here, absolute = float(fields[-3]), float(fields[-2])
    except ValueError:
        return None
    return Sync(host, here, here - absolute if mode == 'ntp' else 0.0, mode)


def conflicts(syncs: list[Sync]) -> list[str]:
    """Return a sentence for each host whose profiles contradict each other on its clock."""
    ahead: dict[tuple[str, str], list[float]] = {}
    for sync in syncs:
        if sync.mode == 'ntp':
            ahead.setdefault(sync.host, []).append(sync.ahead)
    return [f'profiles of the host {name} state that its clock is ahead by {min(found):.3f} s and by {max(found):.3f} s'
            for (name, _), found in ahead.items() if max(found) - min(found) > CONFLICT]


def shift(sent: float | None, answered: float | None) -> float:
    """Return how far to move a clock, in the units of the arguments.

    `sent` is the least time between the sending of a message to it and its arrival, `answered` that for messages in the
    other direction, both as the clocks show them; None if there was no message. No message takes negative time: a clock
    is moved only if one seems to.
    """
    if sent is not None and sent < 0:
        return -sent
    if answered is not None and answered < 0:
        return answered
    return 0

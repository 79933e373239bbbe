"""Durations, concurrency and rates of entities between moments of their life.

A moment is given as text: the name of a state for the entry into it (`'AGENT_EXECUTING'`), any other name for the first
such event (`'rank_start'`), and with the prefix `last ` for the last one (`'last rank_stop'`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rp_profiling.catalogue import LEFT_OUT
from rp_profiling.catalogue import STATES as MODELS
from rp_profiling.levels import DEFAULT, STATES
from rp_profiling.read.columns import TICKS
from rp_profiling.read.trace import NEVER, Times, Trace

if TYPE_CHECKING:
    import pandas
    import polars

Seconds = NDArray[np.float64]

_STATES = {state.name for state in MODELS}

# the stages of a task, one after the other
TASK = {
    'submission': ('TMGR_SCHEDULING_PENDING', 'TMGR_SCHEDULING'),
    'binding to a pilot': ('TMGR_SCHEDULING', 'TMGR_STAGING_INPUT_PENDING'),
    'client input staging': ('TMGR_STAGING_INPUT_PENDING', 'AGENT_STAGING_INPUT_PENDING'),
    'way to the agent': ('AGENT_STAGING_INPUT_PENDING', 'AGENT_STAGING_INPUT'),
    'agent input staging': ('AGENT_STAGING_INPUT', 'AGENT_SCHEDULING_PENDING'),
    'waiting for resources': ('AGENT_SCHEDULING_PENDING', 'schedule_ok'),
    'waiting for the executor': ('schedule_ok', 'AGENT_EXECUTING'),
    'preparation': ('AGENT_EXECUTING', 'rank_start'),
    'execution': ('rank_start', 'last rank_stop'),
    'collection': ('last rank_stop', 'task_run_stop'),
    'release of resources': ('task_run_stop', 'last unschedule_stop'),
    'agent output staging': ('AGENT_STAGING_OUTPUT_PENDING', 'TMGR_STAGING_OUTPUT_PENDING'),
    'way to the client': ('TMGR_STAGING_OUTPUT_PENDING', 'TMGR_STAGING_OUTPUT'),
    'client output staging': ('TMGR_STAGING_OUTPUT', 'end'),
}
PILOT = {
    'submission': ('PMGR_LAUNCHING', 'PMGR_ACTIVE_PENDING'),
    'queue and bootstrap': ('PMGR_ACTIVE_PENDING', 'PMGR_ACTIVE'),
    'active': ('PMGR_ACTIVE', 'end'),
}


def moments(trace: Trace, name: str) -> Times:
    """Return for each entity the time of a moment in ticks, NEVER without it; `end` is the entry into a final state."""
    if name == 'end':
        ends: Times = np.minimum.reduce([trace.entered(state) for state in ('DONE', 'FAILED', 'CANCELED')])
        return ends
    if name in _STATES:
        return trace.entered(name)
    if name.startswith('last '):
        return trace.last(name.removeprefix('last '))
    return trace.first(name)


def durations(trace: Trace, start: str, stop: str, kind: str = 'task') -> Seconds:
    """Return the seconds between two moments, of all entities of a kind that have both.

    Args:
        trace: The trace.
        start: The first moment, see the module.
        stop: The second moment.
        kind: `task` or `pilot`.

    Raises:
        ValueError: If the trace lacks the event because of its detail; also by the functions below.
    """
    first, last = _both(trace, start, stop, kind)
    return (last - first) / TICKS


def concurrency(trace: Trace, start: str, stop: str, kind: str = 'task') -> tuple[Seconds, NDArray[np.int64]]:
    """Return the number of entities between two moments over time: (seconds of changes, number from then on)."""
    return between(trace, *_both(trace, start, stop, kind))


def between(trace: Trace, first: Times, last: Times) -> tuple[Seconds, NDArray[np.int64]]:
    """Return the number of spans over time; those without a start or an end are left out."""
    known = (first != NEVER) & (last != NEVER)
    times = np.concatenate([first[known], last[known]])
    return steps(times, np.repeat(np.array([1, -1]), len(times) // 2), trace.span[0])


def rate(trace: Trace, moment: str, window: float, kind: str = 'task') -> tuple[Seconds, Seconds]:
    """Return how many entities per second reach a moment, in windows of `window` seconds: (their middles, rates)."""
    if window <= 0:
        raise ValueError(f'the window of a rate must be longer than 0 s, it is {window!r}')
    times = _recorded(trace, moment)[trace.entities(kind)]
    times = times[times != NEVER]
    begin, end = trace.span
    count = max(1, int(np.ceil((end - begin) / TICKS / window)))
    found = np.bincount(((times - begin) / TICKS // window).astype(np.intp), minlength=count)[:count]
    return ((np.arange(count) + 0.5) * window).astype(np.float64), found / window


def steps(times: Times, changes: NDArray[Any], zero: int) -> tuple[Seconds, NDArray[Any]]:
    """Return the sum of changes over time: (seconds of changes after `zero`, sum from then on)."""
    order = np.argsort(times, kind='stable')
    times, level = times[order], np.cumsum(changes[order])
    last = np.flatnonzero(np.concatenate([times[1:] != times[:-1], [True]])) if len(times) else np.zeros(0, np.intp)
    return (times[last] - zero) / TICKS, level[last]


def table(trace: Trace, kind: str = 'task') -> pandas.DataFrame:
    """Return a table with a row for each entity of a kind, by uid: the seconds of each stage, and the final state.

    A stage that an entity lacks is NaN.
    """
    import pandas

    columns = _columns(trace, kind)
    return pandas.DataFrame(columns, index=pandas.Index(columns.pop('uid'), name='uid'))


def polars_table(trace: Trace, kind: str = 'task') -> polars.DataFrame:
    """Return the table for polars: the uid is the first column, and a stage that an entity lacks is null."""
    import polars

    text = {'uid': polars.String, 'state': polars.String}   # also for an empty table
    return polars.DataFrame(_columns(trace, kind), schema_overrides=text, nan_to_null=True)


def _columns(trace: Trace, kind: str) -> dict[str, Any]:
    """Return the columns of a table, by name."""
    entities = trace.entities(kind)
    uids = trace.columns.uids
    data: dict[str, Any] = {'uid': [uids[int(entity)] for entity in entities]}
    for name, (start, stop) in (TASK if kind == 'task' else PILOT).items():
        first, last = moments(trace, start)[entities], moments(trace, stop)[entities]
        known = (first != NEVER) & (last != NEVER)
        data[name] = np.where(known, np.where(known, last - first, 0) / TICKS, np.nan)
    data['state'] = final_states(trace)[entities]
    return data


def final_states(trace: Trace) -> NDArray[np.object_]:
    """Return the last final state of each entity, empty without one."""
    found = np.full(len(trace.columns.uids), '', object)
    latest = np.full(len(trace.columns.uids), -1, np.int64)
    for state in ('CANCELED', 'FAILED', 'DONE'):   # a cancellation is corrected by the others
        times = trace.last('advance', state)
        later = (times != NEVER) & (times >= latest)
        found[later], latest[later] = state, times[later]
    return found


def _recorded(trace: Trace, name: str) -> Times:
    """Return the times of a moment; ValueError if the trace lacks it because of its detail."""
    times = moments(trace, name)
    event = name.removeprefix('last ')
    if event in LEFT_OUT and trace.reduced.any() and not len(trace.rows_of(event)):
        raise ValueError(f'{event} is not in this trace, which has the detail {STATES!r}: record the session '
                         f'with RADICAL_PILOT_PROFILE={DEFAULT}')
    return times


def _both(trace: Trace, start: str, stop: str, kind: str) -> tuple[Times, Times]:
    entities = trace.entities(kind)
    first, last = _recorded(trace, start)[entities], _recorded(trace, stop)[entities]
    known = (first != NEVER) & (last != NEVER)
    return first[known], last[known]

"""Durations, concurrency and rates: how long entities stayed where, how many at a time, and how many per second.

Moments are given as text: the name of a state stands for the entry into it (`'AGENT_EXECUTING'`), any other name for
the first such event (`'rank_start'`), and with `last ` before it for the last one (`'last rank_stop'`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rp_profiling.catalogue import LEFT_OUT
from rp_profiling.catalogue import STATES as MODELS
from rp_profiling.levels import FULL, STATES
from rp_profiling.read.columns import TICKS
from rp_profiling.read.trace import NEVER, Times, Trace

if TYPE_CHECKING:
    import pandas
    import polars

Seconds = NDArray[np.float64]

_STATES = {state.name for state in MODELS}

# how the time of a task is spent, one stretch after the other
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
    """For each entity, the time of a moment in ticks; NEVER without it. `end` is the entry into a final state."""
    if name == 'end':
        ends: Times = np.minimum.reduce([trace.entered(state) for state in ('DONE', 'FAILED', 'CANCELED')])
        return ends
    if name in _STATES:
        return trace.entered(name)
    if name.startswith('last '):
        return trace.last(name.removeprefix('last '))
    return trace.first(name)


def durations(trace: Trace, start: str, stop: str, kind: str = 'task') -> Seconds:
    """The seconds between two moments, of all entities of a kind that had both.

    Here, and below, `ValueError` is raised for an event that a trace of less detail does not have.
    """
    first, last = _both(trace, start, stop, kind)
    return (last - first) / TICKS


def concurrency(trace: Trace, start: str, stop: str, kind: str = 'task') -> tuple[Seconds, NDArray[np.int64]]:
    """How many entities of a kind are between two moments: the seconds when that changes, and how many from then on."""
    first, last = _both(trace, start, stop, kind)
    return steps(np.concatenate([first, last]), np.repeat(np.array([1, -1]), len(first)), trace.span[0])


def rate(trace: Trace, moment: str, window: float, kind: str = 'task') -> tuple[Seconds, Seconds]:
    """How many entities of a kind per second had a moment, over windows of so many seconds: (their middles, rates)."""
    if window <= 0:
        raise ValueError(f'the window of a rate must be longer than 0 s, it is {window!r}')
    times = _recorded(trace, moment)[trace.entities(kind)]
    times = times[times != NEVER]
    begin, end = trace.span
    count = max(1, int(np.ceil((end - begin) / TICKS / window)))
    found = np.bincount(((times - begin) / TICKS // window).astype(np.intp), minlength=count)[:count]
    return ((np.arange(count) + 0.5) * window).astype(np.float64), found / window


def steps(times: Times, changes: NDArray[Any], zero: int) -> tuple[Seconds, NDArray[Any]]:
    """The sum of changes over time: (the seconds after `zero` when it changes, its value from then on)."""
    order = np.argsort(times, kind='stable')
    times, level = times[order], np.cumsum(changes[order])
    last = np.flatnonzero(np.concatenate([times[1:] != times[:-1], [True]])) if len(times) else np.zeros(0, np.intp)
    return (times[last] - zero) / TICKS, level[last]


def table(trace: Trace, kind: str = 'task') -> pandas.DataFrame:
    """One row for each entity of a kind, by uid: the seconds of each stretch of its life, and its final state.

    A stretch that an entity did not have is NaN.
    """
    import pandas

    columns = _columns(trace, kind)
    return pandas.DataFrame(columns, index=pandas.Index(columns.pop('uid'), name='uid'))


def polars_table(trace: Trace, kind: str = 'task') -> polars.DataFrame:
    """What `table` gives, for polars: uids are the first column, and a stretch that an entity did not have is null."""
    import polars

    text = {'uid': polars.String, 'state': polars.String}   # also of no rows
    return polars.DataFrame(_columns(trace, kind), schema_overrides=text, nan_to_null=True)


def _columns(trace: Trace, kind: str) -> dict[str, Any]:
    """The columns of a table, by name."""
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
    """For each entity the final state that it was in last, empty without one."""
    found = np.full(len(trace.columns.uids), '', object)
    latest = np.full(len(trace.columns.uids), -1, np.int64)
    for state in ('CANCELED', 'FAILED', 'DONE'):   # a cancellation is corrected by the others
        times = trace.last('advance', state)
        later = (times != NEVER) & (times >= latest)
        found[later], latest[later] = state, times[later]
    return found


def _recorded(trace: Trace, name: str) -> Times:
    """The times of a moment; ValueError if nothing has it because profiles of less detail leave it out."""
    times = moments(trace, name)
    event = name.removeprefix('last ')
    if event in LEFT_OUT and trace.reduced.any() and not len(trace.rows_of(event)):
        raise ValueError(f'{event} is not in this trace, which has the detail {STATES!r}: record the session '
                         f'with RADICAL_PILOT_PROFILE={FULL}')
    return times


def _both(trace: Trace, start: str, stop: str, kind: str) -> tuple[Times, Times]:
    entities = trace.entities(kind)
    first, last = _recorded(trace, start)[entities], _recorded(trace, stop)[entities]
    known = (first != NEVER) & (last != NEVER)
    return first[known], last[known]

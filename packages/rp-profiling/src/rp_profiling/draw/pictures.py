"""The pictures of a session as arrays, which both the plots (`plot`) and the report draw.

All times are seconds since the start of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rp_profiling.analyse import calls as of_calls
from rp_profiling.analyse.durations import between, moments, rate
from rp_profiling.analyse.utilisation import ACTIVITIES, Analysis, Utilisation
from rp_profiling.catalogue import TASK_STATES
from rp_profiling.read.calls import Calls
from rp_profiling.read.columns import TICKS
from rp_profiling.read.trace import NEVER, Trace
from rp_profiling.write.slots import CORE, GPU

Array = NDArray[np.float64]

TIME = 'time [s]'

BINS = 1500
"""Intervals of stacked pictures: more than the pixels of their width."""
WINDOWS = 150
"""Windows in which rates are counted."""

# colours that people with a colour vision deficiency can tell apart, from dark to light
COLOURS = {
    'bootstrap': '#2c7fb8', 'scheduling': '#f2c14e', 'prepare exec': '#8e5ea2', 'exec cmd': '#222222',
    'launcher': '#d95f0e', 'draining': '#74c476', 'idle': '#c7e9c0', 'termination': '#bdbdbd',
}
_LIFE = {
    'reaches the agent': ('AGENT_STAGING_INPUT', '#000000'),
    'gets its resources': ('schedule_ok', '#2c7fb8'),
    'executor starts': ('task_start', '#f2a104'),
    'program starts': ('rank_start', '#31a354'),
    'program stops': ('last rank_stop', '#de2d26'),
    'executor is done': ('task_run_stop', '#8e5ea2'),
}
_CONCURRENCY = {
    'in the agent': ('AGENT_STAGING_INPUT', 'TMGR_STAGING_OUTPUT_PENDING', '#bdbdbd'),
    'waiting for resources': ('AGENT_SCHEDULING', 'schedule_ok', '#f2c14e'),
    'with resources': ('schedule_ok', 'last unschedule_stop', '#2c7fb8'),
    'executing': ('rank_start', 'last rank_stop', '#222222'),
}
_RATES = {'reach the agent': ('AGENT_STAGING_INPUT', '#bdbdbd'), 'get resources': ('schedule_ok', '#2c7fb8'),
          'start': ('rank_start', '#31a354'), 'stop': ('last rank_stop', '#de2d26')}
_STATE_COLOURS = ('#deebf7', '#c6dbef', '#9ecae1', '#6baed6', '#4292c6', '#2171b5', '#fee6ce', '#fdae6b', '#fd8d3c',
                  '#222222', '#e5f5e0', '#a1d99b', '#74c476', '#238b45')

_DURATIONS = 120
"""Intervals of the distribution of durations, equal on a logarithmic scale."""

_SHORTEST = 1e-7



@dataclass(frozen=True)
class Layer:
    """One line, area or cloud of points: (x, y)."""

    name: str
    colour: str
    x: Array
    y: Array


@dataclass(frozen=True)
class Picture:
    """A picture of one `form`: `stack` (areas on top of each other), `steps`, `lines` or `points`.

    The x axis is time, unless `x_label` says otherwise; with `is_log` it is logarithmic.
    """

    name: str
    title: str
    form: str
    y_label: str
    layers: list[Layer] = field(default_factory=list)
    note: str = ''
    x_label: str = TIME
    is_log: bool = False


def all_pictures(analysis: Analysis) -> list[Picture]:
    """Return all pictures of a session that are not empty."""
    trace = analysis.trace
    found = [utilisation(analysis, CORE), utilisation(analysis, GPU), concurrency(trace), rates(trace),
             lifelines(trace), states(trace), *call_pictures(analysis.calls)]
    return [picture for picture in found if any(len(layer.x) for layer in picture.layers)]


def utilisation(analysis: Analysis, kind: str) -> Picture:
    """Return the use of the devices of a kind over time."""
    used = analysis.utilisation(kind)
    name = f'{kind.lower()}-utilisation'
    if used.most <= 0:
        return Picture(name, f'{kind[0].upper()}{kind[1:]} utilisation', 'stack', f'{kind}s')
    edges, levels = _resampled(used)
    layers = [Layer(activity, COLOURS[activity], edges, levels[activity]) for activity in
              ('exec cmd', 'prepare exec', 'launcher', 'scheduling', 'draining', 'idle', 'bootstrap', 'termination')]
    shares = ', '.join(f'{activity} {share:.1f} %' for activity, share in used.shares.items() if share >= 0.05)
    return Picture(name, f'{kind[0].upper()}{kind[1:]} utilisation', 'stack', f'{kind}s', layers, shares)


def _resampled(used: Utilisation) -> tuple[Array, dict[str, Array]]:
    """Return the means of all levels over equal intervals of time: (their starts, means)."""
    edges = np.linspace(used.times[0], used.times[-1], BINS + 1)
    lengths, width = np.diff(used.times), edges[1] - edges[0] or 1.0
    passed = {name: np.concatenate([[0.0], np.cumsum(used.levels[name][:-1] * lengths)]) for name in ACTIVITIES}
    return edges[:-1], {name: np.diff(np.interp(edges, used.times, spent)) / width for name, spent in passed.items()}


def concurrency(trace: Trace) -> Picture:
    """Return the number of tasks in each stage over time."""
    layers, tasks = [], trace.entities('task')
    for name, (start, stop, colour) in _CONCURRENCY.items():
        times, level = between(trace, moments(trace, start)[tasks], moments(trace, stop)[tasks])
        layers.append(Layer(name, colour, *thinned(times, level.astype(float))))
    return Picture('concurrency', 'Concurrency', 'steps', 'tasks', layers)


def thinned(x: Array, y: Array, most: int = 4 * BINS) -> tuple[Array, Array]:
    """Return a line of fewer points that looks the same: first, lowest, highest and last point of each interval."""
    if len(x) <= most:
        return x, y
    stretch = np.minimum(((x - x[0]) / (x[-1] - x[0] or 1.0) * (most // 4)).astype(np.intp), most // 4 - 1)
    first = np.flatnonzero(np.concatenate([[True], stretch[1:] != stretch[:-1]]))
    last = np.concatenate([first[1:] - 1, [len(x) - 1]])
    order = np.lexsort((y, stretch))
    kept = np.unique(np.concatenate([first, last, order[first], order[last]]))
    return x[kept], y[kept]


def rates(trace: Trace) -> Picture:
    """Return the number of tasks per second that pass each moment."""
    window = max((trace.span[1] - trace.span[0]) / TICKS / WINDOWS, 1e-3)
    layers = [Layer(name, colour, *rate(trace, moment, window)) for name, (moment, colour) in _RATES.items()]
    return Picture('rates', 'Rates', 'lines', 'tasks/s', [layer for layer in layers if layer.y.any()],
                   f'windows of {window:.3g} s')


def lifelines(trace: Trace) -> Picture:
    """Return the moments of each task: the tasks one above the other, in the order of their arrival at the agent."""
    tasks = trace.entities('task')
    found = {name: moments(trace, moment)[tasks] for name, (moment, _) in _LIFE.items()}
    order = np.argsort(next(iter(found.values())), kind='stable')
    layers = []
    for name, (_, colour) in _LIFE.items():
        times = found[name][order]
        known = times != NEVER
        layers.append(Layer(name, colour, (times[known] - trace.span[0]) / TICKS, np.flatnonzero(known).astype(float)))
    return Picture('lifelines', 'Task lifelines', 'points', 'task', [layer for layer in layers if len(layer.x)])


def states(trace: Trace) -> Picture:
    """Return the number of tasks in each state over time."""
    tasks = trace.entities('task')
    names = [state.name for state in TASK_STATES if state.name not in ('NEW', 'DONE', 'FAILED', 'CANCELED')]
    if not len(tasks):
        return Picture('states', 'States of tasks', 'stack', 'tasks')
    entered = np.stack([moments(trace, name)[tasks] for name in (*names, 'end')])
    # a task stays in a state until it enters the next one in which it is recorded
    left = np.minimum.accumulate(entered[::-1], axis=0)[::-1]
    edges = np.linspace(0, (trace.span[1] - trace.span[0]) / TICKS, BINS + 1)[:-1]
    layers = []
    for index, name in enumerate(names):
        known = (entered[index] != NEVER) & (left[index + 1] != NEVER)
        start, stop = ((times[known] - trace.span[0]) / TICKS for times in (entered[index], left[index + 1]))
        inside = np.searchsorted(np.sort(start), edges, 'right') - np.searchsorted(np.sort(stop), edges, 'right')
        layers.append(Layer(name, _STATE_COLOURS[index], edges, inside.astype(float)))
    return Picture('states', 'States of tasks', 'stack', 'tasks', [layer for layer in layers if layer.y.any()])


def call_pictures(calls: Calls) -> list[Picture]:
    """Return all pictures of the calls; none if there are no calls."""
    if not len(calls):
        return []
    found = of_calls.figures(calls)
    return [_call_concurrency(calls, found), _call_rate(calls, found), _call_use(calls), _call_durations(calls, found)]


def _call_concurrency(calls: Calls, found: of_calls.Figures) -> Picture:
    layer = Layer('calls that run', '#222222', *of_calls.concurrency(calls))
    return Picture('call-concurrency', 'Concurrency of function calls', 'steps', 'calls', [layer],
                   f'{found.calls:,} calls on {found.ranks} ranks')


def _call_rate(calls: Calls, found: of_calls.Figures) -> Picture:
    x, y = of_calls.rate(calls)
    layer = Layer('calls that end', '#de2d26', x, y)
    return Picture('call-rate', 'Rate of function calls', 'lines', 'calls/s', [layer],
                   f'best second: {found.rate:,.0f} calls/s; intervals of {x[1] - x[0]:.3g} s')


def _call_use(calls: Calls) -> Picture:
    used = of_calls.use(calls)
    layers = [Layer('in calls', '#222222', used.times, used.busy),
              Layer('idle', '#c7e9c0', used.times, np.maximum(used.there - used.busy, 0.0))]
    return Picture('rank-utilisation', 'Use of the ranks of RAPTOR workers', 'stack', 'ranks', layers,
                   f'in calls {100 * used.share:.1f} %')


def _call_durations(calls: Calls, found: of_calls.Figures) -> Picture:
    took = np.maximum(of_calls.durations(calls), _SHORTEST)
    first, last = np.log10(took.min()), np.log10(took.max())
    edges = np.logspace(first, max(last, first + 0.1), _DURATIONS + 1)
    # rounding may move the first and the last one out of the intervals
    place = np.clip(np.searchsorted(edges, took, 'right') - 1, 0, _DURATIONS - 1)
    counts = np.bincount(place, minlength=_DURATIONS).astype(float)
    return Picture('call-durations', 'Durations of function calls', 'steps', 'calls',
                   [Layer('calls', '#2c7fb8', edges[:-1], counts)],
                   f'mean {found.mean:.3g} s, median {found.median:.3g} s, longest {found.longest:.3g} s',
                   x_label='duration [s]', is_log=True)

"""The pictures of the function calls of a session, as those of `pictures`: what ranks of RAPTOR workers did."""

from __future__ import annotations

import numpy as np

from rp_profiling.analyse.calls import Figures, concurrency, durations, figures, rate, use
from rp_profiling.draw.picture import Layer, Picture
from rp_profiling.read.calls import Calls

_DURATIONS = 120
"""Intervals of the distribution of durations, equal on a logarithmic scale."""

_SHORTEST = 1e-7


def call_pictures(calls: Calls) -> list[Picture]:
    """Return all pictures of the calls; none if there are no calls."""
    if not len(calls):
        return []
    found = figures(calls)
    return [_concurrency(calls, found), _rate(calls, found), _use(calls), _durations(calls, found)]


def _concurrency(calls: Calls, found: Figures) -> Picture:
    layer = Layer('calls that run', '#222222', *concurrency(calls))
    return Picture('call-concurrency', 'Concurrency of function calls', 'steps', 'calls', [layer],
                   f'{found.calls:,} calls on {found.ranks} ranks')


def _rate(calls: Calls, found: Figures) -> Picture:
    x, y = rate(calls)
    layer = Layer('calls that end', '#de2d26', x, y)
    return Picture('call-rate', 'Rate of function calls', 'lines', 'calls/s', [layer],
                   f'best second: {found.rate:,.0f} calls/s; intervals of {x[1] - x[0]:.3g} s')


def _use(calls: Calls) -> Picture:
    used = use(calls)
    layers = [Layer('in calls', '#222222', used.times, used.busy),
              Layer('idle', '#c7e9c0', used.times, np.maximum(used.there - used.busy, 0.0))]
    return Picture('rank-utilisation', 'Use of the ranks of RAPTOR workers', 'stack', 'ranks', layers,
                   f'in calls {100 * used.share:.1f} %')


def _durations(calls: Calls, found: Figures) -> Picture:
    took = np.maximum(durations(calls), _SHORTEST)
    first, last = np.log10(took.min()), np.log10(took.max())
    edges = np.logspace(first, max(last, first + 0.1), _DURATIONS + 1)
    # rounding may move the first and the last one out of the intervals
    place = np.clip(np.searchsorted(edges, took, 'right') - 1, 0, _DURATIONS - 1)
    counts = np.bincount(place, minlength=_DURATIONS).astype(float)
    return Picture('call-durations', 'Durations of function calls', 'steps', 'calls',
                   [Layer('calls', '#2c7fb8', edges[:-1], counts)],
                   f'mean {found.mean:.3g} s, median {found.median:.3g} s, longest {found.longest:.3g} s',
                   x_label='duration [s]', is_log=True)

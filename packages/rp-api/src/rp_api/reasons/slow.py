"""Reasons of tasks that run: they are slow in comparison with others of their kind."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from rp_api import states
from rp_api.reasons.kinds import KINDS, SLOW
from rp_api.reasons.reason import Reason
from rp_api.reasons.view import View
from rp_api.task_info.slots import nodes_of

PEERS = 5
"""The least number of ended tasks of the kind with which one is compared."""

TIMES_SLOWER = 2.0
"""A task is slow that takes so many times as long as the median of the others, and longer than each of them."""

LEAST_S = 2.0
"""The least difference that counts, in seconds."""


def slowness(task: Mapping[str, Any], view: View) -> Reason | None:
    """Return by how much a task that runs, or has run, is slower than others of its kind; None if it is not slow."""
    started, ended = (task.get('times') or (None, None, None))[1:]
    if started is None:
        return None
    elapsed = (ended or view.now) - started
    if elapsed < LEAST_S:
        return None
    peers = [peer for peer in view.peers(task) if peer['uid'] != task['uid'] and _duration(peer) is not None]
    if len(peers) < PEERS:
        return None
    times = [each for each in map(_duration, peers) if each is not None]
    usual, longest = median(times), max(times)
    if elapsed < max(TIMES_SLOWER * usual, usual + LEAST_S, longest):
        return None
    nodes = nodes_of(task)
    where = f' on {", ".join(nodes[:3])}' if nodes else ''
    runs = 'runs for' if task['state'] == states.AGENT_EXECUTING else 'has run for'
    there = [each for peer in peers if nodes and set(nodes) & set(nodes_of(peer))
             and (each := _duration(peer)) is not None]
    also = ''
    if there and len(there) < len(times):
        also = f'; the {len(there)} of them on this node took {_time(median(there))}'
    sentence = (f'{runs} {_time(elapsed)}{where}, {elapsed / usual if usual else elapsed:.1f} times as long as the '
                f'{len(times)} others of its kind, which took {_time(usual)} (at most {_time(longest)}){also}')
    return Reason(SLOW, sentence, started, {'elapsed': elapsed, 'usual': usual, 'longest': longest,
                                            'peers': len(times), 'nodes': nodes}, KINDS[SLOW].remedy)


def _duration(task: Mapping[str, Any]) -> float | None:
    started, ended = (task.get('times') or (None, None, None))[1:]
    return None if started is None or ended is None else float(ended - started)


def _time(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 120:
        return f'{seconds:.3g} s'
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours} h {minutes} min' if hours else f'{minutes} min {rest} s'

"""Checks pilots and tasks against their state models.

- States come in their order. A task may move back to a scheduler, which begins another attempt to run it.
- A final state is kept, except that the real end may correct a cancellation (and a batch system the end of a pilot).
- No component reports a state twice in one attempt. A task that is DONE has passed all states, or has a cached result.
- When a session is closed and its pilots have ended, all tasks are final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rp_profiling.catalogue import PILOT_STATES, TASK_STATES, State
from rp_profiling.check.findings import LIMIT, Findings
from rp_profiling.read import match
from rp_profiling.read.trace import NEVER, Trace

FINAL = ('DONE', 'CANCELED', 'FAILED')
_MODELS: dict[str, tuple[State, ...]] = {'task': TASK_STATES, 'pilot': PILOT_STATES}
_AGAIN = ('TMGR_SCHEDULING_PENDING', 'TMGR_SCHEDULING', 'TMGR_STAGING_INPUT_PENDING', 'AGENT_STAGING_INPUT_PENDING',
          'AGENT_STAGING_INPUT', 'AGENT_SCHEDULING_PENDING', 'AGENT_SCHEDULING')
_CORRECTED = {'task': ('CANCELED',), 'pilot': ('CANCELED', 'FAILED')}
_CLIENT_FIRST = ('TMGR_SCHEDULING_PENDING', 'TMGR_SCHEDULING', 'TMGR_STAGING_INPUT_PENDING', 'TMGR_STAGING_INPUT')
_AGENT = tuple(state.name for state in TASK_STATES if state.sandboxes == ('agent',))
_SENTENCES = {match.FORBIDDEN: '{0} after {1}', match.AFTER_END: '{0} after {1}, which is final',
              match.REPEATED: '{0} is announced twice'}
RULE = 'state model'


@dataclass(frozen=True)
class Known:
    """Results of the state check for each entity, by its number, which the other checks use."""

    kinds: NDArray[np.uint8]
    """0 for entities without states, 1 for tasks, 2 for pilots."""
    ends: NDArray[np.int32]
    """The number of the final state, -1 without one."""
    attempts: NDArray[np.int32]
    """Number of further attempts of a task."""
    done: NDArray[np.bool_]
    """True if the entity is DONE and all processes that recorded it have closed their profiles: no event is missing."""
    over: bool
    """True if the session was closed and all pilots have ended: no further event can come."""


def check_states(trace: Trace, findings: Findings) -> Known:
    """Record violations of the state models, and return the results for other checks."""
    kinds = np.zeros(len(trace.columns.uids), np.uint8)
    kinds[trace.entities('task')] = 1
    kinds[trace.entities('pilot')] = 2
    ends, attempts, passed = _walk(trace, 'task', kinds == 1, findings)
    pilot_ends, _, _ = _walk(trace, 'pilot', kinds == 2, findings)
    ends = np.where(kinds == 2, pilot_ends, ends).astype(np.int32)
    done = ends == trace.columns.states.find('DONE')
    done &= (ends >= 0) & ~trace.cut_off
    over = _is_over(trace, kinds, ends)
    known = Known(kinds, ends, attempts, done, over)
    _complete(trace, known, passed, findings)
    if over:
        # programs that a master submits to its agent are not tasks of the application
        submitted = trace.entered('TMGR_SCHEDULING_PENDING') != NEVER
        for task in np.flatnonzero((kinds == 1) & (ends < 0) & submitted):
            findings.add(RULE, _last_row(trace, int(task)), 'has no final state, although the session has ended')
    return known


def _walk(trace: Trace, kind: str, chosen: NDArray[np.bool_], findings: Findings,
          ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint32]]:
    columns = trace.columns
    rows, starts = trace.by_entity
    names = [state.name for state in _MODELS[kind] if state.name not in FINAL]
    final = len(names)
    values = np.full(len(columns.states), -1, np.int8)
    bits = np.zeros(len(columns.states), np.int16)
    again = np.zeros(len(columns.states), np.uint8)
    for number in range(len(columns.states)):
        name = columns.states[number]
        if name in names:
            values[number] = bits[number] = names.index(name)
            again[number] = name in _AGAIN
        elif name in FINAL:
            values[number] = bits[number] = final
            again[number] = 2 if name in _CORRECTED[kind] else 0
    ends, attempts, passed, violations, count = match.check_states(
        rows, starts, columns.event, columns.state, columns.source, chosen.astype(np.uint8), trace.place_of_source,
        columns.events.find('advance'), values, bits, again, final, columns.time, LIMIT)
    for number, row, before in violations:
        now, old = columns.states[columns.state[row]], columns.states[columns.state[before]]
        findings.add(RULE, row, _SENTENCES[number].format(now, old))
    findings.more(RULE, count - len(violations))
    return ends, attempts, passed


def _is_over(trace: Trace, kinds: NDArray[np.uint8], ends: NDArray[np.int32]) -> bool:
    """Return whether the session is closed and all pilots have ended."""
    closed, opened = trace.last('session_stop'), trace.last('session_start')
    ended = closed != NEVER
    sessions = bool(ended.any()) and bool((closed[ended] >= opened[ended]).all())
    return sessions and bool((ends[kinds == 2] >= 0).all())


def _bits(names: Sequence[str]) -> int:
    order = [state.name for state in TASK_STATES if state.name not in FINAL]
    return sum(1 << order.index(name) for name in names)


def _complete(trace: Trace, known: Known, passed: NDArray[np.uint32], findings: Findings) -> None:
    """Record tasks that are DONE and lack a state, as far as there are profiles that should have it."""
    done = known.done & (known.kinds == 1)
    # function calls of RAPTOR go to a master and are not scheduled by the agent
    scheduled = trace.first('schedule_ok') != NEVER
    ran = trace.first('cache_hit') == NEVER
    seen = ran & ((passed & _bits(_CLIENT_FIRST[:1])) != 0)
    for chosen, names in ((seen, _CLIENT_FIRST), (scheduled, _AGENT)):
        wanted = _bits(names)
        for task in np.flatnonzero(done & chosen & ((passed & wanted) != wanted)):
            missing = [name for name in names if not passed[task] & _bits([name])]
            findings.add(RULE, _last_row(trace, int(task)), f'is DONE, but was never in {", ".join(missing)}')


def _last_row(trace: Trace, entity: int) -> int:
    rows, starts = trace.by_entity
    return int(rows[starts[entity + 1] - 1])

"""Checks the account of cores and GPUs.

- No device is assigned beyond its capacity, and the devices of a pilot together not beyond the pilot's.
- Slots are released exactly once, if the agent could end in order.
- A task runs only while it has its slots.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rp_profiling.analyse.occupation import Occupation
from rp_profiling.check.findings import LIMIT, Findings
from rp_profiling.check.states import Known
from rp_profiling.read.trace import NEVER, Times, Trace
from rp_profiling.write.slots import CORE, GPU

RULE = 'resource account'
_TOLERANCE = 1e-6
_BEGINS = ('task_run_start', 'launch_start', 'exec_start', 'rank_start')
_ENDS = ('rank_stop', 'exec_stop', 'launch_stop', 'task_run_stop')


def check_account(trace: Trace, known: Known, findings: Findings) -> None:
    """Record all violations of the account."""
    occupation = Occupation(trace)
    if not len(occupation):
        return
    _check_returns(occupation, findings)
    _check_devices(occupation, findings)
    _check_totals(occupation, findings)
    _check_runs(occupation, known, findings)
    if not len(occupation.devices.table):
        findings.remarks.append('the trace names no cores of tasks: their assignment is not checked')


def _check_returns(occupation: Occupation, findings: Findings) -> None:
    trace = occupation.trace
    findings.add_all(RULE, occupation.unpaired, 'releases slots that it does not have')
    # a killed agent releases nothing
    ended = trace.ended[trace.writer_of_source[trace.columns.source[occupation.rows]]]
    kept = occupation.rows[(occupation.stop == NEVER) & ended]
    findings.add_all(RULE, kept, 'does not release its slots')


def _check_devices(occupation: Occupation, findings: Findings) -> None:
    """Record devices that several tasks have at once."""
    devices = occupation.devices
    over, before = _overdrawn(devices.device, occupation.start[devices.stay], occupation.stop[devices.stay],
                              devices.amount, np.ones(len(devices.table)))
    uids = occupation.trace.columns.uids
    for entry, other in list(zip(over, before, strict=True))[:LIMIT]:
        place, node, kind, index = devices.table[devices.device[entry]]
        stay, holder = devices.stay[entry], uids[int(occupation.task[devices.stay[other]])]
        findings.add(RULE, int(occupation.rows[stay]), f'gets the {kind} {index} of node {node} of '
                     f'{occupation.trace.places[place] or "its pilot"}, which {holder} has')
    findings.more(RULE, max(0, len(over) - LIMIT))


def _check_totals(occupation: Occupation, findings: Findings) -> None:
    """Record assignments beyond the devices of a pilot."""
    for kind in (CORE, GPU):
        amounts = occupation.amounts(kind)
        for place, resources in occupation.resources.items():
            here = np.flatnonzero((occupation.place == place) & (amounts > 0))
            over, _ = _overdrawn(np.zeros(len(here), np.intp), occupation.start[here], occupation.stop[here],
                                 amounts[here], np.array([float(resources.of(kind))]))
            if len(over):
                findings.add(RULE, int(occupation.rows[here[over[0]]]), f'gets {kind}s beyond the '
                             f'{resources.of(kind)} of {occupation.trace.places[place] or "its pilot"}')
                findings.more(RULE, len(over) - 1)


def _overdrawn(account: NDArray[np.intp], start: Times, stop: Times, amount: NDArray[np.float64],
               limits: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the entries that draw an account beyond its limit, and for each the previous entry of that account."""
    n = len(account)
    entry = np.tile(np.arange(n), 2)
    change = np.concatenate([amount, -amount])
    # of changes at the same time, releases come first
    order = np.lexsort((change > 0, np.concatenate([start, stop]), np.tile(account, 2)))
    entry, change = entry[order], change[order]
    accounts = account[entry]
    level = np.cumsum(change, dtype=np.float64)
    first = np.flatnonzero(np.concatenate([[True], accounts[1:] != accounts[:-1]])) if n else np.zeros(0, np.intp)
    base = np.concatenate([[0.0], level])[first]
    level -= np.repeat(base, np.diff(np.concatenate([first, [2 * n]])))
    drawn = np.flatnonzero((change > 0) & (level > limits[accounts] + _TOLERANCE)) if n else np.zeros(0, np.intp)
    drawers = np.maximum.accumulate(np.where(change > 0, np.arange(2 * n), 0))
    return entry[drawn], entry[drawers[np.maximum(drawn - 1, 0)]]


def _check_runs(occupation: Occupation, known: Known, findings: Findings) -> None:
    """Record tasks that run before they have their slots, or after they have released them."""
    trace = occupation.trace
    begun = np.minimum.reduce([trace.first(event) for event in _BEGINS])
    ended = np.maximum.reduce([np.where(times == NEVER, -1, times) for times in map(trace.last, _ENDS)])
    once = (known.attempts[occupation.task] == 0) & (np.bincount(occupation.task)[occupation.task] == 1)
    early = np.flatnonzero(once & (begun[occupation.task] < occupation.start))
    late = np.flatnonzero(once & (ended[occupation.task] > occupation.stop))
    for stays, sentence in ((early, 'runs before it has its slots'), (late, 'runs after it has released its slots')):
        findings.add_all(RULE, occupation.rows[stays], sentence)

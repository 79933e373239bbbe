"""Checks the records of function calls that ranks of RAPTOR workers have left beside their profiles.

- Each rank whose profile has not less than the detail `default` has a file of records for each time it was started.
- A rank that has closed its profile has closed its records.
- A rank runs one call at a time, except for asynchronous ones.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from rp_profiling.catalogue import RAPTOR_WORKER
from rp_profiling.check.findings import Findings
from rp_profiling.read.calls import Calls, read_calls
from rp_profiling.read.columns import TICKS
from rp_profiling.read.trace import Trace

RULE = 'records of calls'


def check_calls(trace: Trace, findings: Findings) -> None:
    """Record all violations of the rules above."""
    calls = read_calls(trace)
    findings.remarks += calls.remarks
    _check_files(trace, calls, findings)
    _check_overlaps(calls, findings)


def _check_files(trace: Trace, calls: Calls, findings: Findings) -> None:
    """Compare the files of records with the profiles of ranks; each of both has one part for each start of a rank."""
    writers = {int(trace.writer_of_source[source]): comp.removeprefix(f'{RAPTOR_WORKER}.')
               for source, (_, _, comp, _) in enumerate(trace.columns.sources) if comp.startswith(f'{RAPTOR_WORKER}.')}
    profiles: Counter[tuple[str, str]] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    for writer, name in writers.items():
        if not trace.reduced[writer]:
            key = trace.files[trace.writers[writer].file].place, name
            profiles[key] += 1
            ended[key] += int(trace.ended[writer])
    keys = [(rank.place, f'{rank.worker}.{rank.rank}') for rank in calls.ranks]
    files, closed = Counter(keys), Counter(key for key, rank in zip(keys, calls.ranks, strict=True) if rank.closed)
    for key, number in profiles.items():
        if files[key] < number:
            findings.add_plain(RULE, key[1], f'has {number} parts of its profile, but {files[key]} files of records')
        elif closed[key] < ended[key]:
            findings.add_plain(RULE, key[1], 'has closed its profile, but not its records of calls')


def _check_overlaps(calls: Calls, findings: Findings) -> None:
    """Record calls that begin before the one before them has ended, or end before they have begun."""
    alone = np.flatnonzero(~calls.is_async)
    start, stop, rank = calls.start[alone], calls.stop[alone], calls.rank[alone]
    wrong = np.flatnonzero((stop < start) | np.concatenate(
        [np.zeros(min(len(alone), 1), np.bool_), (start[1:] < stop[:-1]) & (rank[1:] == rank[:-1])]))
    for index in wrong:
        which = calls.ranks[rank[index]]
        findings.add_plain(RULE, f'{which.worker}.{which.rank}', 'records a call that begins before the one before it '
                           'has ended', int(start[index]) / TICKS, str(which.path))

"""Reads from the traces of a session what its tasks needed and how long they ran, so that they can be simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api.errors import DescriptionError, PlatformError
from rp_client.simulation.workload import Entry, make_entry

if TYPE_CHECKING:
    from rp_profiling.analyse.utilisation import Analysis
    from rp_profiling.read.description import Description


def entries(directory: str | Path) -> list[Entry]:
    """The tasks that ran, in the order in which they came to a scheduler."""
    try:
        from rp_profiling.analyse.utilisation import Analysis
        from rp_profiling.read.description import read_description
        from rp_profiling.read.trace import read_trace
    except ImportError as error:
        raise PlatformError("recorded sessions can be read with: pip install 'rp-profiling[analysis]'") from error
    trace = read_trace(directory)
    known = read_description(directory)
    found = [make_entry(each, f'{directory}, {each["uid"]}') for each in _ran(Analysis(trace, known), known)]
    if not found:
        raise DescriptionError(f'no task of the session in {directory} has run')
    return found


def _ran(analysis: Analysis, known: Description) -> Iterator[dict[str, Any]]:
    from rp_profiling.read.columns import TICKS
    from rp_profiling.read.trace import NEVER

    trace, columns = analysis.trace, analysis.trace.columns
    begins, ends = analysis.runs
    came = trace.entered('AGENT_SCHEDULING')
    words = {int(columns.uid[row]): columns.messages[columns.message[row]] for row in trace.rows_of('schedule_ok')}
    tasks = [int(task) for task in trace.entities('task')
             if begins[task] != NEVER and ends[task] != NEVER and int(task) in words]
    for task in sorted(tasks, key=lambda task: (came[task], task)):
        uid = columns.uids[task]
        needs = _of_slots(words[task]) or _of_amounts(*known.tasks.get(uid, (1.0, 0.0)))
        yield {'uid': uid, 'duration': float(ends[task] - begins[task]) / TICKS, **needs}


def _of_slots(message: str) -> Mapping[str, Any]:
    """What slots in the short form of traces are enough for; empty if there are none, as in older traces."""
    from rp_profiling.write.slots import CORE, parse

    ranks = message.split()
    try:
        devices = [parse(rank) for rank in ranks]
    except ValueError:
        return {}
    if not ranks:
        return {}
    cores = max(sum(each.kind == CORE for each in rank) for rank in devices)
    gpus = max(sum(each.amount for each in rank if each.kind != CORE) for rank in devices)
    return {'ranks': len(ranks), 'cores_per_rank': cores, 'gpus_per_rank': gpus}


def _of_amounts(cores: float, gpus: float) -> Mapping[str, Any]:
    """What so many cores and GPUs are, where the trace does not tell how ranks share them: a rank for each core."""
    ranks = max(1, round(cores))
    return {'ranks': ranks, 'gpus_per_rank': gpus / ranks} if gpus <= ranks else {
        'cores_per_rank': ranks, 'gpus_per_rank': gpus}

"""Reads the resources and durations of a session's tasks from its traces, to simulate them."""

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
    """Return the tasks that ran, in the order of their arrival at a scheduler."""
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
    """Return the resources of slots in the short form of traces; empty without slots, as in older traces."""
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
    """Return the resources of a task with so many cores and GPUs but unknown ranks, as one rank per core."""
    ranks = max(1, round(cores))
    return {'ranks': ranks, 'gpus_per_rank': gpus / ranks} if gpus <= ranks else {
        'cores_per_rank': ranks, 'gpus_per_rank': gpus}

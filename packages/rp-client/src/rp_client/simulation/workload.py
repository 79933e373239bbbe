"""Workloads: descriptions of tasks, and the durations of their programs.

A file has a description in each line, as JSON: the attributes of a `TaskDescription`, and also

- `duration`: seconds that the program runs, or a distribution: `{"mean": 600, "spread": 0.1, "shape": "normal"}`
  (`spread` is the standard deviation as a share of the mean; shapes are `lognormal`, `normal`, `uniform`,
  `gumbel`), or `{"from": 500, "to": 900}`
- `count`: number of such tasks (default: 1)

Empty lines, and lines that begin with `#`, are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError, PlatformError
from rp_api.simulation.contract import SimulatedTask
from rp_api.simulation.model import Cost

if TYPE_CHECKING:
    from rp_profiling.analyse.utilisation import Analysis
    from rp_profiling.read.description import Description

_EXECUTABLE = 'simulated'


@dataclass(frozen=True)
class Entry:
    """`count` tasks with one description, and the duration of their programs in seconds."""

    description: Mapping[str, Any]
    duration: Cost
    count: int = 1


class Workload:
    """The tasks of a simulation, in the order in which they are submitted."""

    def __init__(self, entries: Iterable[Mapping[str, Any] | Entry] = ()) -> None:
        self.entries = [each if isinstance(each, Entry) else make_entry(each, f'entry {number}')
                        for number, each in enumerate(entries)]

    @classmethod
    def of(cls, description: Mapping[str, Any], count: int = 1) -> Workload:
        """Return a workload of `count` tasks with one description."""
        return cls([{**description, 'count': count}])

    @classmethod
    def read(cls, path: str | Path) -> Workload:
        """Return the workload in a file."""
        return cls(_lines(Path(path)))

    @classmethod
    def recorded(cls, directory: str | Path) -> Workload:
        """Return the tasks that ran in a session, with resources and durations from its traces, submitted at once."""
        return cls(entries(directory))

    def __len__(self) -> int:
        return sum(entry.count for entry in self.entries)

    def __add__(self, other: Workload) -> Workload:
        return Workload([*self.entries, *other.entries])

    def tasks(self, seed: int = 0) -> list[SimulatedTask]:
        """Return the tasks, with durations that depend only on the seed."""
        random = Random(f'{seed} workload')
        found: list[SimulatedTask] = []
        for entry in self.entries:
            uid = entry.description.get('uid')
            found += [SimulatedTask(uid or f'task.{len(found) + number:06d}', entry.description,
                                    entry.duration.draw(random)) for number in range(entry.count)]
        uids = {task.uid for task in found}
        if len(uids) < len(found):
            raise DescriptionError('several tasks of the workload have the same uid')
        return found


def _lines(path: Path) -> Iterator[Entry]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip() and not line.startswith('#'):
            where = f'{path}, line {number}'
            try:
                values = json.loads(line)
            except ValueError as error:
                raise DescriptionError(f'{where}: {error}') from None
            yield make_entry(values, where)


def make_entry(values: Any, where: str) -> Entry:
    """Return the entry of a description with duration and count."""
    if not isinstance(values, Mapping):
        raise DescriptionError(f'{where}: a description must be a dict, not {values!r}')
    described = dict(values)
    duration, count = described.pop('duration', None), described.pop('count', 1)
    if type(count) is not int or count < 1:
        raise DescriptionError(f'{where}: count is {count!r}, allowed are whole numbers from 1 on')
    if count > 1 and described.get('uid'):
        raise DescriptionError(f'{where}: {count} tasks cannot share the uid {described["uid"]!r}')
    try:
        described = TaskDescription({'executable': _EXECUTABLE, **described})
        described.check()
        return Entry(_sparse(described), read_duration(duration), count)
    except DescriptionError as error:
        raise DescriptionError(f'{where}: {error}') from None


def _sparse(description: TaskDescription) -> dict[str, Any]:
    """Return the attributes of a description that differ from their defaults."""
    defaults = TaskDescription().as_dict()
    return {name: value for name, value in description.as_dict().items() if value != defaults[name]}


def read_duration(value: Any) -> Cost:
    """Return the duration, in seconds or as a distribution, that plain data describes."""
    if isinstance(value, Mapping):
        known = dict(value)
        if {'from', 'to'} == set(known):
            low, high = known['from'], known['to']
            if not _is_time(low) or not _is_time(high) or low > high:
                raise DescriptionError(f'duration is {known!r}, allowed are seconds "from" and "to" that are not less')
            mean = (low + high) / 2
            return Cost(mean, spread=(high - low) / 2 / 3 ** 0.5 / mean if mean else 0.0, shape='uniform')
        if not known.keys() <= {'mean', 'spread', 'shape'} or 'mean' not in known:
            raise DescriptionError(f'duration is {known!r}, allowed are "mean", "spread" and "shape", or "from" and '
                                   '"to"')
        return Cost(constant=known.pop('mean'), **known)
    if not _is_time(value):
        raise DescriptionError(f'duration is {value!r}, allowed are seconds, or the dict of a distribution')
    return Cost(constant=value)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def entries(directory: str | Path) -> list[Entry]:
    """Return the tasks that ran, in the order of their arrival at a scheduler."""
    try:
        from rp_profiling.analyse.utilisation import Analysis
        from rp_profiling.read.description import read_description
        from rp_profiling.read.session import read_trace
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

"""Workloads: descriptions of tasks, and how long their programs run.

A file has a description in each line, as JSON: the attributes of a `TaskDescription`, and besides

- `duration`: seconds that the program runs, or a distribution: `{"mean": 600, "spread": 0.1, "shape": "normal"}`
  (`spread` is the standard deviation as a share of the mean; shapes are `lognormal`, `normal`, `uniform`,
  `gumbel`), or `{"from": 500, "to": 900}`
- `count`: how many such tasks there are, 1 if it is not given

Empty lines, and lines that begin with `#`, do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.simulation.contract import SimulatedTask
from rp_api.simulation.model import Cost

_EXECUTABLE = 'simulated'


@dataclass(frozen=True)
class Entry:
    """So many tasks with one description, and the seconds that each of their programs runs."""

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
        """So many tasks of one kind."""
        return cls([{**description, 'count': count}])

    @classmethod
    def read(cls, path: str | Path) -> Workload:
        """The workload of a file."""
        return cls(_lines(Path(path)))

    @classmethod
    def recorded(cls, directory: str | Path) -> Workload:
        """The tasks that ran in a session, all submitted at once; its traces tell what each had and how long it ran."""
        from rp_client.simulation.recorded import entries

        return cls(entries(directory))

    def __len__(self) -> int:
        return sum(entry.count for entry in self.entries)

    def __add__(self, other: Workload) -> Workload:
        return Workload([*self.entries, *other.entries])

    def tasks(self, seed: int = 0) -> list[SimulatedTask]:
        """The tasks; with the same seed, they last as long."""
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
    """What a description with duration and count stands for."""
    if not isinstance(values, Mapping):
        raise DescriptionError(f'{where}: a description is a dict, not {values!r}')
    described = dict(values)
    duration, count = described.pop('duration', None), described.pop('count', 1)
    if type(count) is not int or count < 1:
        raise DescriptionError(f'{where}: count is {count!r}, allowed are whole numbers from 1 on')
    if count > 1 and described.get('uid'):
        raise DescriptionError(f'{where}: {count} tasks cannot share the uid {described["uid"]!r}')
    try:
        described = TaskDescription({'executable': _EXECUTABLE, **described})
        described.verify()
        return Entry(_sparse(described), read_duration(duration), count)
    except DescriptionError as error:
        raise DescriptionError(f'{where}: {error}') from None


def _sparse(description: TaskDescription) -> dict[str, Any]:
    """What a description says that is not the default: the scheduler knows the rest."""
    defaults = TaskDescription().as_dict()
    return {name: value for name, value in description.as_dict().items() if value != defaults[name]}


def read_duration(value: Any) -> Cost:
    """The seconds, or the distribution of them, that plain data stands for."""
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

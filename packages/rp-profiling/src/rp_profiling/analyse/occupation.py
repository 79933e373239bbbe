"""The cores and GPUs of a pilot that each task had, and when, from `schedule_ok` and `unschedule_stop`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rp_profiling.read.trace import NEVER, Times, Trace
from rp_profiling.write import slots

_ACQUIRED, _RELEASED = 0, 1


@dataclass(frozen=True)
class Resources:
    """The resources of a pilot for tasks."""

    nodes: int
    cores: int
    gpus: int
    cores_per_node: int
    gpus_per_node: int

    def of(self, kind: str) -> int:
        """Return the number of devices of a kind."""
        return self.cores if kind == slots.CORE else self.gpus


@dataclass(frozen=True)
class Devices:
    """The devices of stays, with one entry for each device of each stay of a task.

    `stay` is the number of the stay, `device` the number of the device in `table`, `amount` the task's share of it.
    """

    stay: NDArray[np.intp]
    device: NDArray[np.intp]
    amount: NDArray[np.float64]
    table: list[tuple[int, int, str, int]]
    """Place, node, kind and index of each device."""


class Occupation:
    """The stays of tasks in their slots, with one entry for each in `task`, `place`, `start` and `stop`.

    `stop` is NEVER if the slots were not released; `rows` are the rows of `schedule_ok`. `unpaired` are rows that
    release slots which were not acquired.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        columns = trace.columns
        rows = np.concatenate([trace.rows_of('schedule_ok'), trace.rows_of('unschedule_stop')])
        kind = (columns.event[rows] == columns.events.find('unschedule_stop')).astype(np.int8)
        place = trace.place_of_source[columns.source[rows]]
        order = np.lexsort((kind, columns.time[rows], columns.uid[rows], place))
        rows, kind, place = rows[order], kind[order], place[order]
        task = columns.uid[rows]
        same = np.zeros(len(rows), np.bool_)
        same[:-1] = (task[1:] == task[:-1]) & (place[1:] == place[:-1])
        acquired = kind == _ACQUIRED
        after = np.roll(kind, -1) == _RELEASED
        paired = acquired & same & after
        self.rows = rows[acquired]
        self.task = task[acquired].astype(np.intp)
        self.place = place[acquired]
        self.start: Times = columns.time[self.rows]
        self.stop: Times = np.full(len(self.rows), NEVER, np.int64)
        self.stop[paired[acquired]] = columns.time[rows[np.flatnonzero(paired) + 1]]
        follows = np.zeros(len(rows), np.bool_)
        follows[np.flatnonzero(paired) + 1] = True
        self.unpaired = rows[(kind == _RELEASED) & ~follows]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def resources(self) -> dict[int, Resources]:
        """The resources of each place, as far as agents have recorded them."""
        columns = self.trace.columns
        found = {}
        for row in self.trace.rows_of('resources'):
            values = {name: int(value) for name, value
                      in re.findall(r'(\w+)=(\d+)', columns.messages[columns.message[row]])}
            names = ('nodes', 'cores', 'gpus', 'cores_per_node', 'gpus_per_node')
            found[int(self.trace.place_of_source[columns.source[row]])] = Resources(*(values.get(each, 0)
                                                                                       for each in names))
        return found

    @cached_property
    def devices(self) -> Devices:
        """The devices of all stays; none for messages in an unknown form, as older versions write them."""
        messages = self.trace.columns.message[self.rows]
        pairs = messages.astype(np.int64) * len(self.trace.places) + self.place
        different, number = np.unique(pairs, return_inverse=True)
        table: dict[tuple[int, int, str, int], int] = {}
        lists = [self._shares(int(pair) // len(self.trace.places), int(pair) % len(self.trace.places), table)
                 for pair in different]
        sizes = np.array([len(shares) for shares in lists], np.intp)
        firsts = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.intp)
        flat_device = np.array([device for shares in lists for device, _ in shares], np.intp)
        flat_amount = np.array([amount for shares in lists for _, amount in shares], np.float64)
        count = sizes[number] if len(sizes) else np.zeros(0, np.intp)
        stay = np.repeat(np.arange(len(number)), count)
        within = np.arange(len(stay)) - np.repeat(np.cumsum(count) - count, count)
        entry = np.repeat(firsts[number], count) + within if len(sizes) else np.zeros(0, np.intp)
        return Devices(stay, flat_device[entry], flat_amount[entry], list(table))

    def amounts(self, kind: str) -> NDArray[np.float64]:
        """Return the amount of a kind of devices that each stay has."""
        devices = self.devices
        chosen = np.array([entry[2] == kind for entry in devices.table], np.bool_)
        of_kind = chosen[devices.device] if len(chosen) else np.zeros(0, np.bool_)
        return np.bincount(devices.stay[of_kind], devices.amount[of_kind], len(self)).astype(np.float64)

    def _shares(self, message: int, place: int, table: dict[tuple[int, int, str, int], int]) -> list[tuple[int, float]]:
        try:
            shares = slots.parse(self.trace.columns.messages[message])
        except ValueError:
            return []
        return [(table.setdefault((place, share.node, share.kind, share.device), len(table)), share.amount)
                for share in shares]

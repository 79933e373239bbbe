"""Writes a trace in forms for other programs: the trace viewers of Chrome and Perfetto, and tables.

The viewers show a line for each device of each pilot, with its tasks, and counters of concurrency. The form is the
*Trace Event Format* of Chromium, in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rp_profiling.analyse.utilisation import Analysis
from rp_profiling.draw.pictures import Picture, concurrency
from rp_profiling.read.columns import TICKS
from rp_profiling.read.trace import NEVER
from rp_profiling.write.slots import CORE

_MICROSECONDS = 1_000_000
_NODES = 1_000_000
"""Thread numbers per node: more than any node has devices."""


def write_chrome(analysis: Analysis, path: str | Path) -> int:
    """Write a file for `chrome://tracing` or ui.perfetto.dev, and return the number of events."""
    events = chain(_names(analysis), _stays(analysis), _counters(concurrency(analysis.trace)))
    count = 0
    with open(path, 'w', encoding='utf-8') as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        for event in events:
            file.write((',\n' if count else '') + json.dumps(event, separators=(',', ':')))
            count += 1
        file.write('\n]}\n')
    return count


def write_csv(analysis: Analysis, path: str | Path) -> int:
    """Write all events, in order of time, as one CSV file, and return their number."""
    import csv

    count = 0
    with open(path, 'w', encoding='utf-8', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(('time', 'event', 'comp', 'thread', 'uid', 'state', 'msg'))
        for row in analysis.trace.rows():
            writer.writerow((f'{row.time:.7f}', *row[1:]))
            count += 1
    return count


def _thread(node: int, kind: str, index: int) -> int:
    return node * _NODES + 2 * index + (kind != CORE) + 1


def _names(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield the names of processes (pilots) and threads (devices) for viewers."""
    yield {'ph': 'M', 'name': 'process_name', 'pid': 0, 'tid': 0, 'args': {'name': 'tasks'}}
    for place, name in enumerate(analysis.trace.places):
        if name:
            yield {'ph': 'M', 'name': 'process_name', 'pid': place, 'tid': 0, 'args': {'name': name}}
    for place, node, kind, index in analysis.occupation.devices.table:
        yield {'ph': 'M', 'name': 'thread_name', 'pid': place, 'tid': _thread(node, kind, index),
               'args': {'name': f'node {node} {kind} {index}'}}


def _stays(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield each task on each device that it had, and within that the run time of its program."""
    occupation, trace = analysis.occupation, analysis.trace
    begins, ends = analysis.runs
    zero, last = trace.span
    devices = occupation.devices
    stops = np.where(occupation.stop == NEVER, last, occupation.stop)
    for stay, device in zip(devices.stay.tolist(), devices.device.tolist(), strict=True):
        place, node, kind, index = devices.table[device]
        where = {'ph': 'X', 'pid': place, 'tid': _thread(node, kind, index)}
        task = int(occupation.task[stay])
        start, stop = int(occupation.start[stay]), int(stops[stay])
        yield {**where, 'name': trace.columns.uids[task], 'cat': 'task', **_span(start, stop, zero)}
        begin, end = int(begins[task]), int(ends[task])
        if start <= begin <= end <= stop:
            yield {**where, 'name': 'exec cmd', 'cat': 'exec', **_span(begin, end, zero)}


def _span(start: int, stop: int, zero: int) -> dict[str, float]:
    return {'ts': (start - zero) * _MICROSECONDS / TICKS, 'dur': (stop - start) * _MICROSECONDS / TICKS}


def _counters(picture: Picture) -> Iterator[dict[str, Any]]:
    for layer in picture.layers:
        for x, y in zip(layer.x.tolist(), layer.y.tolist(), strict=True):
            yield {'ph': 'C', 'pid': 0, 'tid': 0, 'name': layer.name, 'ts': x * _MICROSECONDS, 'args': {'tasks': y}}

"""Cores and GPUs of pilots and tasks from the JSON files of a session, for traces of RADICAL-Pilot 1, which lack them.

The files are `pmgr.*.json` and `tmgr.*.json`, or in older versions `<session>.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Description:
    """Cores and GPUs of each pilot and of each task."""

    pilots: dict[str, tuple[float, float]] = field(default_factory=dict)
    tasks: dict[str, tuple[float, float]] = field(default_factory=dict)


def read_description(directory: str | Path) -> Description:
    """Return the content of the JSON files in the directory of a session; others are skipped."""
    found = Description()
    for path in sorted(Path(directory).glob('*.json')):
        try:
            data = json.loads(path.read_text())
        except (ValueError, OSError):
            continue
        if isinstance(data, dict):
            for pilot in _items(data, 'pilots', 'pilot'):
                found.pilots[pilot['uid']] = _of_pilot(pilot)
            for task in _items(data, 'tasks', 'task', 'unit'):
                found.tasks[task['uid']] = _of_task(task.get('description') or {})
    return found


def _items(data: Mapping[str, Any], *keys: str) -> Iterable[dict[str, Any]]:
    for key in keys:
        items = data.get(key)
        values = items.values() if isinstance(items, dict) else items if isinstance(items, list) else ()
        yield from (item for item in values if isinstance(item, dict) and 'uid' in item)


def _of_pilot(pilot: Mapping[str, Any]) -> tuple[float, float]:
    details, wanted = pilot.get('resource_details') or {}, pilot.get('description') or {}
    nodes = len(details.get('node_list') or ()) or wanted.get('nodes') or 0
    cores = nodes * (details.get('cores_per_node') or 0) or wanted.get('cores') or 0
    gpus = nodes * (details.get('gpus_per_node') or 0) or wanted.get('gpus') or 0
    return float(cores), float(gpus)


def _of_task(task: Mapping[str, Any]) -> tuple[float, float]:
    """Return cores and GPUs of a task description, with current names or those of versions before 1.20."""
    ranks = task.get('ranks') or task.get('cpu_processes') or 1
    cores = task.get('cores_per_rank') or task.get('cpu_threads') or 1
    gpus = task.get('gpus_per_rank') or task.get('gpu_processes') or 0
    return float(ranks * cores), float(ranks * gpus)

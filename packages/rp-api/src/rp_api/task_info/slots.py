"""Short form of the slots of a task, in which agents send them and applications keep them.

A slot is a list: name and index of the node, cores, GPUs, and MB of node-local storage and memory. A device is its
index if the task has it alone, else index and occupation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SLOTS = 'slots'
"""The key in the info of a task for its slots."""

_VERSION = 1
_KEYS = frozenset(('node_index', 'node_name', 'cores', 'gpus', 'lfs', 'mem', 'version'))


def with_short_slots(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the info of a task with its slots in the short form."""
    slots = info.get(SLOTS)
    return {**info, SLOTS: [_short(slot) for slot in slots]} if slots else info


def whole_slots(slots: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """Return slots, in the short form or not, as plain data of `Slot`."""
    return None if slots is None else [slot if isinstance(slot, dict) else _whole(*slot) for slot in slots]


def nodes_of(task: Mapping[str, Any]) -> list[str]:
    """Return the names of the nodes of a task with whole slots, each once; the index of a node without name."""
    return list(dict.fromkeys(str(slot.get('node_name') or slot.get('node_index')) for slot in task.get(SLOTS) or ()))


def _short(slot: Mapping[str, Any]) -> list[Any] | Mapping[str, Any]:
    if slot.keys() != _KEYS or slot['version'] != _VERSION:   # of an extension
        return slot
    return [slot['node_name'], slot['node_index'], [_short_device(device) for device in slot['cores']],
            [_short_device(device) for device in slot['gpus']], slot['lfs'], slot['mem']]


def _short_device(device: Mapping[str, Any]) -> Any:
    return device['index'] if device['occupation'] == 1 else [device['index'], device['occupation']]


def _whole(name: str, index: int, cores: Sequence[Any], gpus: Sequence[Any], lfs: int, mem: int) -> dict[str, Any]:
    return {'node_index': index, 'node_name': name, 'cores': [_device(core) for core in cores],
            'gpus': [_device(gpu) for gpu in gpus], 'lfs': lfs, 'mem': mem, 'version': _VERSION}


def _device(short: Any) -> dict[str, Any]:
    index, occupation = short if isinstance(short, (list, tuple)) else (short, 1.0)
    return {'index': index, 'occupation': occupation}

"""The short form of a task's slots, as in the message of `schedule_ok`.

There is one word for each rank, separated by spaces: `<index of the node>:<cores>:<GPUs>`. Devices are indices or
ranges of indices, joined by `+`; a share of a device follows it. `0:0-3+8:1=0.5` means five cores, and half of GPU 1,
on node 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

CORE = 'core'
GPU = 'GPU'


class Share(NamedTuple):
    """A device or a part of one (`amount`, at most 1)."""

    node: int
    kind: str
    device: int
    amount: float


def short_form(slots: Iterable[Mapping[str, Any]]) -> str:
    """Return slots (plain data: `node_index`, `cores` and `gpus` with `index` and `occupation`) in the short form."""
    return ' '.join(f'{slot["node_index"]}:{_devices(slot["cores"])}:{_devices(slot["gpus"])}' for slot in slots)


def parse(text: str) -> tuple[Share, ...]:
    """Return the shares in a short form; ValueError if it is not valid. The empty text has none."""
    return tuple(share for word in text.split() for share in _rank(word))


def _devices(devices: Iterable[Mapping[str, Any] | int]) -> str:
    words = []
    for device in devices:
        if isinstance(device, Mapping):
            amount = device.get('occupation', 1.0)
            words.append(f'{device["index"]}' if amount in (None, 1.0) else f'{device["index"]}={amount:g}')
        else:
            words.append(str(device))
    return '+'.join(words)


def _rank(word: str) -> Iterator[Share]:
    fields = word.split(':')
    if len(fields) != 3:
        raise ValueError(f'{word!r} is not of the form <node>:<cores>:<GPUs>')
    for kind, devices in zip((CORE, GPU), fields[1:], strict=True):
        for device in filter(None, devices.split('+')):
            indices, _, amount = device.partition('=')
            first, _, last = indices.partition('-')
            for index in range(int(first), int(last or first) + 1):
                yield Share(int(fields[0]), kind, index, float(amount or 1))

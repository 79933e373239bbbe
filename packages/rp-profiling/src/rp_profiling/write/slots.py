"""The short form in which traces say what a task occupies: the message of `schedule_ok`.

One word for each rank, with spaces between them: `<index of the node>:<cores>:<GPUs>`. Devices are indices or ranges of
them, joined by `+`; one of which the rank has a share only is followed by it. `0:0-3+8:1=0.5` is four cores and
another one, and half of the GPU 1, of the node 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

CORE = 'core'
GPU = 'GPU'


class Share(NamedTuple):
    """A part of a device, or all of it (`amount` 1)."""

    node: int
    kind: str
    device: int
    amount: float


def short_form(slots: Iterable[Mapping[str, Any]]) -> str:
    """Slots as plain data (`node_index`, `cores` and `gpus` with `index` and `occupation`) in the short form."""
    return ' '.join(f'{slot["node_index"]}:{_devices(slot["cores"])}:{_devices(slot["gpus"])}' for slot in slots)


def parse(text: str) -> tuple[Share, ...]:
    """What the short form stands for; ValueError if it is none. The empty text stands for nothing."""
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

"""The queue of a worker's calls that no rank has, with their attributes, and the resources that these refer to."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_
from typing import Any

from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.call_buffer import CallBuffer
from rp_raptor.wire.parts import Part
from rp_raptor.worker.rank_queue import Call

_BYTES = 1 << 20
"""Bytes of payloads in a bulk at most."""

Attributes = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class RankResources:
    """The resources of the ranks of this manager; `devices` and `cpus` are the GPUs and the CPUs of each."""

    part: Part
    cores: int
    devices: list[list[str]]
    cpus: list[list[int]]
    mpi: bool

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.part.numbers)

    def width(self, attributes: dict[str, Any]) -> int:
        """Return the number of ranks that a call needs: for itself, or for its cores and GPUs."""
        gpus = max(1, len(self.devices[0]) if self.devices else 0)
        return max(ranks_of(attributes), -(-int(attributes.get('cores') or 1) // self.cores),
                   -(-int(attributes.get('gpus') or 0) // gpus))

    def spans(self, attributes: dict[str, Any]) -> bool:
        """Return whether a call runs on the ranks of several nodes."""
        return self.ranks < ranks_of(attributes) <= self.part.widest

    def fault(self, attributes: dict[str, Any] | None) -> str:
        """Return why the worker cannot run a call; empty if it can."""
        if not attributes:
            return ''
        if ranks_of(attributes) > 1 and not self.mpi:
            return f'the call needs {ranks_of(attributes)} ranks, and this worker has no MPI'
        gpus, has = int(attributes.get('gpus') or 0), len(self.devices_of(range(self.ranks)))
        if gpus > has:
            return f'the call needs {gpus} GPUs, and this worker has {has}'
        width = self.width(attributes)
        if width > self.ranks and not self.spans(attributes):
            return f'the call needs {width} ranks with {self.cores} cores each, and this worker has {self.ranks}'
        return ''

    def devices_of(self, ranks: Iterable[int]) -> list[str]:
        """Return the GPUs of these ranks, each once: ranks can share one."""
        return list(dict.fromkeys(device for rank in ranks for device in self.devices[rank])) if self.devices else []

    def cpus_of(self, ranks: Iterable[int]) -> list[int]:
        """Return the CPUs of these ranks; empty if one of them is not bound."""
        found = [self.cpus[rank] for rank in ranks] if self.cpus else []
        return [cpu for cpus in found for cpu in cpus] if all(found) else []


class CallQueue:
    """Calls in order of arrival; `wide` are those that need several ranks."""

    def __init__(self, resources: RankResources) -> None:
        self.wide: deque[Call] = deque()
        self._calls = CallBuffer()
        self._resources = resources
        self._attributes: Attributes = {}

    def __len__(self) -> int:
        return len(self._calls) + len(self.wide)

    @property
    def narrow(self) -> int:
        """The number of waiting calls that need one rank."""
        return len(self._calls)

    def add(self, ids: array[int], payloads: Sequence[bytes], attributes: Attributes | None) -> None:
        """Append calls, with the attributes of those that differ from the default."""
        if attributes:
            self._attributes.update(attributes)
            wide = [self._is_wide(id) for id in ids]
            if any(wide):
                self.wide.extend(compress(zip(ids, payloads, strict=True), wide))
                narrow = list(map(not_, wide))
                ids, payloads = array('Q', compress(ids, narrow)), list(compress(payloads, narrow))
        self._calls.append(ids, payloads)

    def put_back(self, calls: list[Call]) -> None:
        """Put calls in front of all others, in this order."""
        if self._attributes:
            self.wide.extendleft(call for call in reversed(calls) if self._is_wide(call[0]))
            calls = [call for call in calls if not self._is_wide(call[0])]
        self._calls.prepend(array('Q', [id for id, _ in calls]), [payload for _, payload in calls])

    def bulk(self, size: int) -> tuple[array[int], Payloads]:
        """Take at most `size` calls; a call with a timeout is taken alone, so that the start of its time is known."""
        if self._attributes:
            timed = (number for number, id in enumerate(self._calls.first(size)) if self.timeout(id))
            size = max(1, next(timed, size))
        return self._calls.take(size, _BYTES)

    def timeout(self, id: int) -> float:
        """Return the timeout of a call in seconds; 0 for none."""
        attributes = self._attributes.get(id)
        return float(attributes.get('timeout') or 0) if attributes else 0.0

    def width(self, id: int) -> int:
        """Return the number of ranks that a call needs."""
        return self._resources.width(self.attributes(id))

    def attributes(self, id: int) -> dict[str, Any]:
        """Return the attributes of a call."""
        return self._attributes.get(id, {})

    def pop_last(self, count: int) -> array[int]:
        """Take at most `count` calls from the end, and return their ids."""
        back = self._calls.take_last(count)
        while self.wide and len(back) < count:
            back.append(self.wide.pop()[0])
        self.forget(back)
        return back

    def remove(self, ids: Collection[int]) -> array[int]:
        """Remove those of the calls that are here, and return their ids."""
        found = self._calls.remove(ids)
        wide = [id for id, _ in self.wide if id in ids]
        if wide:
            self.wide = deque(call for call in self.wide if call[0] not in ids)
            found.extend(wide)
        self.forget(found)
        return found

    def forget(self, ids: Iterable[int]) -> None:
        """Drop the attributes of finished calls."""
        if self._attributes:
            for id in ids:
                self._attributes.pop(id, None)

    def clear(self) -> None:
        """Remove all calls."""
        self.forget(self._calls.clear())
        self.forget(id for id, _ in self.wide)
        self.wide.clear()

    def pop_spanning(self) -> Call | None:
        """Take the first call that runs on the ranks of several nodes; None if there is none."""
        call = next((call for call in self.wide if self._resources.spans(self.attributes(call[0]))), None)
        if call is not None:
            self.wide.remove(call)
        return call

    def _is_wide(self, id: int) -> bool:
        return id in self._attributes and self.width(id) > 1


def ranks_of(attributes: dict[str, Any]) -> int:
    """Return the number of ranks that a call runs on."""
    return int(attributes.get('ranks') or 1)

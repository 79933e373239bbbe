"""Partitions of pilots, each with its own agent, as applications see them."""

from __future__ import annotations

from typing import Any

from rp_client.core.pilot import PartitionRecord, PilotRecord
from rp_client.handles.pilot import Pilot
from rp_client.service.pilots import PilotOwner


class Partition(Pilot):
    """A part of a pilot with its own agent, made with the pilot or by `Pilot.add_partition`.

    It has the attributes of a pilot, and shares the pilot's description and sandbox.
    """

    __slots__ = ()

    _kind = 'Partition'
    _record: PartitionRecord

    @property
    def number(self) -> int:
        """The number by which tasks request the partition, counted from 0 over all partitions ever made."""
        return self._record.number

    def cancel(self) -> None:
        """End the partition and its tasks, but not its pilot, and wait until it has ended."""
        self._owner.partitions.remove(self._record)

    def as_dict(self) -> dict[str, Any]:
        """Return the partition as plain data."""
        return super().as_dict() | {'type': 'partition', 'pilot': self._record.whole.uid, 'number': self._record.number}

    @property
    def _request(self) -> dict[str, Any]:
        return {'pilot': self._record.whole.uid, 'partition': self._record.number}


def make_pilot(owner: PilotOwner, record: PilotRecord) -> Pilot:
    """Make the handle of a pilot or partition."""
    return (Partition if isinstance(record, PartitionRecord) else Pilot)(owner, record)

"""Partitions of pilots, each with its own agent, as applications see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rp_api import units
from rp_api.description.task import TaskDescription
from rp_client.core.pilot import PartitionRecord
from rp_client.pilot import Pilot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rp_client.pilot_manager import PilotManager
    from rp_client.task_manager import TaskManager


class Partition(Pilot):
    """A part of a pilot with its own agent, made with the pilot or by `Pilot.add_partition`.

    It has the attributes of a pilot, and shares the pilot's description and sandbox.
    """

    def __init__(self, pmgr: PilotManager, record: PartitionRecord) -> None:
        super().__init__(pmgr, record)
        self._part = record

    def __repr__(self) -> str:
        return f'<Partition {self._record.uid} {self._record.state}>'

    @property
    def number(self) -> int:
        """The number by which tasks request the partition, counted from 0 over all partitions ever made."""
        return self._part.number

    def wait(self, state: str | Iterable[str] | None = None, timeout: units.Time | None = None) -> str:
        """Wait until the partition has reached a state, and return its state.

        Args:
            state: A state, or several, of which the earliest counts; default: any final state.
            timeout: Seconds to wait at most; default: no limit.

        Raises:
            StateError: A state is unknown.
            RuntimeError: The session was closed or has failed.
        """
        self._pmgr._partitions.wait(self._part, state, timeout)
        return self._record.state

    def cancel(self) -> None:
        """End the partition and its tasks, but not its pilot, and wait until it has ended."""
        self._pilot.remove_partition(self)

    @property
    def _pilot(self) -> Pilot:
        """The pilot that the partition belongs to."""
        found: Pilot = self._part.whole.handle
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the partition as plain data."""
        return super().as_dict() | {'type': 'partition', 'pilot': self._pilot.uid, 'number': self._part.number}

    def _attached(self) -> TaskManager:
        return self._pilot._attached()

    def _mine(self, description: Mapping[str, Any]) -> TaskDescription:
        """Return a copy of the description that requests this partition."""
        copy = self._pilot._mine(description)
        copy.partition = self._part.number
        return copy

"""Partitions of pilots, each with its own agent, as applications see them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rp_api import units
from rp_api.description.partitions import partition_uid
from rp_api.description.task import TaskDescription
from rp_client.pilot import Pilot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rp_client.task_manager import TaskManager


class Partition(Pilot):
    """A part of a pilot with its own agent, made with the pilot or by `Pilot.add_partition`.

    It has the attributes of a pilot, and shares the pilot's description and sandbox.
    """

    def __init__(self, whole: Pilot, number: int) -> None:
        super().__init__(whole.pmgr, partition_uid(whole.uid, number), whole._description, whole._directories)
        self._parent = whole
        self._number = number

    def __repr__(self) -> str:
        return f'<Partition {self._uid} {self._state}>'

    @property
    def _whole(self) -> Pilot:
        """The pilot that the partition belongs to."""
        return self._parent

    @property
    def _divided(self) -> bool:
        """False: a partition has one agent."""
        return False

    @property
    def number(self) -> int:
        """The number by which tasks request the partition, counted from 0 over all partitions ever made."""
        return self._number

    @property
    def agent_sandbox(self) -> str:
        """The directory of the agent's logs, outputs and traces."""
        return os.path.join(self._whole.pilot_sandbox, self._uid)

    def wait(self, state: str | Iterable[str] | None = None, timeout: units.Time | None = None) -> str:
        """Wait until the partition has reached a state, and return its state.

        Args:
            state: A state, or several, of which the earliest counts; default: any final state.
            timeout: Seconds to wait at most; default: no limit.

        Raises:
            StateError: A state is unknown.
            RuntimeError: The session was closed or has failed.
        """
        self._pmgr._partitions.wait(self, state, timeout)
        return self._state

    def cancel(self) -> None:
        """End the partition and its tasks, but not its pilot, and wait until it has ended."""
        self._whole.remove_partition(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the partition as plain data."""
        return super().as_dict() | {'type': 'partition', 'pilot': self._whole.uid, 'number': self._number}

    def _attached(self) -> TaskManager:
        return self._whole._attached()

    def _mine(self, description: Mapping[str, Any]) -> TaskDescription:
        """Return a copy of the description that requests this partition."""
        copy = self._whole._mine(description)
        copy.partition = self._number
        return copy

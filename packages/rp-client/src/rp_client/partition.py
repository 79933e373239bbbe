"""The application's handle of a partition, a part of a pilot with an agent of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rp_api.description.task import TaskDescription
from rp_api.partitions import partition_uid
from rp_client.pilot import Pilot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from rp_client.task_manager import TaskManager


class Partition(Pilot):
    """A part of a divided pilot; made with the pilot, or by `Pilot.add_partition`.

    It has states, resources, and reasons for its end as a pilot has. It shares the pilot's description and sandbox.
    """

    def __init__(self, whole: Pilot, number: int) -> None:
        super().__init__(whole.pmgr, partition_uid(whole.uid, number), whole.described, whole.sandboxes)
        self._whole = whole
        self._number = number

    def __repr__(self) -> str:
        return f'<Partition {self._uid} {self._state}>'

    @property
    def whole(self) -> Pilot:
        """The pilot that this is a partition of."""
        return self._whole

    @property
    def divided(self) -> bool:
        """False: it has one agent."""
        return False

    @property
    def number(self) -> int:
        """What tasks ask for as `partition`: the place among all partitions that the pilot has had, from 0 on."""
        return self._number

    @property
    def agent_sandbox(self) -> str:
        """The directory of the agent's own files."""
        return os.path.join(self._whole.pilot_sandbox, self._uid)

    def wait(self, state: str | Iterable[str] | None = None, timeout: float | None = None) -> str:
        """The state, once the partition has reached a state (default: any final one), or `timeout` seconds are over."""
        self._pmgr.partitions.wait(self, state, timeout)
        return self._state

    def cancel(self) -> None:
        """End the partition and its tasks, but not its pilot; returns when it has ended."""
        self._whole.remove_partition(self)

    def as_dict(self) -> dict[str, Any]:
        """The partition as plain data."""
        return super().as_dict() | {'type': 'partition', 'pilot': self._whole.uid, 'number': self._number}

    def _attached(self) -> TaskManager:
        return self._whole._attached()

    def _mine(self, description: Mapping[str, Any]) -> TaskDescription:
        """A copy of the description that asks for this partition."""
        copy = self._whole._mine(description)
        copy.partition = self._number
        return copy

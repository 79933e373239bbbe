"""The records of tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rp_api import states
from rp_api.constants import TASK_EXECUTABLE
from rp_api.coordination.contract import KnownTask, PackedInfo, packed_info
from rp_api.failures.kinds import PILOT
from rp_api.failures.losses import LOST
from rp_api.task_info.usage import TaskTimes, TaskUsage, times_of, usage_of
from rp_api.wire import codec
from rp_client.common_description import NOTHING, CommonDescription

if TYPE_CHECKING:
    from rp_client.core.pilot import PilotRecord

HISTORY = 'history'
"""The key in the info of a task for the attempts before the present one."""

RETURNED = 'returned'
"""The key in the info of a task for the pilot that does not run it any more, although it has not ended."""


class TaskRecord:
    """The data of a task.

    Sessions hold hundreds of thousands of tasks, and applications read little more than their states: all other data is
    kept packed, as it was received.

    Attributes:
        common: The part of the description that tasks share.
        own: The other attributes, packed.
        pilot: The pilot, or the partition of one, that the task is bound to.
        attempts: How often it was sent to a pilot.
        stored: Whether it was sent to the coordinator, which then stores it.
        known: The info of all updates, packed; None without any.
        handle: What the application sees of it, once it was asked for.
    """

    __slots__ = ('__weakref__', 'attempts', 'common', 'handle', 'known', 'own', 'pilot', 'state', 'stored', 'uid')

    traced: ClassVar[bool] = True
    """True if the client traces the states: False for chunks."""

    def __init__(self, uid: str, common: CommonDescription, own: bytes = NOTHING) -> None:
        self.uid = uid
        self.common = common
        self.own = own
        self.state = states.NEW
        self.pilot: PilotRecord | None = None
        self.attempts = 0
        self.stored = False
        self.known: bytes | None = None
        self.handle: Any = None

    def __repr__(self) -> str:
        return f'<{type(self).__name__} {self.uid} {self.state}>'

    @property
    def place(self) -> str | None:
        """The uid of the pilot or partition that the task is bound to; None before it is bound."""
        return self.pilot.uid if self.pilot else None

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The records of the failed and lost attempts, without what is not known."""
        return list(self.get(HISTORY) or ())

    @property
    def reached(self) -> str | None:
        """The last state before the task failed or was cancelled; None if unknown."""
        found: str | None = self.get('reached')
        return found

    @property
    def info(self) -> PackedInfo | None:
        """The packed info of all updates of the task."""
        return PackedInfo(self.known) if self.known else None

    @property
    def sandbox(self) -> str | None:
        """The working directory of the task on the platform; None before the task is bound to a pilot."""
        if self.pilot is None:
            return None
        return self.pilot.directories.task(self.uid, self.sparse().get('sandbox', ''))

    def sparse(self) -> dict[str, Any]:
        """Return the attributes that the description sets, as plain data."""
        found: dict[str, Any] = codec.unpack(self.common.packed)
        return found if self.own == NOTHING else {**found, **codec.unpack(self.own)}

    def outputs(self) -> dict[str, str]:
        """Return the paths of the files of standard output and error on the platform; none before there is a sandbox.

        Calls of RAPTOR have no such files, unless their description names them.
        """
        sandbox, description = self.sandbox, self.sparse()
        if sandbox is None:
            return {}
        of_call = description.get('raptor_id') and description.get('mode', TASK_EXECUTABLE) != TASK_EXECUTABLE
        names = {'stdout': f'{self.uid}.out', 'stderr': f'{self.uid}.err'}
        return {stream: os.path.join(sandbox, description.get(stream) or name) for stream, name in names.items()
                if description.get(stream) or not of_call}

    @property
    def times(self) -> TaskTimes:
        """When the task was submitted, and its last attempt was placed, started and ended."""
        return times_of(self.info or {}, self.common.submitted)

    @property
    def usage(self) -> TaskUsage:
        """The resources that the last attempt has used."""
        return usage_of(self.info or {})

    def get(self, name: str) -> Any:
        """Return an item of the info; None without it."""
        return PackedInfo(self.known).as_dict().get(name) if self.known else None

    def learn(self, info: Mapping[str, Any]) -> None:
        """Apply the info of an update."""
        if self.known:
            news = info.as_dict() if type(info) is PackedInfo else info   # unpacked once, not for each item
            info = {**PackedInfo(self.known).as_dict(), **news}
        self.known = info.packed if type(info) is PackedInfo else packed_info(info)

    def restore(self, known: KnownTask, pilot: PilotRecord | None) -> None:
        """Apply the coordinator's record of the task."""
        self.pilot = pilot
        self.attempts = known.attempts
        self.stored = True
        kept = not known.pilot and known.state not in states.FINAL
        state = states.TMGR_SCHEDULING_PENDING if kept else known.state
        # after it was bound again, the task keeps its state until the new attempt has passed it
        self.state = max(state, known.told, key=states.TASK.value)
        self.learn(known.info or {})

    def renew(self, state: str, known: bytes | None, pilot: PilotRecord | None, attempts: int) -> None:
        """Set the state and data of a task that was stored in a file."""
        self.state = state
        self.pilot = pilot
        self.attempts = attempts
        self.stored = True
        if known:
            self.learn(PackedInfo(known))

    def lose(self, pilot: str, reason: str, how: str) -> None:
        """Note that the present attempt was lost with its pilot."""
        failures = self.failures
        entry = {'attempt': len(failures) + 1, 'kind': PILOT, 'reason': reason, 'pilot': pilot, LOST: how}
        self.learn({HISTORY: [*failures, entry], RETURNED: pilot})

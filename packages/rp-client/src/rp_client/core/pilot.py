"""The records of pilots and partitions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.constants import PILOT_STATE
from rp_api.description.partitions import partition_uid
from rp_api.description.pilot import PilotDescription
from rp_client.engine.callbacks import Registry
from rp_client.launcher.sandbox import PilotSandboxes

if TYPE_CHECKING:
    from rp_api.resources import NodeList


class PilotRecord:
    """The data of a pilot.

    Attributes:
        owner: Uid of its pilot manager.
        partitions: All that were ever made, by number.
        launched: Whether its agent, or its job, was started.
        endpoint: The address of its endpoint.
        reached: The last state before a bad end.
        reason: The last message about the pilot.
        waiting: What waits for a place there, as its agent has told last.
        kept: After its end, the tasks that its agent did not report, but may have started.
        announced: Whether its end was announced: by a signal or the batch system, or its time was over.
        handle: What the application sees, set by it when it is made.
        tmgr: Uid of the task manager that the pilot is attached to.
        callbacks: Those of the pilot alone.
    """

    def __init__(self, owner: str, uid: str, description: PilotDescription, directories: PilotSandboxes) -> None:
        self.owner = owner
        self.uid = uid
        self.description = description
        self._directories = directories
        self.partitions: list[PartitionRecord] = []
        self.launched = False
        self.state = states.NEW
        self.resource_details: dict[str, Any] | None = None
        self.nodelist: NodeList | None = None
        self.log: list[str] = []
        self.endpoint = ''
        self.stdout = ''
        self.stderr = ''
        self.exception: str | None = None
        self.exception_detail: str | None = None
        self.reason: str | None = None
        self.waiting: list[dict[str, Any]] = []
        self.reached: str | None = None
        self.kept: list[str] | None = None
        self.announced = False
        self.callbacks = Registry({PILOT_STATE: ('pilot', 'state')})
        self.handle: Any = None
        self.tmgr: str | None = None

    @property
    def whole(self) -> PilotRecord:
        """The pilot itself; for a partition, the pilot that it belongs to."""
        return self

    @property
    def divided(self) -> bool:
        """True if the pilot has partitions, each with its own agent, instead of one agent."""
        return bool(self.description.partitions)

    @property
    def directories(self) -> PilotSandboxes:
        """The pilot's directories, which its partitions share."""
        return self._directories

    @directories.setter
    def directories(self, directories: PilotSandboxes) -> None:
        for pilot in (self, *self.partitions):
            pilot._directories = directories

    @property
    def agent_sandbox(self) -> str:
        """The directory of the agent's logs, outputs and traces."""
        return self.directories.pilot

    @property
    def never_ran(self) -> bool:
        """True if the pilot has ended before its agent was active, so that it has run no task."""
        return (self.state in (states.FAILED, states.CANCELED) and self.reached is not None
                and states.PILOT.value(self.reached) < states.PILOT.value(states.PMGR_ACTIVE))

    def live_places(self) -> Sequence[PilotRecord]:
        """Return the pilot itself, or those of its partitions that have not ended."""
        return [part for part in self.partitions if part.state not in states.FINAL] if self.divided else [self]

    def attach(self, tmgr: str) -> None:
        """Attach the pilot to a task manager; raise `RuntimeError` if it is attached already."""
        if self.tmgr is not None:
            raise RuntimeError(f'{self.uid} is attached to {self.tmgr} already')
        self.tmgr = tmgr

    def restore(self, state: str, info: dict[str, Any] | None) -> None:
        """Apply the coordinator's record of the pilot."""
        self.state = state
        self.launched = states.PILOT.value(state) >= states.PILOT.value(states.PMGR_ACTIVE_PENDING)
        self.learn(info or {})

    def learn(self, info: Mapping[str, Any]) -> None:
        """Apply the info of an update."""
        for name in ('resource_details', 'stdout', 'stderr', 'endpoint', 'kept', 'announced', 'exception',
                     'exception_detail', 'reached', 'reason', 'waiting'):
            if name in info:
                setattr(self, name, info[name])
        told = [info['hint'], *info.get('notices', ())] if info.get('hint') else info.get('notices', ())
        self.log += [sentence for sentence in told if sentence not in self.log]   # may be resent
        if 'resource_details' in info and self.nodelist is not None:
            _take_down(self.nodelist, self.resource_details)
        if 'exception' in info or 'reason' in info:
            self.log.append(info.get('exception') or info['reason'])


class PartitionRecord(PilotRecord):
    """The data of a partition, which has the description and the directories of its pilot."""

    def __init__(self, whole: PilotRecord, number: int) -> None:
        super().__init__(whole.owner, partition_uid(whole.uid, number), whole.description, whole.directories)
        self._whole = whole
        self.number = number

    @property
    def whole(self) -> PilotRecord:
        """The pilot that the partition belongs to."""
        return self._whole

    @property
    def divided(self) -> bool:
        """False: a partition has one agent."""
        return False

    @property
    def agent_sandbox(self) -> str:
        """The directory of the agent's logs, outputs and traces."""
        return os.path.join(self._whole.directories.pilot, self.uid)


def _take_down(nodes: NodeList, details: Mapping[str, Any] | None) -> None:
    """Mark the cores and GPUs of failed nodes as down in a node list."""
    known = {node['index']: node for node in details['node_list']} if details else {}
    for node in nodes.nodes:
        for kind in ('cores', 'gpus'):
            for device, now in zip(node[kind], known.get(node['index'], node)[kind], strict=False):
                if now['occupation'] is None and device['occupation'] is not None:
                    device['occupation'] = None

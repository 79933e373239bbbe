"""The application's handle of a pilot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.constants import PILOT_STATE
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription
from rp_client.engine.callbacks import Registry
from rp_client.launcher.sandbox import PilotSandboxes

if TYPE_CHECKING:
    from rp_api.resources import NodeList
    from rp_client.partition import Partition
    from rp_client.pilot_manager import PilotManager
    from rp_client.raptor import RaptorMaster
    from rp_client.session import Session
    from rp_client.task_manager import TaskManager


class Pilot:
    """A submitted pilot; made by `PilotManager.submit_pilots`, never by the application."""

    def __init__(self, pmgr: PilotManager, uid: str, description: PilotDescription, sandboxes: PilotSandboxes) -> None:
        self._pmgr = pmgr
        self._uid = uid
        self._description = description
        self._sandboxes = sandboxes
        self.partitions: list[Partition] = []   # all that there have been, by their numbers
        self.launched = False   # whether its agent, or its job, was ever started
        self._state = states.NEW
        self._tmgr: TaskManager | None = None
        self._resource_details: dict[str, Any] | None = None
        self._nodelist: NodeList | None = None
        self._log: list[str] = []
        self._stdout = ''
        self._stderr = ''
        self._exception: str | None = None
        self._exception_detail: str | None = None
        self.reached: str | None = None   # the last state before a bad end
        self.callbacks = Registry({PILOT_STATE: ('pilot', 'state')})

    def __repr__(self) -> str:
        return f'<Pilot {self._uid} {self._state}>'

    def __str__(self) -> str:
        return str([self._uid, self.resource, self._state])

    @property
    def uid(self) -> str:
        """The pilot's unique id."""
        return self._uid

    @property
    def whole(self) -> Pilot:
        """The pilot itself; for a partition, the pilot that it is a part of."""
        return self

    @property
    def divided(self) -> bool:
        """Whether the pilot has partitions, of which each has an agent, and none of its own."""
        return bool(self._description.partitions)

    @property
    def sandboxes(self) -> PilotSandboxes:
        """The pilot's directories, which its partitions share."""
        return self._sandboxes

    @sandboxes.setter
    def sandboxes(self, sandboxes: PilotSandboxes) -> None:
        for pilot in (self, *self.partitions):
            pilot._sandboxes = sandboxes

    @property
    def agent_sandbox(self) -> str:
        """The directory of the agent's own files: its log, its output, its traces."""
        return self.sandboxes.pilot

    @property
    def state(self) -> str:
        """The state that the pilot is known to be in, see `radical.pilot.states`."""
        return self._state

    @property
    def pmgr(self) -> PilotManager:
        """The pilot manager that the pilot was submitted to."""
        return self._pmgr

    @property
    def session(self) -> Session:
        """The session that the pilot belongs to."""
        return self._pmgr.session

    @property
    def described(self) -> PilotDescription:
        """The pilot's description itself, for the parts of the client."""
        return self._description

    @property
    def description(self) -> dict[str, Any]:
        """A copy of the pilot's description, as plain data."""
        return self._description.as_dict()

    @property
    def resource(self) -> str:
        """The label of the platform that the pilot is for, such as `local.localhost`."""
        return str(self._description.resource)

    @property
    def resources(self) -> dict[str, Any] | None:
        """How many cores and GPUs the pilot has, such as `{'cpu': 8, 'gpu': 2}`; None before it is active."""
        details = self._resource_details
        return None if details is None else {'cpu': details['cores'], 'gpu': details['gpus']}

    @property
    def resource_details(self) -> dict[str, Any] | None:
        """What the agent found, as plain data; None before the pilot is active.

        `node_list` (a dict for each node), totals `cores` and `gpus`, and of a node `cores_per_node`, `gpus_per_node`,
        `threads_per_core`, `mem_per_node` and `lfs_per_node` (in MB).
        """
        return self._resource_details

    @property
    def nodelist(self) -> NodeList | None:
        """The pilot's nodes, for applications that place their tasks themselves; None before the pilot is active.

        What is taken of it with `find_slots` is noted here only: the agent knows of it by `TaskDescription.slots`.
        """
        if self._nodelist is None and self._resource_details is not None:
            from rp_api.resources import NodeList

            self._nodelist = NodeList(nodes=self._resource_details['node_list'])
        return self._nodelist

    @property
    def log(self) -> list[str]:
        """What happened to the pilot, in sentences, in order; empty as long as nothing did that needs words."""
        return list(self._log)

    @property
    def stdout(self) -> str:
        """The end of what the agent wrote to standard output (2048 characters at most); empty before it has ended."""
        return self._stdout

    @property
    def stderr(self) -> str:
        """The end of what the agent wrote to standard error (2048 characters at most); empty before it has ended."""
        return self._stderr

    @property
    def exception(self) -> str | None:
        """What went wrong, in one sentence; None if nothing did."""
        return self._exception

    @property
    def exception_detail(self) -> str | None:
        """More about what went wrong: the files to look at, and their last lines."""
        return self._exception_detail

    @property
    def pilot_sandbox(self) -> str:
        """The pilot's directory on the platform."""
        return self.sandboxes.pilot

    @property
    def session_sandbox(self) -> str:
        """The session's directory on the platform."""
        return self.sandboxes.session

    @property
    def resource_sandbox(self) -> str:
        """The directory of all sessions on the platform."""
        return self.sandboxes.resource

    @property
    def client_sandbox(self) -> str:
        """The directory that relative paths on the client refer to, as it was when the session was opened."""
        return self.sandboxes.client

    @property
    def endpoint_fs(self) -> str:
        """The root of the platform's file system."""
        return '/'

    def as_dict(self) -> dict[str, Any]:
        """The pilot as plain data: what its attributes say, with the uids of session and pilot manager."""
        names = ('uid', 'state', 'log', 'stdout', 'stderr', 'exception', 'exception_detail', 'resource', 'resources',
                 'endpoint_fs', 'resource_sandbox', 'session_sandbox', 'pilot_sandbox', 'client_sandbox',
                 'description', 'resource_details')
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        nodes = self._resource_details['node_list'] if self._resource_details else None
        return found | {'type': 'pilot', 'session': self.session.uid, 'pmgr': self._pmgr.uid, 'nodelist': nodes}

    def wait(self, state: str | Iterable[str] | None = None, timeout: float | None = None) -> str:
        """The pilot's state, once it has reached a state (default: any final one), or `timeout` seconds are over.

        Of several states, the earliest counts; one that was passed counts as reached; a final state ends the wait.
        Raises `StateError` (a `ValueError`) for an unknown state, and `RuntimeError` if the session cannot go on.
        """
        self._pmgr.wait_pilots(self._uid, state, timeout)
        return self._state

    def cancel(self) -> None:
        """End the pilot and its tasks; returns when it has ended, within seconds: it is killed after 10 s."""
        self._pmgr.cancel_pilots(self._uid)

    def add_partition(self, *, nodes: int = 0, cores: int = 0, gpus: int = 0) -> Partition:
        """Make another partition of what is free of the pilot; returns at once.

        `nodes`, or `cores` and `gpus`, are its size; the default is all nodes that are free, or else all that is free
        of one node. The partition is FAILED, and says why, if so much is not free when its turn comes; it waits for
        partitions that are about to end. Raises `ValueError` for a size that cannot be, and `RuntimeError` if the pilot
        is not divided (`PilotDescription.partitions`), or has ended.
        """
        return self._pmgr.partitions.add(self, {'nodes': nodes, 'cores': cores, 'gpus': gpus})

    def remove_partition(self, partition: int | Partition) -> None:
        """End a partition, given by its number or itself, and cancel its tasks; returns when it has ended.

        What it had can then be had by another one. Raises `ValueError` if the pilot has no such partition.
        """
        number = partition if isinstance(partition, int) else partition.number
        if not 0 <= number < len(self.partitions) or partition not in (number, self.partitions[number]):
            raise ValueError(f'{self._uid} has no partition {partition!r}, it has {len(self.partitions)}, from 0 on')
        self._pmgr.partitions.remove(self.partitions[number])

    def register_callback(self, cb: Callable[..., Any], metric: str = PILOT_STATE, cb_data: Any = None) -> None:
        """Have `cb(pilot, state)` called for each state of this pilot; with `cb_data` as third argument if given.

        It is called in a thread of the session, once for each state from now on, in order. Raises `ValueError` for what
        cannot be called like that, and for a metric other than `PILOT_STATE`.
        """
        self._pmgr.check_process()
        self._pmgr.release_own(self.callbacks.add(cb, metric, cb_data), self)

    def unregister_callback(self, cb: Callable[..., Any] | None, metric: str = PILOT_STATE) -> None:
        """Do not call `cb` any more (None: none of this pilot); `ValueError` if it was not registered here."""
        self._pmgr.check_process()
        self.callbacks.remove(cb, [metric])

    def attach_tmgr(self, tmgr: TaskManager) -> None:
        """Tie the pilot to a task manager; `RuntimeError` if it is tied to one already."""
        if self._tmgr is not None:
            raise RuntimeError(f'{self._uid} is attached to {self._tmgr.uid} already')
        self._tmgr = tmgr

    @property
    def bound_to(self) -> TaskManager | None:
        """The task manager that the pilot is tied to."""
        return self._tmgr

    def detach_tmgr(self) -> None:
        """Undo `attach_tmgr`: the pilot can be given to another task manager; nothing happens to its tasks."""
        self._tmgr = None

    def submit_tasks(self, tds: TaskDescription | Sequence[TaskDescription]) -> Any:
        """Submit tasks to this very pilot, through the task manager that it is attached to.

        Gives a `Task` for one description, a list for a list. Raises `RuntimeError` without a task manager.
        """
        tmgr = self._attached()
        if isinstance(tds, Mapping):
            return tmgr.submit_tasks(self._mine(tds))
        return tmgr.submit_tasks([self._mine(description) for description in tds])

    def submit_raptors(self, tds: TaskDescription | Sequence[TaskDescription]) -> list[RaptorMaster]:
        """Submit RAPTOR masters (one description or a list of them) to this very pilot; gives a list.

        See `TaskManager.submit_raptors`. Raises `RuntimeError` without a task manager.
        """
        wanted = [tds] if isinstance(tds, Mapping) else tds
        return self._attached().submit_raptors([self._mine(description) for description in wanted])

    def _attached(self) -> TaskManager:
        if self._tmgr is None:
            raise RuntimeError(f'{self._uid} is not attached to a task manager: call TaskManager.add_pilots first')
        return self._tmgr

    def _mine(self, description: Mapping[str, Any]) -> TaskDescription:
        """A copy of the description that asks for this pilot."""
        copy = TaskDescription(description)
        copy.pilot = self._uid
        return copy

    def stage_in(self, sds: Any) -> list[str]:
        """Bring files from the client to the pilot's sandbox; gives where they went. Blocks until they are there.

        `sds` is a staging directive or a list of them. Relative targets are relative to the pilot's sandbox. Raises
        `StagingError`.
        """
        return self._pmgr.stage(self, sds, inwards=True)

    def stage_out(self, sds: Any = None) -> list[str]:
        """Bring files from the pilot's sandbox to the client; gives where they went. Blocks until they are there.

        Relative sources are relative to the pilot's sandbox. The default is the archive of the files which the
        description names as `output_staging`. Raises `StagingError`.
        """
        return self._pmgr.stage(self, 'staging_output.tgz' if sds is None else sds, inwards=False)

    def restore(self, state: str, info: dict[str, Any] | None) -> None:
        """Take over what the coordinator knows about the pilot."""
        self._state = state
        self.launched = states.PILOT.value(state) >= states.PILOT.value(states.PMGR_ACTIVE_PENDING)
        self._learn(info or {})

    def _learn(self, info: dict[str, Any]) -> None:
        """Take over what became known about the pilot."""
        self._resource_details = info.get('resource_details', self._resource_details)
        self._stdout = info.get('stdout', self._stdout)
        self._stderr = info.get('stderr', self._stderr)
        self._exception = info.get('exception', self._exception)
        self._exception_detail = info.get('exception_detail', self._exception_detail)
        self._log += [notice for notice in info.get('notices', ()) if notice not in self._log]   # it may come again
        if 'resource_details' in info and self._nodelist is not None:
            _take_down(self._nodelist, self._resource_details)
        self.reached = info.get('reached', self.reached)
        if 'exception' in info or 'reason' in info:
            self._log.append(info.get('exception') or info['reason'])


def _take_down(nodes: NodeList, details: Mapping[str, Any] | None) -> None:
    """Note in a node list what cannot be used any more."""
    known = {node['index']: node for node in details['node_list']} if details else {}
    for node in nodes.nodes:
        for kind in ('cores', 'gpus'):
            for device, now in zip(node[kind], known.get(node['index'], node)[kind], strict=False):
                if now['occupation'] is None and device['occupation'] is not None:
                    device['occupation'] = None

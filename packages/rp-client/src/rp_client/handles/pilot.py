"""Pilots, as applications see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rp_api import units
from rp_api.constants import PILOT_STATE
from rp_api.description.html_table import html_table
from rp_api.description.task import TaskDescription
from rp_api.task_modes import PILOT_RPC
from rp_client.core.pilot import PilotRecord
from rp_client.handles.pilot_attributes import PilotAttributes
from rp_client.ids import Named, uid_of

if TYPE_CHECKING:
    from rp_client.handles.partition import Partition
    from rp_client.handles.pilot_manager import PilotManager
    from rp_client.handles.raptor import RaptorMaster
    from rp_client.handles.task_manager import TaskManager
    from rp_client.service.pilots import PilotOwner


class Pilot(PilotAttributes):
    """A submitted pilot, made by `PilotManager.submit_pilots`; applications do not instantiate it."""

    __slots__ = ()

    _kind = 'Pilot'
    _owner: PilotOwner

    def __init__(self, owner: PilotOwner, record: PilotRecord) -> None:
        super().__init__(owner, record)
        record.handle = self

    def _repr_html_(self) -> str:
        """Return a table of the main attributes, for notebooks."""
        return html_table(f'{self._kind} {self._record.uid}', {
            'state': self._record.state, 'resource': self.resource, 'resources': self.resources,
            'reason': str(self.reason or ''), 'sandbox': self.pilot_sandbox})

    def __str__(self) -> str:
        return str([self._record.uid, self.resource, self._record.state])

    @property
    def partitions(self) -> list[Partition]:
        """All partitions that the pilot ever had, by number."""
        return [partition.handle for partition in self._record.partitions]

    @property
    def pmgr(self) -> PilotManager:
        """The pilot manager that the pilot was submitted to."""
        return self._owner.manager   # type: ignore[no-any-return]

    def cancel(self) -> None:
        """End the pilot and its tasks, and wait until it has ended; kill it after ten seconds."""
        self._owner.cancel([self._record])

    def add_partition(self, *, nodes: int = 0, cores: int = 0, gpus: int = 0, memory: int = 0) -> Partition:
        """Create a partition from free resources of the pilot, and return it at once.

        Partitions that are ending free their resources first. If too little is free then, the new partition becomes
        FAILED. Without a size, it gets all free nodes, or the free part of one node.

        Args:
            nodes: Number of whole nodes.
            cores: Number of cores, instead of `nodes`.
            gpus: Number of GPUs, instead of `nodes`.
            memory: MB of memory, with `cores`; default: a share of the node's free memory in proportion to the cores.

        Raises:
            ValueError: The size is not valid.
            RuntimeError: The pilot has no partitions (`PilotDescription.partitions`), or has ended.
        """
        size = {'nodes': nodes, 'cores': cores, 'gpus': gpus, 'memory': memory}
        return self._owner.partitions.add(self._record, size).handle   # type: ignore[no-any-return]

    def remove_partition(self, partition: int | Partition) -> None:
        """End a partition, cancel its tasks, and wait until it has ended.

        Args:
            partition: The partition, or its number.

        Raises:
            ValueError: The pilot has no such partition.
        """
        number = partition if isinstance(partition, int) else partition.number
        known = self._record.partitions
        if not 0 <= number < len(known) or partition not in (number, known[number].handle):
            raise ValueError(f'{self.uid} has no partition {partition!r}, it has {len(known)}, from 0 on')
        self._owner.partitions.remove(known[number])

    def register_callback(self, cb: Callable[..., Any], metric: str = PILOT_STATE, cb_data: Any = None) -> None:
        """Register a callback for the states of this pilot.

        It is called as `cb(pilot, state)` in a thread of the session, once for each further state, in order.

        Args:
            cb: The callable.
            metric: `PILOT_STATE`.
            cb_data: A third argument for `cb`; default: none is passed.

        Raises:
            ValueError: `cb` does not take these arguments, or the metric is unknown.
        """
        self._owner.check_process()
        self._owner.release_own(self._record.callbacks.add(cb, metric, cb_data), self._record)

    def unregister_callback(self, cb: Callable[..., Any] | None, metric: str = PILOT_STATE) -> None:
        """Remove a callback of this pilot.

        Args:
            cb: The callable, or None for all callbacks of this pilot.
            metric: `PILOT_STATE`.

        Raises:
            ValueError: `cb` is not registered for this pilot.
        """
        self._owner.check_process()
        self._record.callbacks.remove(cb, [metric])

    def rest_url(self) -> str | None:
        """Return the address of the pilot's endpoint for processes on its nodes, see `rp.PilotEndpoint`.

        It is None before the pilot is active, and without `enable_ep` in its description. For a pilot with partitions,
        it is that of the first one that has not ended.
        """
        return next((place.endpoint for place in self._record.live_places() if place.endpoint), None)

    def attach_tmgr(self, tmgr: TaskManager) -> None:
        """Attach the pilot to a task manager.

        Args:
            tmgr: The task manager, which may then bind tasks to the pilot.

        Raises:
            RuntimeError: The pilot is attached to a task manager already.
        """
        self._record.attach(tmgr.uid)

    def submit_tasks(self, tds: TaskDescription | Sequence[TaskDescription]) -> Any:
        """Submit tasks to this pilot, through the task manager that it is attached to.

        Args:
            tds: One task description, or several.

        Returns:
            A `Task` for one description, otherwise a list.

        Raises:
            ValueError: A description is not valid.
            RuntimeError: The pilot is not attached to a task manager.
        """
        return self._attached().submit_tasks(
            self._mine(tds) if isinstance(tds, Mapping) else list(map(self._mine, tds)))

    def submit_raptors(self, tds: TaskDescription | Sequence[TaskDescription]) -> list[RaptorMaster]:
        """Submit RAPTOR masters to this pilot, as `TaskManager.submit_raptors` does.

        Args:
            tds: One task description, or several.

        Raises:
            ValueError: A description is not valid, or its mode is not RAPTOR_MASTER.
            RuntimeError: The pilot is not attached to a task manager.
        """
        return self._attached().submit_raptors(list(map(self._mine, [tds] if isinstance(tds, Mapping) else tds)))

    def register_service(self, uid: str, info: str) -> None:
        """Register a service that does not run as a task of the pilot, or change its information.

        Tasks of this pilot that have `uid` in their `services` wait until it is registered, and get the information as
        `$RP_INFO_<UID>`.

        Args:
            uid: The name by which tasks ask for the service.
            info: The information for them, such as a URL.

        Raises:
            RuntimeError: The pilot has ended, or its agent refuses the service.
        """
        self.rpc('register_service', uid, info)

    def rpc(self, cmd: str, *args: Any, rpc_addr: Named | None = None, rpc_timeout: units.Time | None = None,
            **kwargs: Any) -> Any:
        """Call a handler of the pilot's agent, or of a task on the pilot, and wait for its result.

        The call waits until the pilot is active. It may be used in callbacks, and in several threads at a time. A pilot
        with partitions is called in all partitions that have not ended; the result is that of the first one.

        Args:
            cmd: Name of the handler.
            *args: Positional arguments, plain data.
            rpc_addr: The RAPTOR master or task whose handler is called, or its uid; default: any.
            rpc_timeout: Seconds to wait at most; default: no limit.
            **kwargs: Keyword arguments, plain data.

        Returns:
            The result, plain data.

        Raises:
            ValueError: An argument is not plain data, or `rpc_timeout` is not valid.
            RuntimeError: The call failed, the handler is unknown, or the pilot has ended.
            TimeoutError: The pilot has not answered in time; the call is cancelled.
        """
        self._owner.check_process()
        address = '' if rpc_addr is None else uid_of(rpc_addr)
        master = self._owner.session.find_master(address) if address else None
        if master is not None:
            cmd = kwargs.pop('raptor_cmd', cmd) if cmd == 'raptor_rpc' else cmd
            return master.rpc(cmd, *args, rpc_timeout=rpc_timeout, **kwargs)
        return self._owner.session.calls.call(self._record.live_places() or [self._record], self._record.uid, {
            'mode': PILOT_RPC, 'name': '' if address == self._record.uid else address, 'method': cmd,
            'args': list(args), 'kwargs': kwargs}, rpc_timeout)

    def prepare_env(self, env_name: str, env_spec: Mapping[str, Any]) -> None:
        """Prepare an environment on the pilot, and wait until it exists.

        Tasks run in it if their description names it (`named_env`); until it exists they wait, whether they were
        submitted before or after this call. An environment that exists with the same specification is not built again.
        The call waits until the pilot is active; environments in `PilotDescription.prepare_env` need no call.

        Args:
            env_name: Name of the environment, one word; `rp` is taken by that of the agent.
            env_spec: The specification; all keys are optional. `type`: `venv` (default), `virtualenv`, `conda`,
                `anaconda`, `mamba`, `uv`, `shell` or `container`. `version`: that of Python, as `'3.12'`. `setup`: list
                of requirements, of pip's options, and of paths of projects or of a `pyproject.toml`, whose
                dependencies are installed. `pre_exec`: shell lines that run before. `path`: the directory to use, or
                to build in if it does not exist. Relative paths refer to the pilot's sandbox. `keep`: True, or a
                directory, to use the environment in later pilots. `pack`: True to copy it to the nodes' local disks.
                `container`: for that type, the image, or a dict as `TaskDescription.container`.

        Raises:
            DescriptionError: The name or the specification is not valid.
            RuntimeError: The environment cannot be built, with the last lines of the tool that failed; or it exists
                with another specification, or the pilot has ended.
        """
        from rp_api.description.environment import normal_form  # most applications prepare no environments

        self.rpc('prepare_env', env_name, dict(normal_form(env_name, env_spec)))

    def _attached(self) -> TaskManager:
        tmgr = self._record.whole.tmgr
        if tmgr is None:
            raise RuntimeError(f'{self._record.whole.uid} is not attached to a task manager: call '
                               'TaskManager.add_pilots first')
        return self._owner.session.tmgrs[tmgr].manager   # type: ignore[no-any-return]

    @property
    def _request(self) -> dict[str, Any]:
        """The attributes of descriptions that request this pilot."""
        return {'pilot': self._record.uid}

    def _mine(self, description: Mapping[str, Any]) -> TaskDescription:
        """Return a copy of the description that requests this pilot or partition."""
        copy = TaskDescription(description)
        for name, value in self._request.items():
            copy[name] = value
        return copy

    def stage_in(self, sds: Any) -> list[str]:
        """Transfer files from the client to the pilot's sandbox, and wait until they have arrived.

        Args:
            sds: A staging directive or a list of them; relative targets refer to the pilot's sandbox.

        Returns:
            The targets.

        Raises:
            StagingError: A directive is not valid, or a transfer failed.
        """
        return self._owner.stage(self._record, sds, inwards=True)

    def stage_out(self, sds: Any = None) -> list[str]:
        """Transfer files from the pilot's sandbox to the client, and wait until they have arrived.

        Args:
            sds: A staging directive or a list of them; relative sources refer to the pilot's sandbox. Default: the
                archive of the files in the description's `output_staging`.

        Returns:
            The targets.

        Raises:
            StagingError: A directive is not valid, or a transfer failed.
        """
        return self._owner.stage(self._record, 'staging_output.tgz' if sds is None else sds, inwards=False)

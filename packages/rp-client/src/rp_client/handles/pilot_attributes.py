"""The attributes of pilots that applications read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rp_client.core.pilot import PilotRecord
from rp_client.handles.base import Handle
from rp_client.ids import PILOT, marked

if TYPE_CHECKING:
    from rp_api.reasons.reason import Reason
    from rp_api.resources import NodeList


class PilotAttributes(Handle):
    """The attributes of a pilot that come from its record."""

    __slots__ = ()

    _record: PilotRecord

    @property
    def agent_sandbox(self) -> str:
        """The directory of the agent's logs, outputs and traces."""
        return self._record.agent_sandbox

    @property
    def description(self) -> dict[str, Any]:
        """A copy of the pilot's description, as plain data.

        Submitting it creates a new pilot, with another uid if this pilot's uid was generated.
        """
        description = self._record.description.as_dict()
        description['uid'] = marked(description['uid'] or '', PILOT) or None
        return description

    @property
    def resource(self) -> str:
        """The label of the pilot's platform, such as `local.localhost`."""
        return str(self._record.description.resource)

    @property
    def resources(self) -> dict[str, Any] | None:
        """The numbers of cores and GPUs, such as `{'cpu': 8, 'gpu': 2}`; None before the pilot is active."""
        details = self._record.resource_details
        return None if details is None else {'cpu': details['cores'], 'gpu': details['gpus']}

    @property
    def resource_details(self) -> dict[str, Any] | None:
        """The resources that the agent found, as plain data; None before the pilot is active.

        `node_list` has a dict for each node, `agent_node_list` for each node that is reserved for sub-agents, on which
        no tasks run; `cores` and `gpus` are totals; `cores_per_node`, `gpus_per_node`, `threads_per_core`,
        `mem_per_node` and `lfs_per_node` (both in MB) describe one node.
        """
        return self._record.resource_details

    @property
    def nodelist(self) -> NodeList | None:
        """The pilot's nodes, for applications that place their tasks themselves; None before the pilot is active.

        `find_slots` reserves slots in this object only; `TaskDescription.slots` passes them to the agent.
        """
        if self._record.nodelist is None and self._record.resource_details is not None:
            from rp_api.resources import NodeList

            self._record.nodelist = NodeList(nodes=self._record.resource_details['node_list'])
        return self._record.nodelist

    @property
    def log(self) -> list[str]:
        """Notices and errors about the pilot, oldest first."""
        return list(self._record.log)

    @property
    def stdout(self) -> str:
        """The end of the agent's standard output (at most 2048 characters); empty before it has ended."""
        return self._record.stdout

    @property
    def stderr(self) -> str:
        """The end of the agent's standard error (at most 2048 characters); empty before it has ended."""
        return self._record.stderr

    @property
    def exception(self) -> str | None:
        """The reason of a failure, in one sentence; None without a failure."""
        return self._record.exception

    @property
    def exception_detail(self) -> str | None:
        """Details of a failure: the files to look at, and their last lines."""
        return self._record.exception_detail

    @property
    def pilot_sandbox(self) -> str:
        """The pilot's directory on the platform."""
        return self._record.directories.pilot

    @property
    def session_sandbox(self) -> str:
        """The session's directory on the platform."""
        return self._record.directories.session

    @property
    def resource_sandbox(self) -> str:
        """The directory of all sessions on the platform."""
        return self._record.directories.resource

    @property
    def client_sandbox(self) -> str:
        """The client's directory that relative paths refer to, fixed when the session was opened."""
        return self._record.directories.client

    @property
    def endpoint_fs(self) -> str:
        """The root of the platform's file system."""
        return '/'

    @property
    def reason(self) -> Reason | None:
        """Why the pilot does not run, or has ended, with the batch system's reason and estimate; None if it is active.

        See `Task.reason`.
        """
        from rp_api.reasons.explain import reason_of_pilot  # it compiles many patterns

        view = self._view
        return reason_of_pilot(view.of_pilot(self._record), view)

    def explain(self) -> str:
        """Return the state of the pilot and its reason in several lines, or what waits for a place on it."""
        from rp_api.reasons.explain import explanation  # see `reason`

        view = self._view
        return explanation(view.of_pilot(self._record), view, pilot=True)

    def as_dict(self) -> dict[str, Any]:
        """Return the pilot's attributes as plain data, with the uids of its session and pilot manager."""
        names = ('uid', 'state', 'log', 'stdout', 'stderr', 'exception', 'exception_detail', 'resource', 'resources',
                 'endpoint_fs', 'resource_sandbox', 'session_sandbox', 'pilot_sandbox', 'client_sandbox',
                 'description', 'resource_details')
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        nodes = self._record.resource_details['node_list'] if self._record.resource_details else None
        reason = self.reason
        return found | {'type': 'pilot', 'reason': reason.as_dict() if reason else None,
                        'session': self.session.uid, 'pmgr': self._owner.uid, 'nodelist': nodes}

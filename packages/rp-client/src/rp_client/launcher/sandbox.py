"""The directories of a session on the client and on a platform."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rp_api.description.pilot import PilotDescription
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import fill
from rp_api.system import private
from rp_api.system.host import with_home
from rp_client.launcher.batch.shell import is_remote

_HOME = re.compile(r'\$(?:HOME\b|\{HOME\})')
_ACCOUNTS = {'ornl': '_', 'ncsa': '-'}
"""Separators in account names that begin with a project, by site (`CHM155_003`, `bbka-delta-gpu`); directories are
named after projects."""


@dataclass(frozen=True, slots=True)
class PilotSandboxes:
    """The directories of one pilot, as absolute paths on the platform (`client`: on the client).

    `here` is True if the client can access the platform's directories; else `endpoint` is the URL of a host that can.
    `same_python` is True if the agent runs the Python of the client.
    """

    client: str
    resource: str
    session: str
    pilot: str
    here: bool = True
    endpoint: str = ''
    same_python: bool = True

    def moved(self, resource: str) -> PilotSandboxes:
        """Return these directories below another directory of all sessions."""
        session, pilot = (os.path.relpath(path, self.resource) for path in (self.session, self.pilot))
        return replace(self, resource=resource, session=os.path.join(resource, session),
                       pilot=os.path.join(resource, pilot))

    def task(self, uid: str, sandbox: str) -> str:
        """Return the directory of a task: `sandbox` or its uid, relative to the pilot's directory."""
        return os.path.normpath(os.path.join(self.pilot, sandbox or uid))


def make_sandboxes(session: str, pilot: str) -> None:
    """Make the local directories of a pilot, or use existing ones; raise `OwnershipError` if another user owns them.

    The directory of all sessions may be shared, but not planted by another user.
    """
    resource = os.path.dirname(session)
    os.makedirs(resource, exist_ok=True)
    private.check_entry(resource)
    for path in (session, pilot):
        private.make_directory(path, readable=True)


def pilot_sandboxes(client: str, session: str, pilot: str, description: PilotDescription,
                    platform: ResourceConfig, *, here: bool = True) -> PilotSandboxes:
    """Return the directories of a pilot: `<work directory>/radical.pilot.sandbox/<session>/<pilot>`.

    Variables in the description's `sandbox` are expanded on the client, those in the platform's definition on the
    platform; they stay in the paths unless the client can access its files (`here`).
    """
    base = description.sandbox or platform.default_remote_workdir or '$PWD'
    workdir = fill(base, _described(description, platform))
    if here or description.sandbox:
        workdir = os.path.expandvars(_HOME.sub(with_home(os.environ).get('HOME', '$HOME'), workdir))
        if '$' in workdir:
            raise ValueError(f'sandbox {base!r} of {pilot} uses an environment variable that is not set: {workdir!r}')
        if not os.path.isabs(workdir):
            raise ValueError(f'sandbox {base!r} of {pilot} is not an absolute path')
    resource = Path(workdir) / 'radical.pilot.sandbox'
    return PilotSandboxes(client, str(resource), str(resource / session), str(resource / session / pilot), here,
                          '' if here else files_endpoint(platform), platform.virtenv_mode == 'local')


def files_endpoint(platform: ResourceConfig) -> str:
    """Return the URL of another host that can access the platform's files; empty if the platform names none."""
    return next(filter(is_remote, (platform.filesystem_endpoint, platform.job_manager_endpoint)), '')


def _described(description: PilotDescription, platform: ResourceConfig) -> dict[str, Any]:
    """Return the description, with the project in the form used in directory names."""
    project = (description.project or '').partition(':')[0]   # without the reservation
    mark = _ACCOUNTS.get(platform.label.partition('.')[0])
    return {**description, 'project': project.partition(mark)[0] if mark else project}

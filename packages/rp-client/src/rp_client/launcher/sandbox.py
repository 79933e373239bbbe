"""Where the files of a session lie on the client and on a platform."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rp_api.description.pilot import PilotDescription
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import fill
from rp_api.system import private
from rp_client.launcher.batch.shell import is_remote

_ACCOUNTS = {'ornl': '_', 'ncsa': '-'}
"""Sites where a project has several accounts, and what separates its name from the rest of theirs: `CHM155_003`,
`bbka-delta-gpu`. Directories belong to projects."""


@dataclass(frozen=True, slots=True)
class PilotSandboxes:
    """The directories of one pilot, as absolute paths on the platform (`client` on the client).

    `here` tells whether the client can see those of the platform; else `endpoint` is the URL of the host that does.
    """

    client: str
    resource: str
    session: str
    pilot: str
    here: bool = True
    endpoint: str = ''

    def moved(self, resource: str) -> PilotSandboxes:
        """The same ones below another directory of all sessions."""
        session, pilot = (os.path.relpath(path, self.resource) for path in (self.session, self.pilot))
        return replace(self, resource=resource, session=os.path.join(resource, session),
                       pilot=os.path.join(resource, pilot))

    def task(self, uid: str, sandbox: str) -> str:
        """The directory of a task: its uid below the pilot's, or what its description asks for."""
        return os.path.normpath(os.path.join(self.pilot, sandbox or uid))


def make_sandboxes(session: str, pilot: str) -> None:
    """Make the directories of a pilot here, or take those that are there; `OwnershipError` if they are not ours.

    The directory of all sessions may be shared, but must not be one that another user has put in our way.
    """
    resource = os.path.dirname(session)
    os.makedirs(resource, exist_ok=True)
    private.check_entry(resource)
    for path in (session, pilot):
        private.make_directory(path, readable=True)


def pilot_sandboxes(client: str, session: str, pilot: str, description: PilotDescription,
                    platform: ResourceConfig, *, here: bool = True) -> PilotSandboxes:
    """The directories of a pilot: `<work directory>/radical.pilot.sandbox/<session>/<pilot>`.

    Variables in the description's `sandbox` are those of the client. So are those in the platform's definition where
    its files can be seen from `here`; elsewhere they are left in the paths, to be filled in there.
    """
    base = description.sandbox or platform.default_remote_workdir or '$PWD'
    workdir = fill(base, _described(description, platform))
    if not here and not description.sandbox:
        return _below(workdir, client, session, pilot, platform, here=here)
    workdir = os.path.expandvars(workdir)
    if '$' in workdir:
        raise ValueError(f'sandbox {base!r} of {pilot} uses an environment variable that is not set: {workdir!r}')
    if not os.path.isabs(workdir):
        raise ValueError(f'sandbox {base!r} of {pilot} is not an absolute path')
    return _below(workdir, client, session, pilot, platform, here=here)


def _below(workdir: str, client: str, session: str, pilot: str, platform: ResourceConfig, *,
           here: bool) -> PilotSandboxes:
    resource = Path(workdir) / 'radical.pilot.sandbox'
    return PilotSandboxes(client, str(resource), str(resource / session), str(resource / session / pilot), here,
                          '' if here else files_endpoint(platform))


def files_endpoint(platform: ResourceConfig) -> str:
    """The URL of another host that sees the platform's files; empty if the platform names none."""
    return next(filter(is_remote, (platform.filesystem_endpoint, platform.job_manager_endpoint)), '')


def _described(description: PilotDescription, platform: ResourceConfig) -> dict[str, Any]:
    """The description, with the project as directories are called after it."""
    project = (description.project or '').partition(':')[0]   # then comes a reservation
    mark = _ACCOUNTS.get(platform.label.partition('.')[0])
    return {**description, 'project': project.partition(mark)[0] if mark else project}

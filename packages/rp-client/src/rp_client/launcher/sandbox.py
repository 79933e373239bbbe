"""Where the files of a session lie on the client and on a platform."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rp_api.description.pilot import PilotDescription
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import fill


@dataclass(frozen=True, slots=True)
class PilotSandboxes:
    """The directories of one pilot, as absolute paths on the platform (`client` on the client)."""

    client: str
    resource: str
    session: str
    pilot: str

    def task(self, uid: str, sandbox: str) -> str:
        """The directory of a task: its uid below the pilot's, or what its description asks for."""
        return os.path.normpath(os.path.join(self.pilot, sandbox or uid))


def pilot_sandboxes(client: str, session: str, pilot: str, description: PilotDescription,
                    platform: ResourceConfig) -> PilotSandboxes:
    """The directories of a pilot: `<work directory>/radical.pilot.sandbox/<session>/<pilot>`."""
    base = description.sandbox or platform.default_remote_workdir or '$PWD'
    workdir = os.path.expandvars(fill(base, description))
    if '$' in workdir:
        raise ValueError(f'sandbox {base!r} of {pilot} uses an environment variable that is not set: {workdir!r}')
    if not os.path.isabs(workdir):
        raise ValueError(f'sandbox {base!r} of {pilot} is not an absolute path')
    resource = Path(workdir) / 'radical.pilot.sandbox'
    return PilotSandboxes(client, str(resource), str(resource / session), str(resource / session / pilot))

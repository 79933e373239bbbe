"""The component that takes pilots in PMGR_LAUNCHING_PENDING and leaves them in PMGR_ACTIVE_PENDING, launched."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rp_api import states
from rp_api.constants import PMGR_LAUNCHING_COMPONENT
from rp_api.errors import PilotError
from rp_api.mesh.offload import Offload
from rp_api.platforms.definition import ResourceConfig
from rp_client.component import ClientComponent
from rp_client.launcher.base import Launcher, Start
from rp_client.pilot import Pilot
from rp_profiling.tracer import Tracer


class Launch(NamedTuple):
    """A pilot and the platform that it goes to."""

    pilot: Pilot
    platform: ResourceConfig
    settings: dict[str, Any]
    """The agent's own configuration: numbers and places of its components."""


class PilotLaunching(ClientComponent):
    """Prepares the sandbox of pilots and has their agents started."""

    def __init__(self, index: str, tracer: Tracer, launcher: Launcher, common: dict[str, Any],
                 offload: Offload, failed: Callable[[Pilot, str, str], None]) -> None:
        super().__init__(f'{PMGR_LAUNCHING_COMPONENT}.{index}', tracer)
        self._launcher = launcher
        self._common = common
        self._offload = offload
        self._failed = failed

    def put(self, tasks: list[Launch]) -> None:
        """Take pilots to launch."""
        self.advance([launch.pilot for launch in tasks], states.PMGR_LAUNCHING)
        for launch in tasks:
            if launch.pilot.description['input_staging']:
                self._offload(partial(self._prepare, launch), partial(self._submit, launch))
            else:
                self._submit(launch, self._prepare(launch))

    def _prepare(self, launch: Launch) -> str | None:
        """Make the pilot's sandbox and bring its files there; gives what went wrong."""
        from rp_client.stager.pilot import stage

        pilot = launch.pilot
        try:
            os.makedirs(pilot.sandboxes.pilot, mode=0o700, exist_ok=True)
            stage(pilot, pilot.description['input_staging'], self.tracer, inwards=True)
        except (OSError, PilotError) as error:
            return str(error)
        return None

    def _submit(self, launch: Launch, error: str | None) -> None:
        pilot = launch.pilot
        if pilot.state in states.FINAL:   # cancelled meanwhile
            return
        if error is None:
            self.tracer.record('submission_start', uid=pilot.uid)
            try:
                self._launcher.launch(Start(pilot.uid, Path(pilot.sandboxes.pilot), self._config(launch)))
            except (OSError, PilotError) as failure:
                error = str(failure)
        if error is not None:
            self._failed(pilot, f'{pilot.uid} could not be launched: {error}', pilot.sandboxes.pilot)
            return
        self.tracer.record('submission_stop', uid=pilot.uid)
        self.advance([pilot], states.PMGR_ACTIVE_PENDING)

    def _config(self, launch: Launch) -> dict[str, Any]:
        pilot, sandboxes = launch.pilot, launch.pilot.sandboxes
        description = pilot.description
        wanted = ('resource', 'runtime', 'nodes', 'cores', 'gpus', 'memory', 'cleanup', 'output_staging',
                  'reconfig_src')
        return self._common | {name: description[name] for name in wanted} | {
            'pilot': pilot.uid, 'agent_uid': 'agent_0', 'agent': launch.settings, 'platform': launch.platform.as_dict(),
            'client_sandbox': sandboxes.client, 'resource_sandbox': sandboxes.resource,
            'session_sandbox': sandboxes.session, 'pilot_sandbox': sandboxes.pilot}

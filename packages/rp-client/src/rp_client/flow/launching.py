"""The pilot launching component: launches pilots, from PMGR_LAUNCHING_PENDING to PMGR_ACTIVE_PENDING."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rp_api import states
from rp_api.constants import PMGR_LAUNCHING_COMPONENT
from rp_api.errors import sentence
from rp_api.loop.offload import Offload
from rp_api.platforms.definition import ResourceConfig
from rp_client.component import ClientComponent
from rp_client.core.pilot import PilotRecord
from rp_client.flow.submission import agent_services
from rp_client.launcher.base import Launcher, Start
from rp_client.launcher.launchers import Launchers
from rp_client.launcher.sandbox import make_sandboxes
from rp_profiling.write.tracer import Tracer

_WANTED = ('resource', 'runtime', 'nodes', 'backup_nodes', 'cores', 'gpus', 'memory', 'cleanup', 'output_staging',
           'reconfig_src', 'partitions', 'requeue', 'enable_ep', 'prepare_env', 'app_comm')
"""Attributes of the pilot's description that the agent gets."""

Reach = Callable[[ResourceConfig, Callable[[str], object]], object]
"""Makes the session reachable from a platform on other hosts, and calls back with an error message or ''."""


class Launch(NamedTuple):
    """A pilot to launch, and its platform."""

    pilot: PilotRecord
    platform: ResourceConfig
    settings: dict[str, Any]
    """The agent's configuration: numbers and places of its components."""
    earlier: Sequence[str] = ()
    """Submissions of its job that earlier applications have begun."""


class PilotLaunching(ClientComponent):
    """Prepares the sandboxes of pilots, and passes the pilots to their launchers in bulks.

    `common()` returns the settings that all agents of the session get; `intend(submissions, done)` notes that jobs are
    about to be submitted, and calls `done()` when the coordinator has the note.
    """

    def __init__(self, index: str, tracer: Tracer, advanced: Callable[[Sequence[PilotRecord], str], None],
                 launchers: Launchers, common: Callable[[], dict[str, Any]], offload: Offload, reach: Reach,
                 failed: Callable[[PilotRecord, str, str], None],
                 intend: Callable[[Mapping[PilotRecord, Sequence[str]], Callable[[], object]], object]) -> None:
        super().__init__(f'{PMGR_LAUNCHING_COMPONENT}.{index}', tracer, advanced)
        self._launchers = launchers
        self._common = common
        self._offload = offload
        self._reach = reach
        self._failed = failed
        self._intend = intend
        self.traces_steps = True   # pilots are few
        self._under_way: dict[str, PilotRecord] = {}
        self._earlier: dict[str, Launch] = {}   # those whose jobs may have been submitted, until their launcher knows

    def expect(self, launches: Sequence[Launch]) -> None:
        """Prepare the launchers of pilots that are put soon."""
        for launch in launches:
            self._launchers.assign(launch.pilot.uid, launch.platform)
        for launch in {each.platform.job_manager_endpoint: each for each in launches}.values():
            self._launcher(launch).expect(launch.platform)

    def put(self, tasks: list[Launch]) -> None:
        """Accept pilots to launch."""
        pilots = [launch.pilot for launch in tasks]
        self.received(pilots)
        self.advance(pilots, states.PMGR_LAUNCHING)
        far: dict[str, list[Launch]] = {}
        near = []
        self._earlier.update((launch.pilot.uid, launch) for launch in tasks if launch.earlier)
        for launch in tasks:
            self._launchers.assign(launch.pilot.uid, launch.platform)
            if self._is_near(launch):
                near.append(launch)
            else:
                far.setdefault(launch.platform.job_manager_endpoint, []).append(launch)
        self._place(near)
        for launches in far.values():
            self._reach(launches[0].platform, partial(self._reached, launches))

    def cancelled(self, pilot: PilotRecord) -> None:
        """Cancel the job of a pilot that has ended, if an earlier application may have submitted it."""
        launch = self._earlier.pop(pilot.uid, None)
        if launch is not None:
            self.end_earlier(launch)

    def end_earlier(self, launch: Launch) -> None:
        """Look for the job of a pilot that has ended, and cancel it."""
        self._launcher(launch).launch([self._start(launch, '')])

    def launched(self, uid: str) -> PilotRecord | None:
        """Advance a pilot whose agent, or job, was started, and return it; None if it is final."""
        pilot = self._under_way.pop(uid, None)
        if pilot is None:
            return None
        if pilot.state in states.FINAL:
            self.dropped([pilot])
            return None
        self.tracer.record('submission_stop', uid=uid)
        self.advance([pilot], states.PMGR_ACTIVE_PENDING)
        self.tracer.record('put', uid, pilot.state, msg=pilot.description['resource'])
        return pilot

    def refused(self, uid: str, reason: str) -> None:
        """Fail a pilot that its launcher cannot launch."""
        pilot = self._under_way.pop(uid, None)
        if pilot is not None:
            self._fail(pilot, reason)

    # agents on other hosts: the session listens to them, and variables in paths are expanded there

    def _reached(self, launches: list[Launch], error: str) -> None:
        if error:
            for launch in launches:
                self._fail(launch.pilot, error)
            return
        located: list[Launch] = []
        missing = len(launches)

        def note(launch: Launch, path: str, error: str) -> None:
            nonlocal missing
            missing -= 1
            if error:
                self._fail(launch.pilot, f'{launch.pilot.directories.resource} is not a path on the platform: {error}')
            else:
                launch.pilot.directories = launch.pilot.directories.moved(path)
                located.append(launch)
            if not missing:
                self._place(located)

        for launch in launches:
            self._launcher(launch).locate(launch.platform, launch.pilot.directories.resource, partial(note, launch))

    # sandboxes, and the input staging of pilots

    def _place(self, launches: Sequence[Launch]) -> None:
        ready = []
        for launch in launches:
            if launch.earlier:   # its job may run
                ready.append(launch)
            elif launch.pilot.description['input_staging']:
                self._offload(partial(self._prepare, launch), partial(self._prepared, launch),
                              partial(self._unprepared, launch))
            elif not launch.pilot.directories.here:
                ready.append(launch)
            elif error := self._prepare(launch):
                self._fail(launch.pilot, error)
            else:
                ready.append(launch)
        self._submit(ready)

    def _prepare(self, launch: Launch) -> str | None:
        """Make the pilot's sandbox and stage its files; return an error message, or None."""
        from rp_client.stager.pilot import stage

        pilot = launch.pilot
        try:
            if pilot.directories.here:
                self._make_sandbox(pilot)
            stage(pilot, pilot.description['input_staging'], self.tracer, inwards=True)
        except Exception as error:   # fails this pilot only, although it may be raised in the loop
            return sentence(error)
        return None

    def _make_sandbox(self, pilot: PilotRecord) -> None:
        self.tracer.record('staging_in_start', pilot.uid)
        try:
            make_sandboxes(pilot.directories.session, pilot.directories.pilot)
        except BaseException:
            self.tracer.record('staging_in_fail', pilot.uid)
            raise
        self.tracer.record('staging_in_stop', pilot.uid)

    def _unprepared(self, launch: Launch, error: BaseException) -> None:
        self._fail(launch.pilot, sentence(error))

    def _prepared(self, launch: Launch, error: str | None) -> None:
        if error:
            self._fail(launch.pilot, error)
        else:
            self._submit([launch])

    def _submit(self, launches: Sequence[Launch]) -> None:
        bulks: dict[Launcher, list[Start]] = {}
        for launch in launches:
            pilot = launch.pilot
            if pilot.state in states.FINAL:   # cancelled meanwhile
                self.dropped([pilot])
            else:
                self._under_way[pilot.uid] = pilot
                if not launch.earlier:
                    self.tracer.record('submission_start', uid=pilot.uid, msg=str(pilot.directories.pilot))
                launcher = self._launcher(launch)
                bulks.setdefault(launcher, []).append(
                    self._start(launch, '' if launcher.near else secrets.token_hex(4)))
        for launcher, starts in bulks.items():
            if launcher.near:
                launcher.launch(starts)
            else:
                self._intend({self._under_way[start.uid]: [*start.earlier, start.submission] for start in starts},
                             partial(self._launch_noted, launcher, starts))

    def _start(self, launch: Launch, submission: str) -> Start:
        pilot = launch.pilot
        return Start(pilot.uid, Path(pilot.directories.pilot), self._config(launch), launch.platform,
                     pilot.description, submission, launch.earlier)

    def _launch_noted(self, launcher: Launcher, starts: Sequence[Start]) -> None:
        """Launch pilots whose submission is noted, except those that were cancelled meanwhile."""
        cancelled = {start.uid for start in starts if self._under_way[start.uid].state in states.FINAL}
        self.dropped([self._under_way.pop(uid) for uid in cancelled])
        wanted = [start for start in starts if start.uid not in cancelled]
        for start in wanted:
            self._earlier.pop(start.uid, None)
        if wanted:
            launcher.launch(wanted)

    def _fail(self, pilot: PilotRecord, reason: str) -> None:
        if pilot.state not in states.FINAL:
            self._failed(pilot, f'{pilot.uid} could not be launched: {reason}', pilot.directories.pilot)

    def _is_near(self, launch: Launch) -> bool:
        """Return whether the agent runs on this host; with the target 'node', it may move to a node of its job."""
        return self._launcher(launch).near and launch.settings.get('target') != 'node'

    def _launcher(self, launch: Launch) -> Launcher:
        launcher = self._launchers.of(launch.pilot.uid)
        assert launcher is not None   # assigned in `put`
        return launcher

    def _config(self, launch: Launch) -> dict[str, Any]:
        pilot, sandboxes, common = launch.pilot, launch.pilot.directories, self._common()
        if not self._is_near(launch):   # addresses on this host are of no use there
            common['registry_address'] = common['coordination']['endpoint']
        return common | {name: pilot.description[name] for name in _WANTED} | {
            'services': agent_services(pilot.description),
            'pilot': pilot.uid, 'agent_uid': 'agent_0', 'agent': launch.settings, 'platform': launch.platform.as_dict(),
            'client_sandbox': sandboxes.client, 'resource_sandbox': sandboxes.resource,
            'session_sandbox': sandboxes.session, 'pilot_sandbox': sandboxes.pilot}

"""The owner of the pilots of one manager: submits them, follows their states, and ends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

from rp_api import states, units
from rp_api.constants import PILOT_STATE, TASK_SERVICE
from rp_api.coordination.contract import KnownPilot
from rp_api.description.partitions import WHOLE
from rp_api.description.pilot import PilotDescription
from rp_api.errors import CoordinationError, DescriptionError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import filled
from rp_api.staging.directive import expand
from rp_api.staging.run import check_locations
from rp_client.common_description import counts
from rp_client.core.pilot import PilotRecord
from rp_client.engine.callbacks import Entry, Registry, told
from rp_client.engine.tracker import Tracker
from rp_client.flow.launching import Launch
from rp_client.flow.partitions import Partitions, first_uids
from rp_client.flow.pilot_flow import GRACE, PilotFlow
from rp_client.flow.submission import agent_services
from rp_client.ids import chosen
from rp_client.launcher.launchers import agent_settings, launcher_class
from rp_client.launcher.sandbox import PilotSandboxes, pilot_sandboxes
from rp_client.service.owner import Owner, no_handle

_Prepared = tuple[PilotDescription, ResourceConfig, dict[str, Any], PilotSandboxes]

ACCEPTANCE = 5.0
"""Seconds that a submission waits for the coordinator to accept it."""


class PilotOwner:
    """Owns the pilots of one manager, by uid in `pilots`.

    `manager` is the handle of the manager, and `make(owner, record)` makes that of a pilot or partition. A restored
    owner has its former `uid`.
    """

    def __init__(self, session: Owner, uid: str = '', manager: Any = None,
                 make: Callable[[Any, Any], object] = no_handle) -> None:
        self.session = session
        self.engine = session.engine
        self.manager = manager
        self._make = make
        self.uid = session.register('pmgr', session.pmgrs, self, uid)
        self.pilots: dict[str, PilotRecord] = {}
        self.callbacks = Registry({PILOT_STATE: told('pilot')})
        self.tracker = Tracker(states.PILOT, PILOT_STATE, self.callbacks, self.engine.dispatcher, owner=self.uid)
        self.engine.acknowledger.follow(self.tracker)
        self._board = self.tracker.board
        self.partitions = Partitions(session, self._board, f'{self.uid}.partitions', partial(make, self))
        self._closed = self._ended = False
        self._tracer = session.make_tracer(self.uid)
        self.flow = PilotFlow(self.uid, session, self.pilots, self.partitions, self.tracker, self._tracer)
        self.engine.on_broken.append(self._board.broke)
        self._tracer.record('setup_done', uid=self.uid)
        if not uid:
            self.engine.call(self.engine.connection.note, self.uid, {})

    def counts(self) -> str:
        """Return how many pilots there are, and in which states."""
        return counts('pilot', len(self.pilots), Counter(pilot.state for pilot in list(self.pilots.values())))

    def check_process(self) -> None:
        """Raise `CoordinationError` in a fork of the application."""
        self.engine.process.check()

    def submit(self, descriptions: Sequence[PilotDescription]) -> list[PilotRecord]:
        """Submit pilots; raises every error of their descriptions before sending; see `PilotManager.submit_pilots`."""
        self.check_process()
        if self._closed:
            raise RuntimeError(f'{self.uid} is closed')
        if not descriptions:
            raise ValueError('submit_pilots needs at least one pilot description')
        platform_of = cache(self.session.platform)   # reading it takes a while
        launches = self._register([self._prepare(description, platform_of) for description in descriptions])
        pilots = [launch.pilot for launch in launches]
        for pilot in pilots:
            self._make(self, pilot)
        with suppress(TimeoutError):
            self.engine.submit(self.tracker, pilots, lambda accepted: self.flow.submit(launches, accepted), ACCEPTANCE)
        return pilots

    def wait_for(self, pilots: Sequence[PilotRecord], state: str | Iterable[str] | None,
                 timeout: units.Time | None) -> bool:
        """Wait until pilots or partitions have reached a state; return False after `timeout` seconds."""
        with self.session.report.waiting('pilots') as show:
            return self._board.wait(pilots, state, timeout, show)

    def cancel(self, pilots: Sequence[PilotRecord], timeout: float = GRACE) -> None:
        """End pilots, and kill those that have not ended after `timeout` seconds."""
        self.engine.call(self.flow.cancel, pilots)
        if not self._board.wait(pilots, None, timeout):
            self.kill(pilots)

    def kill(self, pilots: Sequence[PilotRecord]) -> None:
        """Kill pilots, and wait until they have ended."""
        self.engine.call(self.flow.kill, pilots)
        self._board.wait(pilots, None, GRACE)

    def release_own(self, entry: Entry, pilot: PilotRecord) -> None:
        """Pass the states that no application has seen to a new callback of one pilot or partition."""
        tracker = self.tracker if pilot.whole is pilot else self.partitions.tracker
        self.release(tracker.release_own, entry, pilot)

    def release(self, release: Callable[..., object], *args: Any) -> None:
        """Pass the states that no application has seen to a new callback."""
        if not self.engine.broken:
            self.engine.call(release, *args)
            self.engine.call(self.engine.acknowledger.soon)

    def stage(self, pilot: PilotRecord, sds: Any, *, inwards: bool) -> list[str]:
        """Execute staging directives between the client and a pilot's sandbox, and return the targets."""
        from rp_client.stager.pilot import stage

        self.check_process()
        return stage(pilot, sds, self.session.tracer, inwards=inwards)

    def close(self, *, terminate: bool = True) -> None:
        """End all pilots; see `PilotManager.close`."""
        if not self.engine.process.here:
            return
        self._closed = True
        if self._ended or not terminate:
            return
        self._ended = True
        live = [pilot for pilot in self.pilots.values() if pilot.state not in states.FINAL]
        if live and not self.engine.broken:
            self.cancel(live)
        self.flow.close(0.0 if self.engine.broken else 3.0)
        self._tracer.close()

    def leave(self) -> None:
        """Leave the pilots running, as the session closes."""
        if not self._ended:
            self._closed = self._ended = True
            if not self.engine.broken:
                self.engine.run(self.flow.leave)
            self.flow.close(None)
            self._tracer.close()
            self._board.broke(CoordinationError('it was closed, and its pilots keep running'))

    def restore(self, known: KnownPilot, job: Mapping[str, Any] | None) -> PilotRecord:
        """Restore a pilot from the coordinator's record; `job` is the note of its launch, if there was one."""
        if WHOLE in known.record:
            return self.partitions.restore(self.pilots[known.record[WHOLE]], known)
        job = dict(job or {})
        pilot = PilotRecord(self.uid, known.uid, PilotDescription(known.record['description']),
                            PilotSandboxes(**job.get('sandboxes', known.record['sandboxes'])))
        pilot.restore(known.state, known.info)
        self.pilots[pilot.uid] = pilot
        self._make(self, pilot)
        self.flow.restore(pilot, known, job)
        return pilot

    def _prepare(self, description: PilotDescription,
                 platform_of: Callable[[str, str | None], ResourceConfig]) -> _Prepared:
        copy = PilotDescription(description)
        copy.verify()
        check_locations(expand(copy.input_staging))
        platform = platform_of(copy.resource, copy.access_schema)
        missing = [name for name in platform.mandatory_args or []
                   if not copy.get(name) and not (name == 'project' and platform.default_project)]
        if missing:
            raise ValueError(f'{copy.resource} needs these attributes of the pilot description: {", ".join(missing)}')
        platform = filled(platform, copy)
        uid = chosen(copy.uid) or self.session.uids.new('pilot')
        copy.uid = uid
        if copy.services:
            if copy.partitions:
                raise DescriptionError('PilotDescription.services and partitions are both set, but a pilot with '
                                       'partitions has no services of its own: submit them as tasks of mode '
                                       f'{TASK_SERVICE!r}')
            agent_services(copy)   # raises an error before the pilot is submitted
        launcher = launcher_class(platform)
        launcher.check(platform, copy)
        sandboxes = pilot_sandboxes(self.session.client_sandbox, self.session.uid, uid, copy, platform,
                                    here=launcher.sees_sandboxes(platform))
        return copy, platform, agent_settings(platform, copy), sandboxes

    def _register(self, prepared: list[_Prepared]) -> list[Launch]:
        self.session.uids.claim_pilots([uid for description, *_ in prepared for uid in (
            description.uid, *first_uids(description.uid, description.partitions))])
        launches = []
        for description, platform, settings, sandboxes in prepared:
            pilot = PilotRecord(self.uid, description.uid, description, sandboxes)
            self.pilots[pilot.uid] = pilot
            self.partitions.make_first(pilot)
            # its agent knows tasks by their uids alone
            self.session.uids.reserve_tasks([service['uid'] for service in agent_services(description)])
            launches.append(Launch(pilot, platform, settings))
        return launches

"""The pilot manager: submits pilots, follows their states, and ends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rp_api import states, units
from rp_api.constants import PILOT_STATE, TASK_SERVICE
from rp_api.coordination.contract import KnownPilot, Update
from rp_api.description.html_table import html_table
from rp_api.description.partitions import WHOLE
from rp_api.description.pilot import PilotDescription
from rp_api.errors import CoordinationError, DescriptionError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import filled
from rp_api.staging.directive import expand
from rp_api.staging.run import check_locations
from rp_client.common_description import counts, listed
from rp_client.core.pilot import PilotRecord
from rp_client.engine.callbacks import Entry, Registry, told
from rp_client.engine.engine import engine_of
from rp_client.engine.tracker import Tracker
from rp_client.flow.launching import Launch
from rp_client.flow.partitions import Partitions, first_uids
from rp_client.flow.pilot_flow import GRACE, PilotFlow
from rp_client.flow.submission import agent_services
from rp_client.ids import Uids, chosen, is_one, uid_of, uids_of
from rp_client.launcher.launchers import agent_settings, launcher_class
from rp_client.launcher.sandbox import PilotSandboxes, pilot_sandboxes
from rp_client.partition import Partition
from rp_client.pilot import Pilot

if TYPE_CHECKING:
    from rp_client.session import Session

_Prepared = tuple[PilotDescription, ResourceConfig, dict[str, Any], PilotSandboxes]

ACCEPTANCE = 5.0
"""Seconds that a submission waits for the coordinator to accept it."""


class PilotManager:
    """Submits pilots to platforms, follows their states, and ends them.

    Args:
        session: The session that the manager belongs to, and that closes it.
        cfg: Accepted for compatibility, without effect.

    Raises:
        RuntimeError: The session is closed.
    """

    def __init__(self, session: Session, cfg: str | Mapping[str, Any] | None = 'default', *, _uid: str = '') -> None:
        self._session = session
        self._engine = engine_of(session)
        self.uid = session._register_pmgr(self, _uid)
        self._rep = session._report   # clients of RADICAL-Pilot 1 switch it off
        self._pilots: dict[str, PilotRecord] = {}
        self._callbacks = Registry({PILOT_STATE: told('pilot')})
        self._tracker = Tracker(states.PILOT, PILOT_STATE, self._callbacks, self._engine.dispatcher, owner=self.uid)
        self._engine.acknowledger.follow(self._tracker)
        self._board = self._tracker.board
        self._partitions = Partitions(session, self._board, f'{self.uid}.partitions', partial(Partition, self))
        self._closed = self._ended = False
        self._tracer = session._make_tracer(self.uid)
        self._flow = PilotFlow(self.uid, session, self._pilots, self._partitions, self._tracker, self._tracer)
        self._engine.on_broken.append(self._board.broke)
        self._tracer.record('setup_done', uid=self.uid)
        if not _uid:
            self._engine.call(self._engine.connection.note, self.uid, {})

    def __repr__(self) -> str:
        return f'<PilotManager {self.uid}: {self._counts()}>'

    def _repr_html_(self) -> str:
        """Return a table of the pilots, for notebooks."""
        return html_table(f'PilotManager {self.uid}', {'session': self._session.uid, 'pilots': self._counts()})

    def _counts(self) -> str:
        return counts('pilot', len(self._pilots), Counter(pilot.state for pilot in list(self._pilots.values())))

    @property
    def session(self) -> Session:
        """The session that the manager belongs to."""
        return self._session

    @property
    def cfg(self) -> SimpleNamespace:
        """Settings of the session as attributes: `sid`, `base`, `path`, and the coordinator's address `reg_addr`."""
        return SimpleNamespace(**self._session.cfg, reg_addr=self._session.reg_addr)

    def submit_pilots(self, descriptions: PilotDescription | Sequence[PilotDescription]) -> Any:
        """Submit pilots.

        Returns when the coordinator has accepted the pilots, which then survive the application, or after five
        seconds if it does not answer; the pilots are launched once it has accepted them. If a description is refused,
        no pilot is submitted.

        Args:
            descriptions: One pilot description, or several.

        Returns:
            A `Pilot` for one description, otherwise a list.

        Raises:
            ValueError: A description is not valid, or its uid is in use.
            PlatformError: A platform is unknown.
            RuntimeError: The manager is closed.
        """
        self._check_open()
        single = isinstance(descriptions, Mapping)
        wanted: list[PilotDescription] = listed(descriptions, 'pilot')
        if not wanted:
            raise ValueError('submit_pilots needs at least one pilot description')
        platform_of = cache(self._session.get_resource_config)   # reading it takes a while
        launches = self._register([self._prepare(description, platform_of) for description in wanted])
        pilots = [launch.pilot for launch in launches]
        handles = [Pilot(self, pilot) for pilot in pilots]
        with suppress(TimeoutError):
            self._engine.submit(self._tracker, pilots, lambda accepted: self._flow.submit(launches, accepted),
                                ACCEPTANCE)
        return handles[0] if single else handles

    def check_uid(self, uid: str) -> bool:
        """Return whether a uid is free: no pilot or partition of the session has it.

        Args:
            uid: The uid of a pilot to submit.
        """
        return not self._session._uids.knows_pilot(uid)

    def list_pilots(self) -> list[str]:
        """Return the uids of all pilots."""
        return list(self._pilots)

    def get_pilots(self, uids: Uids = None) -> Any:
        """Return pilots.

        Args:
            uids: A pilot or uid, several of them, or None for all pilots.

        Returns:
            A `Pilot` for one pilot or uid, otherwise a list.

        Raises:
            ValueError: A uid is unknown.
        """
        if is_one(uids):
            return self._get(uid_of(uids)).handle
        return [pilot.handle for pilot in self._list(uids)]

    def wait_pilots(self, uids: Uids = None, state: str | Iterable[str] | None = None,
                    timeout: units.Time | None = None) -> Any:
        """Wait until pilots have reached a state, and return their states.

        A state that a pilot has passed counts as reached, and a final state ends the wait for a pilot.

        Args:
            uids: A pilot or uid, several of them, or None for all pilots.
            state: A state, or several, of which the earliest counts; default: any final state.
            timeout: Seconds to wait at most; default: no limit.

        Returns:
            A state for one pilot or uid, otherwise a list of states.

        Raises:
            ValueError: A uid or a state is unknown.
            RuntimeError: The session was closed or has failed.
        """
        pilots = self._list(uids)
        with self._session._report.waiting('pilots') as show:
            self._board.wait(pilots, state, timeout, show)
        return pilots[0].state if is_one(uids) else [pilot.state for pilot in pilots]

    def cancel_pilots(self, uids: Uids = None, _timeout: float | None = None) -> None:
        """End pilots and their tasks, and wait until they have ended; kill them after ten seconds.

        Args:
            uids: A pilot or uid, several of them, or None for all pilots.

        Raises:
            ValueError: A uid is unknown.
        """
        pilots = self._list(uids)
        self._engine.call(self._flow.cancel, pilots)
        if not self._board.wait(pilots, None, GRACE if _timeout is None else _timeout):
            self.kill_pilots([pilot.uid for pilot in pilots])

    def kill_pilots(self, uids: Uids = None) -> None:
        """Kill pilots and their tasks, and wait until they have ended.

        Args:
            uids: A pilot or uid, several of them, or None for all pilots.

        Raises:
            ValueError: A uid is unknown.
        """
        pilots = self._list(uids)
        self._engine.call(self._flow.kill, pilots)
        self._board.wait(pilots, None, GRACE)

    def register_callback(self, cb: Callable[..., Any], cb_data: Any = None, metric: str = PILOT_STATE) -> None:
        """Register a callback for the states of all pilots of this manager.

        It is called as `cb(pilot, state)` in a thread of the session, for each state in order.

        Args:
            cb: The callable.
            cb_data: A third argument for `cb`; default: none is passed.
            metric: `PILOT_STATE`.

        Raises:
            ValueError: `cb` does not take these arguments, or the metric is unknown.
        """
        self._check_process()
        self._release(self._tracker.release, self._callbacks.add(cb, metric, cb_data))

    def _release_own(self, entry: Entry, pilot: PilotRecord) -> None:
        """Pass the states that no application has seen to a new callback of one pilot or partition."""
        tracker = self._tracker if pilot.whole is pilot else self._partitions.tracker
        self._release(tracker.release_own, entry, pilot)

    def _release(self, release: Callable[..., object], *args: Any) -> None:
        if not self._engine.broken:
            self._engine.call(release, *args)
            self._engine.call(self._engine.acknowledger.soon)

    def unregister_callback(self, cb: Callable[..., Any] | None = None, metric: str = PILOT_STATE) -> None:
        """Remove a callback.

        Args:
            cb: The callable; default: all callbacks of the manager.
            metric: `PILOT_STATE`.

        Raises:
            ValueError: `cb` is not registered, or the metric is unknown.
        """
        self._check_process()
        self._callbacks.remove(cb, [metric])

    def as_dict(self) -> dict[str, Any]:
        """Return the manager and its pilots as plain data."""
        return {'type': 'pmgr', 'uid': self.uid, 'cfg': {},
                'pilots': [pilot.handle.as_dict() for pilot in self._pilots.values()]}

    def dump(self, name: str | None = None) -> None:
        """Write `as_dict()` to `<uid>[.<name>].json` in the session directory.

        Args:
            name: Part of the file name that distinguishes several dumps.
        """
        self._session._write_json(f'{self.uid}.{name}.json' if name else f'{self.uid}.json', self.as_dict())

    def close(self, terminate: bool = True) -> None:
        """End all pilots and the manager. Closing a closed manager has no effect.

        Args:
            terminate: False refuses further pilots, and leaves the present ones to the session.
        """
        if not self._engine.process.here:
            return
        self._closed = True
        if self._ended or not terminate:
            return
        self._ended = True
        live = [pilot for pilot in self._pilots.values() if pilot.state not in states.FINAL]
        if live and not self._engine.broken:
            self.cancel_pilots([pilot.uid for pilot in live])
        self._flow.close(0.0 if self._engine.broken else 3.0)
        self._tracer.close()

    def _leave(self) -> None:
        """End the manager and leave its pilots running; called when the session closes with `terminate=False`."""
        if not self._ended:
            self._closed = self._ended = True
            if not self._engine.broken:
                self._engine.run(self._flow.leave)
            self._flow.close(None)
            self._tracer.close()
            self._board.broke(CoordinationError('it was closed, and its pilots keep running'))

    def _add_partition(self, pilot: PilotRecord, size: Mapping[str, int]) -> Any:
        """Add a partition to a pilot; see `Pilot.add_partition`."""
        return self._partitions.add(pilot, size).handle

    def _stage(self, pilot: PilotRecord, sds: Any, *, inwards: bool) -> list[str]:
        """Execute staging directives between the client and a pilot's sandbox, and return the targets."""
        from rp_client.stager.pilot import stage

        self._check_process()
        return stage(pilot, sds, self._session._tracer, inwards=inwards)

    def _apply(self, updates: Sequence[Update]) -> None:
        """Apply the updates of agents; called in the loop, for pilots of any manager."""
        self._flow.apply(updates)

    # attaching to a session: called in the loop

    def _restore(self, known: KnownPilot, job: Mapping[str, Any] | None) -> PilotRecord:
        """Restore a pilot from the coordinator's record; `job` is the note of its launch, if there was one."""
        if WHOLE in known.record:
            return self._partitions.restore(self._pilots[known.record[WHOLE]], known)
        job = dict(job or {})
        pilot = PilotRecord(self.uid, known.uid, PilotDescription(known.record['description']),
                            PilotSandboxes(**job.get('sandboxes', known.record['sandboxes'])))
        pilot.restore(known.state, known.info)
        self._pilots[pilot.uid] = pilot
        Pilot(self, pilot)
        self._flow.restore(pilot, known, job)
        return pilot

    def _resume(self) -> None:
        """Resume the work on all restored pilots."""
        self._flow.resume()

    # submission in the application's thread, which refuses all that can be refused

    def _check_process(self) -> None:
        """Raise `CoordinationError` in a fork of the application."""
        self._engine.process.check()

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            raise RuntimeError(f'{self.uid} is closed')

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
        uid = chosen(copy.uid) or self._session._uids.new('pilot')
        copy.uid = uid
        if copy.services:
            if copy.partitions:
                raise DescriptionError('PilotDescription.services and partitions are both set, but a pilot with '
                                       'partitions has no services of its own: submit them as tasks of mode '
                                       f'{TASK_SERVICE!r}')
            agent_services(copy)   # raises an error before the pilot is submitted
        launcher = launcher_class(platform)
        launcher.check(platform, copy)
        sandboxes = pilot_sandboxes(self._session.client_sandbox, self._session.uid, uid, copy, platform,
                                    here=launcher.sees_sandboxes(platform))
        return copy, platform, agent_settings(platform, copy), sandboxes

    def _register(self, prepared: list[_Prepared]) -> list[Launch]:
        self._session._uids.claim_pilots([uid for description, *_ in prepared for uid in (
            description.uid, *first_uids(description.uid, description.partitions))])
        launches = []
        for description, platform, settings, sandboxes in prepared:
            pilot = PilotRecord(self.uid, description.uid, description, sandboxes)
            self._pilots[pilot.uid] = pilot
            self._partitions.make_first(pilot)
            # its agent knows tasks by their uids alone
            self._session._uids.reserve_tasks([service['uid'] for service in agent_services(description)])
            launches.append(Launch(pilot, platform, settings))
        return launches

    def _get(self, uid: str) -> PilotRecord:
        try:
            return self._pilots[uid]
        except KeyError:
            known = ', '.join(self._pilots) or 'none'
            raise ValueError(f'pilot {uid} is not known to {self.uid}, known are: {known}') from None

    def _list(self, uids: Uids) -> list[PilotRecord]:
        return [self._get(uid) for uid in (list(self._pilots) if uids is None else uids_of(uids))]

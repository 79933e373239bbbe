"""The pilot manager: submits pilots, follows their states, ends them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.constants import PILOT_STATE
from rp_api.coordination.contract import KnownPilot, Update
from rp_api.description.pilot import PilotDescription
from rp_api.errors import CoordinationError, attribute_type_error
from rp_api.partitions import WHOLE
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import filled
from rp_api.staging.directive import expand
from rp_api.staging.run import check_locations
from rp_client.engine.callbacks import Entry, Registry, told
from rp_client.engine.engine import engine_of
from rp_client.engine.tracker import Tracker
from rp_client.flow.launching import Launch
from rp_client.flow.partitions import Partitions, first_uids
from rp_client.flow.pilot_flow import GRACE, PilotFlow
from rp_client.launcher.launchers import launcher_class
from rp_client.launcher.sandbox import PilotSandboxes, pilot_sandboxes
from rp_client.launcher.settings import agent_settings
from rp_client.pilot import Pilot

if TYPE_CHECKING:
    from rp_client.session import Session

_LATER = {'services': 'services', 'prepare_env': 'named environments', 'enable_ep': 'task submission endpoints',
          'app_comm': 'application channels', 'reconfig_src': 'reconfiguration'}
"""Attributes that this version does not act upon, and what they ask for: refused instead of ignored."""

_Prepared = tuple[PilotDescription, ResourceConfig, dict[str, Any], PilotSandboxes]

ACCEPTANCE = 5.0
"""Seconds that a submission waits for a coordinator that is away."""


class PilotManager:
    """Submits pilots to platforms.

    `cfg` is taken for compatibility. Raises `RuntimeError` if the session is closed. Callbacks are called as
    `cb(pilot, state)`, for every state in order, in a thread of the session.
    """

    def __init__(self, session: Session, cfg: str | Mapping[str, Any] | None = 'default', *, _uid: str = '') -> None:
        self._session = session
        self._engine = engine_of(session)
        self.uid = session.register_pmgr(self, _uid)
        self._pilots: dict[str, Pilot] = {}
        self._callbacks = Registry({PILOT_STATE: told('pilot')})
        self._tracker = Tracker(states.PILOT, PILOT_STATE, self._callbacks, self._engine.dispatcher, owner=self.uid)
        self._engine.acknowledger.follow(self._tracker)
        self._board = self._tracker.board
        self.partitions = Partitions(session, self._board, f'{self.uid}.partitions')
        self._closed = self._ended = False
        self._tracer = session.tracer(self.uid)
        self._flow = PilotFlow(self.uid, session, self._pilots, self.partitions, self._tracker, self._tracer)
        self._engine.on_broken.append(self._board.broke)
        self._tracer.record('setup_done', uid=self.uid)
        if not _uid:
            self._engine.call(self._engine.connection.note, self.uid, {})

    @property
    def session(self) -> Session:
        """The session that the manager belongs to."""
        return self._session

    def submit_pilots(self, descriptions: PilotDescription | Sequence[PilotDescription]) -> Any:
        """Submit pilots; gives a `Pilot` for one description, a list for a list.

        Returns when the coordinator has accepted them, so that they survive the application, or when it has been away
        for five seconds; they are launched when it has. Raises `ValueError` (or a sub-class) for a description that
        cannot work, `PlatformError` for an unknown platform; no pilot is submitted then.
        """
        self._check_open()
        single = isinstance(descriptions, Mapping)
        wanted = _listed(descriptions)
        if not wanted:
            raise ValueError('submit_pilots needs at least one pilot description')
        platform_of = cache(self._session.get_resource_config)   # reading it takes a while
        launches = self._register([self._prepare(description, platform_of) for description in wanted])
        with suppress(TimeoutError):
            self._engine.ask(lambda accepted: self._flow.submit(launches, accepted), ACCEPTANCE)
        return launches[0].pilot if single else [launch.pilot for launch in launches]

    def check_uid(self, uid: str) -> bool:
        """Whether a pilot of that uid can be submitted: no other one in the session has it."""
        return not self._session.uids.knows_pilot(uid)

    def list_pilots(self) -> list[str]:
        """The uids of all pilots."""
        return list(self._pilots)

    def get_pilots(self, uids: str | Iterable[str] | None = None) -> Any:
        """The pilot with that uid, or a list of pilots (None: all); `ValueError` for an unknown uid."""
        if isinstance(uids, str):
            return self._get(uids)
        return [self._get(uid) for uid in (self._pilots if uids is None else uids)]

    def wait_pilots(self, uids: str | Iterable[str] | None = None, state: str | Iterable[str] | None = None,
                    timeout: float | None = None) -> Any:
        """The states of pilots (None: all), once each has reached a state, or `timeout` seconds are over.

        Gives a state for one uid, a list for several. The default is any final state. Of several states, the earliest
        counts. A state that was passed counts as reached, and a final state ends the wait. Raises `ValueError` for an
        unknown uid or state, and `RuntimeError` if the session cannot go on.
        """
        pilots = self.get_pilots(uids)
        self._board.wait([pilots] if isinstance(uids, str) else pilots, state, timeout)
        return pilots.state if isinstance(uids, str) else [pilot.state for pilot in pilots]

    def cancel_pilots(self, uids: str | Iterable[str] | None = None, _timeout: float | None = None) -> None:
        """End pilots (None: all) and their tasks; returns when they have ended.

        Those that have not after ten seconds are killed. Raises `ValueError` for an unknown uid.
        """
        pilots = self._list(uids)
        self._engine.call(self._flow.cancel, pilots)
        if not self._board.wait(pilots, None, GRACE if _timeout is None else _timeout):
            self.kill_pilots([pilot.uid for pilot in pilots])

    def kill_pilots(self, uids: str | Iterable[str] | None = None) -> None:
        """End pilots (None: all) without giving them time; returns when they have. `ValueError` for an unknown uid."""
        pilots = self._list(uids)
        self._engine.call(self._flow.kill, pilots)
        self._board.wait(pilots, None, GRACE)

    def register_callback(self, cb: Callable[..., Any], cb_data: Any = None, metric: str = PILOT_STATE) -> None:
        """Have `cb(pilot, state)` called for each state of each pilot; with `cb_data` as third argument if given.

        Raises `ValueError` for what cannot be called like that, and for a metric other than `PILOT_STATE`.
        """
        self.check_process()
        self._release(self._tracker.release, self._callbacks.add(cb, metric, cb_data))

    def release_own(self, entry: Entry, pilot: Pilot) -> None:
        """Tell a new callback of a pilot's own, or of a partition's, what no application was told."""
        tracker = self._tracker if pilot.whole is pilot else self.partitions.tracker
        self._release(tracker.release_own, entry, pilot)

    def _release(self, release: Callable[..., object], *args: Any) -> None:
        if not self._engine.broken:
            self._engine.call(release, *args)
            self._engine.call(self._engine.acknowledger.soon)

    def unregister_callback(self, cb: Callable[..., Any] | None = None, metric: str = PILOT_STATE) -> None:
        """Do not call `cb` any more (None: none); `ValueError` if it is not registered."""
        self.check_process()
        self._callbacks.remove(cb, [metric])

    def as_dict(self) -> dict[str, Any]:
        """The manager and its pilots as plain data."""
        return {'type': 'pmgr', 'uid': self.uid, 'cfg': {},
                'pilots': [pilot.as_dict() for pilot in self._pilots.values()]}

    def dump(self, name: str | None = None) -> None:
        """Write `as_dict()` to `<uid>[.<name>].json` in the session directory."""
        self._session.write_json(f'{self.uid}.{name}.json' if name else f'{self.uid}.json', self.as_dict())

    def close(self, terminate: bool = True) -> None:
        """End all pilots and the manager; harmless when it is closed already.

        With `terminate` False, only no more pilots can be submitted; those that are there end with the session.
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

    def leave(self) -> None:
        """End the manager, but not its pilots; for a session that goes on without its application."""
        if not self._ended:
            self._closed = self._ended = True
            if not self._engine.broken:
                self._engine.run(self._flow.leave)
            self._flow.close(None)
            self._tracer.close()
            self._board.broke(CoordinationError('it was closed, and its pilots go on'))

    def stage(self, pilot: Pilot, sds: Any, *, inwards: bool) -> list[str]:
        """Carry out staging directives between the client and a pilot's sandbox; gives the targets."""
        from rp_client.stager.pilot import stage

        self.check_process()
        return stage(pilot, sds, self._session.own_tracer, inwards=inwards)

    def apply(self, updates: Sequence[Update]) -> None:
        """Take over what agents have reported; called in the loop, for pilots of any manager."""
        self._flow.apply(updates)

    # a session that is taken over; all this is called in the loop

    def restore(self, known: KnownPilot, job: Mapping[str, Any] | None) -> Pilot:
        """Make a pilot again as the coordinator knows it; `job` is what was noted when it was launched, if it was."""
        if WHOLE in known.record:
            return self.partitions.restore(self._pilots[known.record[WHOLE]], known)
        job = dict(job or {})
        pilot = Pilot(self, known.uid, PilotDescription(known.record['description']),
                      PilotSandboxes(**job.get('sandboxes', known.record['sandboxes'])))
        pilot.restore(known.state, known.info)
        self._pilots[pilot.uid] = pilot
        self._flow.restore(pilot, known, job)
        return pilot

    def resume(self) -> None:
        """Go on with all pilots that were restored."""
        self._flow.resume()

    # what submission does in the application's thread: everything that can be refused is refused here

    def check_process(self) -> None:
        """Raise `CoordinationError` in a fork of the application."""
        self._engine.process.check()

    def _check_open(self) -> None:
        self.check_process()
        if self._closed:
            raise RuntimeError(f'{self.uid} is closed')

    def _prepare(self, description: PilotDescription,
                 platform_of: Callable[[str, str | None], ResourceConfig]) -> _Prepared:
        copy = PilotDescription(description)
        copy.verify()
        check_locations(expand(copy.input_staging))
        for name, what in _LATER.items():
            if copy[name]:
                raise ValueError(f'PilotDescription.{name} is {copy[name]!r}, but {what} are not supported: '
                                 'leave it unset')
        platform = platform_of(copy.resource, copy.access_schema)
        missing = [name for name in platform.mandatory_args or []
                   if not copy.get(name) and not (name == 'project' and platform.default_project)]
        if missing:
            raise ValueError(f'{copy.resource} needs these attributes of the pilot description: {", ".join(missing)}')
        platform = filled(platform, copy)
        uid = copy.uid or self._session.uids.new('pilot')
        copy.uid = uid
        launcher = launcher_class(platform)
        launcher.check(platform, copy)
        sandboxes = pilot_sandboxes(self._session.client_sandbox, self._session.uid, uid, copy, platform,
                                    here=launcher.sees_sandboxes(platform))
        return copy, platform, agent_settings(platform, copy), sandboxes

    def _register(self, prepared: list[_Prepared]) -> list[Launch]:
        self._session.uids.claim_pilots([uid for description, *_ in prepared for uid in (
            description.uid, *first_uids(description.uid, description.partitions))])
        launches = []
        for description, platform, settings, sandboxes in prepared:
            pilot = Pilot(self, description.uid, description, sandboxes)
            self._pilots[pilot.uid] = pilot
            self.partitions.make_first(pilot)
            launches.append(Launch(pilot, platform, settings))
        return launches

    def _get(self, uid: str) -> Pilot:
        try:
            return self._pilots[uid]
        except KeyError:
            known = ', '.join(self._pilots) or 'none'
            raise ValueError(f'pilot {uid} is not known to {self.uid}, known are: {known}') from None

    def _list(self, uids: str | Iterable[str] | None) -> list[Pilot]:
        return self.get_pilots([uids] if isinstance(uids, str) else uids)   # type: ignore[no-any-return]


def _listed(descriptions: Any) -> list[PilotDescription]:
    """Pilot descriptions as a list, if it is only one as well."""
    many = isinstance(descriptions, Iterable) and not isinstance(descriptions, Mapping | str)
    found = list(descriptions) if many else [descriptions]
    for description in found:
        if not isinstance(description, Mapping):
            raise attribute_type_error(f'pilot descriptions are needed, not {description!r}')
    return found

"""The way of a pilot manager's pilots: to the coordinator, to a job, and to their ends.

Runs in the thread of the engine. The coordinator knows a pilot before it is launched, so that a client that takes over
finds it. A launcher watches the job, and the agent reports on itself; where both do, the agent's word counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.coordination.contract import KnownPilot, Update
from rp_api.errors import sentence
from rp_api.platforms.definition import ResourceConfig
from rp_api.system.host import host_id
from rp_client.engine.tracker import Change, Tracker
from rp_client.flow.launching import Launch, PilotLaunching
from rp_client.flow.partitions import Partitions
from rp_client.launcher.base import Context, End, Launcher, Reports
from rp_client.launcher.launchers import Launchers
from rp_client.launcher.network import own_address
from rp_client.pilot import Pilot

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from rp_client.flow.session_services import SessionServices
    from rp_profiling.write.tracer import Tracer

_log = logging.getLogger('radical.pilot.pilot_manager')

GRACE = 10.0
"""Seconds that a cancelled pilot has to end its tasks and itself before it is killed."""

DRAIN = 0.25
"""Seconds that results of an agent that has died have to arrive before its tasks are failed."""

BATCH_WORD = 30.0
"""Seconds that a batch system has to tell why it has ended a job whose agent was told to end by a signal."""

LAST_WORD = 1.0
"""Seconds that an agent's message about its end has to arrive when it ended in order."""


class PilotFlow:
    """Launches and ends the pilots of one manager, and follows what agents and launchers say of them."""

    def __init__(self, owner: str, session: SessionServices, pilots: Mapping[str, Pilot], partitions: Partitions,
                 tracker: Tracker, tracer: Tracer) -> None:
        self._owner = owner
        self._session = session
        self._engine = session.engine
        self._pilots = pilots
        self._partitions = partitions
        self._tracker = tracker
        self._tracer = tracer
        self._restored: list[tuple[Pilot, KnownPilot, Mapping[str, Any]]] = []
        self._postponed: dict[str, Change] = {}
        self._jobs: set[str] = set()   # pilots whose jobs are noted
        belongs = {'RP_SESSION_ID': session.uid, 'RP_REGISTRY_ADDRESS': session.reg_addr}
        self._launchers = Launchers(Context(self._engine.loop, Path(session.path), belongs, Reports(
            self._launched, self._refused, self._told, self._unschedulable, self._agent_ended)))
        index = owner.rpartition('.')[2]
        self._launching = PilotLaunching(index, session.tracer(f'pmgr_launching.{index}'), self._launchers,
                                         session.agent_config, self._engine.helpers.run, self._reach, self._fail)
        self._launching.advanced = lambda pilots, state: self._advance(pilots, state)

    def submit(self, launches: list[Launch], accepted: Future[None]) -> None:
        """Take new pilots; `accepted` gets a result when the coordinator has them."""
        pilots = [launch.pilot for launch in launches]
        self._engine.connection.insert_pilots(
            {launch.pilot.uid: self._record(launch) for launch in launches}, self._owner)
        self._partitions.insert_first(pilots)
        self._tracer.record_bulk('advance', [pilot.uid for pilot in pilots], states.PMGR_LAUNCHING_PENDING)
        self._advance(pilots, states.PMGR_LAUNCHING_PENDING)
        self._launching.expect(launches)
        # an application that dies after this must find its pilots again
        self._engine.connection.when_settled(lambda: self._start(launches, accepted))

    def cancel(self, pilots: Sequence[Pilot]) -> None:
        """Have pilots end, as far as they have not; those that have begun are asked to."""
        for pilot in pilots:
            if pilot.state in states.FINAL:
                continue
            launcher = self._launchers.of(pilot.uid)
            ends = launcher is not None and self._before(pilot, states.PMGR_ACTIVE) and launcher.cancel(pilot.uid)
            if self._before(pilot, states.PMGR_ACTIVE_PENDING):
                self._advance([pilot], states.CANCELED, {'reason': 'cancelled before it was launched'})
            elif ends:
                self._advance([pilot], states.CANCELED, {'reason': 'cancelled before its agent was active'})
            else:
                self._engine.connection.command(pilot.uid, {'cmd': 'cancel_pilot', 'reason': 'cancelled'})

    def kill(self, pilots: Sequence[Pilot]) -> None:
        """End pilots at once, and what may be left of their agents."""
        for pilot in pilots:
            if pilot.state not in states.FINAL:
                self._advance([pilot], states.CANCELED, {'reason': 'killed'})
            self._kill_agent(pilot)

    def apply(self, updates: Sequence[Update]) -> None:
        """Take over what agents have reported, as far as it is of these pilots."""
        changes = [Change(self._pilots[uid], state, info) for uid, state, info in updates if uid in self._pilots]
        self._follow([change for change in changes if not self._postpone(change)])
        self._partitions.apply(updates)

    def _follow(self, changes: list[Change]) -> None:
        for change in changes:
            pilot, known = change.entity, len(change.entity.log)
            real = self._tracker.apply([change])
            notices = [notice for notice in (change.info or {}).get('notices', ()) if notice in pilot.log[known:]]
            for notice in notices:
                _log.warning('%s', notice)
            if notices and not real:
                self._tracker.notice(pilot)   # its state is the same, but a callback may want to look at it
            self._changed(real)

    def _postpone(self, change: Change) -> bool:
        """Whether an end that an agent was told by a signal waits for the word of the batch system."""
        pilot, state, info = change
        launcher = self._launchers.of(pilot.uid)
        if (pilot.uid in self._postponed or pilot.state in states.FINAL or state != states.FAILED
                or not (info or {}).get('by_signal') or launcher is None or launcher.near):
            return False
        self._postponed[pilot.uid] = change
        self._engine.loop.call_later(BATCH_WORD, self._end_postponed, pilot.uid, '')
        return True

    def _end_postponed(self, uid: str, words: str) -> None:
        change = self._postponed.get(uid)
        if change is not None:
            info = dict(change.info or {})
            if words:
                info |= {'exception': f'{info["exception"]}; {words}', 'reason': f'{info["reason"]}; {words}'}
            self._follow([change._replace(info=info)])
            del self._postponed[uid]

    def leave(self) -> None:
        """Leave the pilots alone from now on."""
        self._launchers.leave()

    def close(self, timeout: float | None) -> None:
        """Free everything, in the application's thread; launchers have `timeout` seconds (None: they were left)."""
        if timeout is not None:
            self._launchers.close(timeout)
        self._launching.close()

    # a session that is taken over

    def restore(self, pilot: Pilot, known: KnownPilot, job: Mapping[str, Any]) -> None:
        """Take a pilot that the coordinator knows; `job` is what was noted when it was launched, if it was."""
        self._restored.append((pilot, known, job))
        if job:
            self._jobs.add(pilot.uid)
        self._tracker.restored(pilot, known.told)

    def resume(self) -> None:
        """Watch jobs, and agents of this host; launch those that never were, and see to those that have ended.

        An agent whose pilot is final may still run, as it could not be reached when it was lost: it has to end.
        """
        restored, self._restored = self._restored, []
        for pilot, known, job in restored:
            self._partitions.follow(pilot, pilot.state)
            launcher = self._launchers.assign(pilot.uid, ResourceConfig(known.record['platform']))
            agent = (known.info or {}).get('agent') or known.record
            if launcher.near and agent['host'] != host_id():
                continue
            if pilot.state not in states.FINAL:
                self._find_agent(pilot, launcher, known.record, job.get('handle', {}))
            elif launcher.adopt(pilot.uid, Path(pilot.pilot_sandbox), job.get('handle', {})):
                self._engine.loop.call_later(GRACE, self._kill_agent, pilot)

    def _find_agent(self, pilot: Pilot, launcher: Launcher, record: dict[str, Any], handle: dict[str, Any]) -> None:
        launched = not self._before(pilot, states.PMGR_ACTIVE_PENDING)
        if launcher.adopt(pilot.uid, Path(pilot.pilot_sandbox), handle):
            if not launched:
                self._advance([pilot], states.PMGR_ACTIVE_PENDING)
        elif not launched:
            self._launching.put([Launch(pilot, ResourceConfig(record['platform']), record['settings'])])
        elif launcher.near:
            self._agent_ended(End(pilot.uid, f'the agent of {pilot.uid} ended while no application was attached',
                                  '', ''))

    # launching

    def _record(self, launch: Launch) -> dict[str, Any]:
        """All that is needed to make the pilot again, in another process."""
        return {'pmgr': self._owner, 'description': launch.pilot.description,
                'sandboxes': asdict(launch.pilot.sandboxes), 'platform': launch.platform.as_dict(),
                'settings': launch.settings, 'host': host_id()}

    def _start(self, launches: list[Launch], accepted: Future[None]) -> None:
        accepted.set_result(None)
        live = [launch for launch in launches if launch.pilot.state not in states.FINAL]
        if live:
            self._launching.put(live)

    def _reach(self, platform: ResourceConfig, done: Callable[[str], object]) -> None:
        """Have the session listen to agents on other hosts, at an address of this one."""
        coordinator = self._engine.coordinator
        if coordinator.reachable:
            done('')
        else:
            self._engine.helpers.run(lambda: own_address(platform),
                                     lambda address: coordinator.listen(f'tcp://{address}:*', done),
                                     lambda error: done(f'the address of this host is not known: {sentence(error)}'))

    def _launched(self, uid: str, handle: Mapping[str, Any]) -> None:
        pilot = self._launching.launched(uid)
        if pilot is None:   # it has ended meanwhile
            return
        pilot.launched = True
        if handle:   # another process can go on with it
            self._note_job(pilot, handle)

    def _note_job(self, pilot: Pilot, handle: Mapping[str, Any]) -> None:
        self._jobs.add(pilot.uid)
        self._engine.connection.note(f'job.{pilot.uid}', {
            'handle': dict(handle), 'sandboxes': asdict(pilot.sandboxes)})

    def _refused(self, uid: str, reason: str) -> None:
        self._launching.refused(uid, reason)

    def _told(self, uid: str, words: str) -> None:
        pilot = self._pilots[uid]
        if pilot.log[-1:] != [words]:   # a platform that cannot be reached says so again and again
            self._tracker.apply([Change(pilot, pilot.state, {'reason': words})])

    def _unschedulable(self, uid: str, words: str) -> None:
        """Callbacks are called once more with the state that the pilot is in, once for each reason."""
        pilot = self._pilots[uid]
        if words not in pilot.log and pilot.state not in states.FINAL:
            _log.warning('%s: %s', uid, words)
            self._tracker.apply([Change(pilot, pilot.state, {'reason': words})])
            self._tracker.notice(pilot)

    # states

    @staticmethod
    def _before(pilot: Pilot, state: str) -> bool:
        return states.PILOT.value(pilot.state) < states.PILOT.value(state)

    def _advance(self, pilots: Sequence[Pilot], state: str, info: dict[str, Any] | None = None) -> None:
        """A step that the client itself takes."""
        changes = self._tracker.apply([Change(pilot, state, info) for pilot in pilots])
        self._engine.connection.update_pilots([Update(pilot.uid, state, info) for pilot, _, _ in changes])
        self._changed(changes)

    def _changed(self, changes: Iterable[Change]) -> None:
        for pilot, state, _ in changes:
            if state == states.PMGR_ACTIVE or state in states.FINAL:   # no component of the client records these
                self._tracer.record('advance', pilot.uid, state)
            self._partitions.follow(pilot, state)
            if state in states.FINAL:
                self._session.pilot_ended(pilot)
            if state == states.FAILED:   # an agent that nobody hears of may still have its resources
                self._engine.loop.call_later(GRACE, self._kill_agent, pilot)

    # ends

    def _fail(self, pilot: Pilot, sentence: str, where: str, end: End | None = None) -> None:
        last = end.stderr or end.stdout if end else ''
        detail = f'see {where}' + (f'; its last lines:\n{last}' if last else '')
        self._advance([pilot], states.FAILED, {
            'exception': sentence, 'exception_detail': detail,
            'stdout': end.stdout if end else '', 'stderr': end.stderr if end else ''})

    def _agent_ended(self, end: End) -> None:
        if end.reason is not None and end.uid in self._postponed:
            self._end_postponed(end.uid, end.words or end.reason)
            return
        # what the agent has said last may still be on its way through the hub
        delay = LAST_WORD if end.reason is None else DRAIN
        self._engine.loop.call_later(delay, self._agent_gone, self._pilots[end.uid], end)

    def _agent_gone(self, pilot: Pilot, end: End) -> None:
        if pilot.state not in states.FINAL:
            self._fail_with(pilot, end)
        if pilot.uid in self._jobs:   # the next application need not look after it
            self._note_job(pilot, {})

    def _fail_with(self, pilot: Pilot, end: End) -> None:
        """A pilot has lost its agent."""
        if end.reason is None:
            launcher = self._launchers.of(pilot.uid)
            if launcher is not None:
                launcher.clear(pilot.uid)
            sentence = f'the agent of {pilot.uid} ended without a word'
            self._fail(pilot, sentence, f'{pilot.pilot_sandbox}/agent_0.log', end)
        else:
            self._fail(pilot, end.reason, end.file or f'{pilot.pilot_sandbox}/agent_0.err', end)

    def _kill_agent(self, pilot: Pilot) -> None:
        launcher = self._launchers.of(pilot.uid)
        if launcher is not None:
            launcher.kill(pilot.uid)

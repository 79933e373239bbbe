"""The flow of a manager's pilots: to the coordinator, to a job, and to a final state.

Runs in the thread of the engine. A pilot is sent to the coordinator before it is launched, so that an application that
attaches finds it. Its launcher watches the job, and its agent reports states; the agent's report takes precedence.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.coordination.contract import KnownPilot, Update
from rp_api.errors import sentence
from rp_api.platforms.definition import ResourceConfig
from rp_api.system.host import host_id
from rp_client.core.pilot import PilotRecord
from rp_client.engine.tracker import Change, Tracker
from rp_client.flow.launching import Launch, PilotLaunching
from rp_client.flow.partitions import Partitions, SessionServices
from rp_client.launcher.base import Context, End, Launcher, Reports
from rp_client.launcher.launchers import Launchers
from rp_client.launcher.network import own_address

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rp_profiling.write.tracer import Tracer

_log = logging.getLogger('radical.pilot.pilot_manager')

GRACE = 10.0
"""Seconds after which a cancelled pilot is killed."""

DRAIN = 0.25
"""Seconds to wait for the last results of an agent that has died, before its tasks are failed."""

BATCH_WORD = 30.0
"""Seconds to wait for the batch system's reason for ending a job, after the agent reported a signal."""

LAST_WORD = 1.0
"""Seconds to wait for the final report of an agent whose process has ended normally."""

_hints: set[str] = set()
"""Hints about platforms that this process has logged."""


class PilotFlow:
    """Launches and ends the pilots of one manager, and processes the reports of agents and launchers."""

    def __init__(self, owner: str, session: SessionServices, pilots: Mapping[str, PilotRecord], partitions: Partitions,
                 tracker: Tracker, tracer: Tracer) -> None:
        self._owner = owner
        self._session = session
        self._engine = session.engine
        self._pilots = pilots
        self._partitions = partitions
        self._tracker = tracker
        self._tracer = tracer
        self._restored: list[tuple[PilotRecord, KnownPilot, Mapping[str, Any]]] = []
        self._postponed: dict[str, Change] = {}
        self._jobs: dict[str, dict[str, Any]] = {}   # what the coordinator has noted of the jobs of pilots
        self.queues: dict[str, dict[str, Any]] = {}
        """What is known about the jobs of pilots in the queues of batch systems, by uid."""
        belongs = {'RP_SESSION_ID': session.uid, 'RP_REGISTRY_ADDRESS': session.reg_addr}
        self._launchers = Launchers(Context(self._engine.loop, Path(session.path), belongs, Reports(
            self._launched, self._refused, self._told, self._unschedulable, self._agent_ended)))
        index = owner.rpartition('.')[2]
        self._launching = PilotLaunching(index, session.make_tracer(f'pmgr_launching.{index}'), self._advance,
                                         self._launchers, session.agent_config, self._engine.helpers.run, self._reach,
                                         self._fail, self._intend)

    def submit(self, launches: list[Launch], accepted: Future[None]) -> None:
        """Accept new pilots; `accepted` gets a result when the coordinator has them."""
        pilots = [launch.pilot for launch in launches]
        self._engine.connection.insert_pilots(
            {launch.pilot.uid: self._record(launch) for launch in launches}, self._owner)
        self._partitions.insert_first(pilots)
        self._tracer.record_bulk('advance', [pilot.uid for pilot in pilots], states.PMGR_LAUNCHING_PENDING)
        self._advance(pilots, states.PMGR_LAUNCHING_PENDING)
        self._launching.expect(launches)
        # an application that dies after this must find its pilots again
        self._engine.connection.when_settled(lambda: self._start(launches, accepted))

    def cancel(self, pilots: Sequence[PilotRecord]) -> None:
        """Cancel pilots that are not final; the agents of active ones are commanded to end."""
        for pilot in pilots:
            if pilot.state in states.FINAL:
                continue
            launcher = self._launchers.of(pilot.uid)
            ends = launcher is not None and self._before(pilot, states.PMGR_ACTIVE) and launcher.cancel(pilot.uid)
            if self._before(pilot, states.PMGR_ACTIVE_PENDING):
                self._launching.cancelled(pilot)
                self._advance([pilot], states.CANCELED, {'reason': 'cancelled before it was launched'})
            elif ends:
                self._advance([pilot], states.CANCELED, {'reason': 'cancelled before its agent was active'})
            else:
                self._engine.connection.command(pilot.uid, {'cmd': 'cancel_pilot', 'reason': 'cancelled'})

    def kill(self, pilots: Sequence[PilotRecord]) -> None:
        """Kill pilots and their agents."""
        for pilot in pilots:
            if pilot.state not in states.FINAL:
                self._launching.cancelled(pilot)
                self._advance([pilot], states.CANCELED, {'reason': 'killed'})
            self._kill_agent(pilot)

    def apply(self, updates: Sequence[Update]) -> None:
        """Apply the updates of agents that concern these pilots."""
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
            _log_hint((change.info or {}).get('hint'))
            if notices and not real:
                self._tracker.notice(pilot)   # callbacks may read the log, although the state is the same
                self._session.places_changed(pilot)   # it has lost nodes, or its job was started again
            self._changed(real)

    def _postpone(self, change: Change) -> bool:
        """Return whether a failure by a signal is kept back until the batch system reports its reason."""
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
        """Stop managing the pilots, without ending them."""
        self._launchers.leave()

    def close(self, timeout: float | None) -> None:
        """Free all resources; launchers get `timeout` seconds, None if they were left. Called outside of the loop."""
        if timeout is not None:
            self._launchers.close(timeout)
        self._launching.close()

    # attaching to a session

    def restore(self, pilot: PilotRecord, known: KnownPilot, job: Mapping[str, Any]) -> None:
        """Restore a pilot from the coordinator's record; `job` is the note of its launch, if there was one."""
        self._restored.append((pilot, known, job))
        if job:
            self._jobs[pilot.uid] = dict(job)
            self.queues[pilot.uid] = dict(job.get('queue') or {})
        self._tracker.restored(pilot, known.told)

    def resume(self) -> None:
        """Watch the jobs and local agents of restored pilots, launch unlaunched pilots, and fail those without agent.

        The agent of a final pilot may still run if it could not be reached before; it is killed. So may its job, if it
        was cancelled while the job was submitted.
        """
        restored, self._restored = self._restored, []
        for pilot, known, job in restored:
            self._partitions.follow(pilot, pilot.state)
            launcher = self._launchers.assign(pilot.uid, ResourceConfig(known.record['platform']))
            agent = (known.info or {}).get('agent') or known.record
            if launcher.near and agent['host'] != host_id():
                continue
            if pilot.state not in states.FINAL:
                self._find_agent(pilot, launcher, known.record, job)
            elif launcher.adopt(pilot.uid, Path(pilot.directories.pilot), job.get('handle', {})):
                self._engine.loop.call_later(GRACE, self._kill_agent, pilot)
            elif job.get('submissions'):
                self._launching.end_earlier(
                    Launch(pilot, ResourceConfig(known.record['platform']), known.record['settings'],
                           job['submissions']))

    def _find_agent(self, pilot: PilotRecord, launcher: Launcher, record: dict[str, Any],
                    job: Mapping[str, Any]) -> None:
        launched = not self._before(pilot, states.PMGR_ACTIVE_PENDING)
        earlier = job.get('submissions', ())
        if launcher.adopt(pilot.uid, Path(pilot.directories.pilot), job.get('handle', {})):
            if not launched:
                self._advance([pilot], states.PMGR_ACTIVE_PENDING)
        elif not launched or earlier:
            self._launching.put([Launch(pilot, ResourceConfig(record['platform']), record['settings'], earlier)])
        elif launcher.near:
            self._agent_ended(End(pilot.uid, f'the agent of {pilot.uid} ended while no application was attached',
                                  '', ''))

    # launching

    def _record(self, launch: Launch) -> dict[str, Any]:
        """Return the record from which another process restores the pilot."""
        return {'pmgr': self._owner, 'description': launch.pilot.description,
                'sandboxes': asdict(launch.pilot.directories), 'platform': launch.platform.as_dict(),
                'settings': launch.settings, 'host': host_id()}

    def _start(self, launches: list[Launch], accepted: Future[None]) -> None:
        accepted.set_result(None)
        live = [launch for launch in launches if launch.pilot.state not in states.FINAL]
        self._launching.dropped(launch.pilot for launch in launches if launch.pilot.state in states.FINAL)
        if live:
            self._launching.put(live)

    def _reach(self, platform: ResourceConfig, done: Callable[[str], object]) -> None:
        """Make the session listen for agents on other hosts, at an address of this host."""
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
        if handle:   # with it, another process can adopt the job
            self._note_job(pilot, handle)

    def _note_job(self, pilot: PilotRecord, handle: Mapping[str, Any], submissions: Sequence[str] = ()) -> None:
        self._jobs[pilot.uid] = {'handle': dict(handle), 'sandboxes': asdict(pilot.directories),
                                 'submissions': list(submissions)}
        self._send_note(pilot)

    def _send_note(self, pilot: PilotRecord) -> None:
        queue = self.queues.get(pilot.uid)
        self._engine.connection.note(f'job.{pilot.uid}', self._jobs[pilot.uid] | ({'queue': queue} if queue else {}))

    def _note_queue(self, pilot: PilotRecord, queue: Mapping[str, Any]) -> None:
        """Note what is known about the job of a pilot, for whoever asks why it waits."""
        before = self.queues.get(pilot.uid, {})
        found = {'since': time.time(), **({} if 'state' in queue else before), **queue}
        if before.keys() | {'since'} != found.keys() or any(before[name] != found[name] for name in queue):
            self.queues[pilot.uid] = found
            if pilot.uid in self._jobs and pilot.state not in states.FINAL:
                self._send_note(pilot)

    def _intend(self, submissions: Mapping[PilotRecord, Sequence[str]], done: Callable[[], object]) -> None:
        """Note that jobs are about to be submitted: an application that attaches looks for them first."""
        for pilot, names in submissions.items():
            self._note_job(pilot, {}, names)
        self._engine.connection.when_settled(done)

    def _refused(self, uid: str, reason: str) -> None:
        self._launching.refused(uid, reason)

    def _told(self, uid: str, words: str, queue: Mapping[str, Any]) -> None:
        pilot = self._pilots[uid]
        self._note_queue(pilot, queue)
        if pilot.log[-1:] != [words]:   # an unreachable platform repeats its message
            self._tracker.apply([Change(pilot, pilot.state, {'reason': words})])

    def _unschedulable(self, uid: str, words: str, queue: Mapping[str, Any]) -> None:
        """Log why a job cannot start, and announce the pilot's state again, once for each reason."""
        pilot = self._pilots[uid]
        self._note_queue(pilot, queue)
        if words not in pilot.log and pilot.state not in states.FINAL:
            _log.warning('%s: %s', uid, words)
            self._tracker.apply([Change(pilot, pilot.state, {'reason': words})])
            self._tracker.notice(pilot)

    # states

    @staticmethod
    def _before(pilot: PilotRecord, state: str) -> bool:
        return states.PILOT.value(pilot.state) < states.PILOT.value(state)

    def _advance(self, pilots: Sequence[PilotRecord], state: str, info: dict[str, Any] | None = None) -> None:
        """Apply a state change that the client makes."""
        changes = self._tracker.apply([Change(pilot, state, info) for pilot in pilots])
        self._engine.connection.update_pilots([Update(pilot.uid, state, info) for pilot, _, _ in changes])
        self._changed(changes)

    def _changed(self, changes: Iterable[Change]) -> None:
        for pilot, state, _ in changes:
            if state == states.PMGR_ACTIVE or state in states.FINAL:   # no component of the client records these
                self._tracer.record('advance', pilot.uid, state)
            self._partitions.follow(pilot, state)
            if state == states.PMGR_ACTIVE:
                self._session.places_changed(pilot)
            if state in states.FINAL:
                self._session.pilot_ended(pilot)
            if state == states.FAILED:   # a lost agent may still hold its resources
                self._engine.loop.call_later(GRACE, self._kill_agent, pilot)

    # failures and ends

    def _fail(self, pilot: PilotRecord, sentence: str, where: str, end: End | None = None) -> None:
        last = end.stderr or end.stdout if end else ''
        detail = f'see {where}' + (f'; its last lines:\n{last}' if last else '')
        self._advance([pilot], states.FAILED, {
            'exception': sentence, 'exception_detail': detail, 'announced': end is not None and end.announced,
            'stdout': end.stdout if end else '', 'stderr': end.stderr if end else ''})

    def _agent_ended(self, end: End) -> None:
        if end.reason is not None and end.uid in self._postponed:
            self._end_postponed(end.uid, end.words or end.reason)
            return
        # the agent's last messages may still be in transit through the coordinator, which answers when it is back
        pilot, delay = self._pilots[end.uid], LAST_WORD if end.reason is None else DRAIN
        self._engine.connection.update_pilots([Update(pilot.uid, pilot.state)])
        self._engine.connection.when_settled(
            lambda: self._engine.loop.call_later(delay, self._agent_gone, pilot, end))

    def _agent_gone(self, pilot: PilotRecord, end: End) -> None:
        if pilot.state not in states.FINAL:
            self._fail_with(pilot, end)
        if pilot.uid in self._jobs:   # an application that attaches later must not look for it
            self._note_job(pilot, {})

    def _fail_with(self, pilot: PilotRecord, end: End) -> None:
        """Fail a pilot whose agent has ended."""
        if end.reason is None:
            launcher = self._launchers.of(pilot.uid)
            if launcher is not None:
                launcher.clear(pilot.uid)
            sentence = f'the agent of {pilot.uid} ended without a final report'
            self._fail(pilot, sentence, f'{pilot.directories.pilot}/agent_0.log', end)
        else:
            self._fail(pilot, end.reason, end.file or f'{pilot.directories.pilot}/agent_0.err', end)

    def _kill_agent(self, pilot: PilotRecord) -> None:
        launcher = self._launchers.of(pilot.uid)
        if launcher is not None:
            launcher.kill(pilot.uid)


def _log_hint(hint: str | None) -> None:
    """Log a hint about a platform, once per process."""
    if hint and hint not in _hints:
        _hints.add(hint)
        _log.warning('%s', hint)

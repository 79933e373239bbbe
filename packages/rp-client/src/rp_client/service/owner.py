"""The owner of a session: its engine, uids, profiles and caches, and the owners of its pilots and tasks."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api import states, units
from rp_api.coordination import session_index, spool_file
from rp_api.coordination.connect import coordinator
from rp_api.coordination.contract import ClientHandler, Update
from rp_api.errors import CoordinationError, sentence
from rp_api.platforms.registry import PlatformRegistry
from rp_client.core.pilot import PilotRecord
from rp_client.engine import interrupts
from rp_client.engine.engine import Engine
from rp_client.flow.calls import PilotCalls
from rp_client.flow.uids import Uids
from rp_client.ids import session_directory
from rp_client.launcher.tunnels import Tunnels
from rp_client.report import Report
from rp_client.service.handover import APPLICATION, OwnerRequests, Reply, clear_socket
from rp_client.settings import checked_cfg, session_settings
from rp_client.traces import Traces
from rp_profiling.write.detail import chosen, switches
from rp_profiling.write.host_clock import Reading
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:
    from rp_api.platforms.definition import ResourceConfig
    from rp_client.cache.claims import Claims
    from rp_client.cache.store import ResultStore

_log = logging.getLogger('radical.pilot.session')

OWNER = 'owner'
"""The key of the note that tells commands where the owner takes requests."""


class _Handler(ClientHandler):
    """The calls of a session's connection to its coordinator."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def on_refused(self, reason: str) -> None:
        raise CoordinationError(reason)

    def on_lost(self, how: str) -> None:
        self._owner.note_away(f'the coordinator of the session is lost: {how}')

    def on_found(self) -> None:
        self._owner.away = None

    def on_room(self) -> None:
        self._owner.away = None
        self._owner.engine.room()

    def on_mark(self) -> None:
        self._owner.engine.acknowledger.soon()

    def on_clock(self, reading: Reading) -> None:
        self._owner.traces.read_clock(reading)

    def on_tasks(self, updates: list[Update]) -> None:
        self._owner.engine.submissions.look()   # no callback waits for the timer then
        if self._owner.calls.sent:
            self._owner.calls.update(updates)
        for manager in list(self._owner.tmgrs.values()):
            manager.update(updates)

    def on_pilots(self, updates: list[Update]) -> None:
        for manager in list(self._owner.pmgrs.values()):
            manager.flow.apply(updates)


class Owner:
    """Owns all processes and threads of a session; see `Session` for the arguments. `report` is its progress.

    Attributes:
        calls: The calls to agents and masters.
        away: What is known about a coordinator that does not answer: `sentence` and `since`; None if it does.
        closed: Whether closing has begun.
        metadata: What the application has added to dumps.
        pmgrs, tmgrs: A `PilotOwner` or `TaskOwner` for each manager, by uid.
    """

    def __init__(self, uid: str | None, cfg: Mapping[str, Any] | None = None, *, dburl: str | None = None,
                 proxy_url: str | None = None, orphan_timeout: units.Time = 60.0, progress: bool = True) -> None:
        config = checked_cfg(cfg)
        self.orphan_timeout = units.limit(orphan_timeout, 'orphan_timeout') or 0.0
        if self.orphan_timeout < 0:
            raise ValueError(f'orphan_timeout is {self.orphan_timeout}, it must be 0 or more seconds')
        settings = session_settings(config, dburl, proxy_url, self.orphan_timeout)
        self.base = base_directory(config.get('base'))
        self.uid, self.path = session_directory(self.base, uid, config.get('path'))
        self.client_sandbox = str(Path(config.get('client_sandbox') or os.getcwd()).absolute())
        self.metadata: dict[str, Any] = {}
        self.pmgrs: dict[str, Any] = {}
        self.tmgrs: dict[str, Any] = {}
        self.platforms = PlatformRegistry()
        self.uids = Uids()
        self.report = Report(self.pilots, wanted=progress)
        self.away: dict[str, Any] | None = None
        self.closed = False
        self._lock = threading.RLock()
        self._config_lock = threading.Lock()
        self._closer: threading.Thread | None = None
        self._ended = threading.Event()
        self.engine = Engine(self.uid, coordinator(self.uid, Path(self.path), settings))
        self.calls = PilotCalls(self.engine, self.uids)
        self._results: ResultStore | None = None
        self._claimed: Claims | None = None
        self._ends = ExitStack()
        self._hub = settings.hub_url
        self.tunnels = Tunnels()
        self.traces = Traces(self.uid, self.path, self.engine)
        self.tracer = self.traces.own

    def connect(self, *, fresh: bool) -> None:
        """Start the engine; raises `CoordinationError` if another application has the session open."""
        self.engine.open(_Handler(self), fresh=fresh)
        self.tracer.record('session_start', uid=self.uid)

    def opened(self) -> None:
        """Note that the session is open, with everything that it had before."""
        session_index.note(self.path)
        self.tracer.record('session_ok', uid=self.uid)
        self.traces.start()

    def answer(self, requests: OwnerRequests | None, act: Callable[[Mapping[str, Any], Reply], object]) -> None:
        """Answer the requests of commands, see `OwnerRequests.start`; default: those to an application."""
        try:
            if requests is None:
                clear_socket(self.path, APPLICATION)
                requests = OwnerRequests(self.path, APPLICATION)
                self._ends.callback(requests.close)
            self.engine.call(requests.start, self.engine.loop, act)
        except OSError as error:   # such as a file system without sockets
            _log.info('commands cannot act on %s: %s', self.uid, sentence(error))
        note = {'directory': self.path, 'hub': self._hub, 'host': os.uname().nodename}
        self.engine.call(self.engine.connection.note, OWNER, note)

    def register(self, kind: str, known: dict[str, Any], manager: Any, uid: str) -> str:
        """Register the owner of a manager, under its former uid if it is restored, and return its uid."""
        if self.closed:
            raise RuntimeError(f'{self.uid} is closed')
        uid = uid or self.uids.new(kind)
        self.uids.add_manager(uid)
        known[uid] = manager
        return uid

    # closing

    def close(self, *, leave: bool) -> str | None:
        """Close the session, or, if `leave` is set, leave its pilots and tasks running.

        Returns what an application should know at the end (see `summary`), or None if another thread closes it, for
        which it waits. `end` must follow.
        """
        summary = None
        with interrupts.postponed():
            if self._begins_to_close():
                try:
                    summary = self.summary(leave=leave)
                finally:
                    self._close(leave=leave)
        return summary

    def end(self) -> bool:
        """End the profiles, after the last event; returns False if another thread is closing the session."""
        if self._closer is not threading.current_thread():
            return False
        self.traces.close()
        self._ended.set()
        return True

    def summary(self, *, leave: bool) -> str:
        """Return what an application should know at the end: how many tasks wait, and what has failed."""
        left = 0 if leave else sum(manager.waiting for manager in self.tmgrs.values() if not manager.closed)
        cancelled = (f'{self.uid}: {left:,} {"task is" if left == 1 else "tasks are"} cancelled, as the session closes '
                     'before they have ended\n' if left else '')
        return cancelled + self.report.failures.text(self.uid, tasks_kept=os.path.isdir(self.path))

    def _begins_to_close(self) -> bool:
        """Return whether this call has to close the session; wait for another thread that is closing it."""
        with self._lock:
            if not self.closed:
                self.closed, self._closer = True, threading.current_thread()
                return True
            closer = self._closer
        # a program that ended now would leave its pilots; a callback must not wait, as the closing thread waits for it
        if closer not in (None, threading.current_thread()) and not self.engine.in_callback:
            self._ended.wait()
        return False

    def _close(self, *, leave: bool) -> None:
        self.tracer.record('session_close', uid=self.uid)
        self.calls.close(f'{self.uid} is closed')
        self.tunnels.close()
        try:
            for manager in (*self.tmgrs.values(), *self.pmgrs.values()):
                if leave:
                    manager.leave()
                else:
                    manager.close()
        finally:
            self.engine.close(leave=leave)
            self._ends.close()
            if self._claimed is not None:
                self._claimed.close(leave=leave)
            if self._results is not None:
                self._results.close()
        self.tracer.record('session_stop', uid=self.uid)

    # what managers use

    def make_tracer(self, name: str) -> Tracer:
        """Return the tracer for a trace file of that name in the session directory."""
        return self.traces.make(name)

    def dump(self, uid: str, name: str | None, data: Any) -> None:
        """Write plain data to `<uid>[.<name>].json` in the session directory."""
        self.engine.process.check()
        with open(Path(self.path, f'{uid}.{name}.json' if name else f'{uid}.json'), 'w', encoding='utf-8') as file:
            json.dump(data, file, indent=1, default=str, skipkeys=True)   # a task may have returned anything

    def result_store(self) -> ResultStore:
        """Return the cached results of the base directory; raise OSError if they cannot be used."""
        from rp_client.cache.store import NAME, ResultStore  # few sessions need it

        with self._config_lock:
            if self._results is None:
                self._results = ResultStore(Path(self.base, NAME))
            return self._results

    def claims(self) -> Claims:
        """Return the session's claims on cached requests; raise OSError if the cache cannot be used."""
        from rp_client.cache.claims import Claims
        from rp_client.cache.successors import SessionSuccessors

        directory = self.result_store().directory
        with self._config_lock:
            if self._claimed is None:
                self._claimed = Claims(directory, self.path, SessionSuccessors(), uid=self.uid,
                                       client_sandbox=self.client_sandbox)
            return self._claimed

    def agent_config(self) -> dict[str, Any]:
        """Return the settings that every agent of the session gets."""
        return {'session': self.uid, 'coordination': self.engine.coordinator.agent_access,
                'registry_address': self.reg_addr,
                'orphan_timeout': self.orphan_timeout, 'profile': str(chosen()), 'profiles': switches()}

    @property
    def attached(self) -> bool:
        """True if the session existed before."""
        return self.engine.coordinator.attached

    @property
    def reg_addr(self) -> str:
        """The address of the coordinator, without secrets."""
        return self.engine.coordinator.endpoint

    def platform(self, resource: str, schema: str | None = None) -> ResourceConfig:
        """Return a copy of the definition of a platform; see `Session.get_resource_config`."""
        with self._config_lock:   # pairs of events do not overlap
            self.tracer.record('config_parser_start', uid=self.uid)
            try:
                return self.platforms.get(resource, schema)
            finally:
                self.tracer.record('config_parser_stop', uid=self.uid)

    def note_away(self, sentence: str) -> None:
        """Note that the coordinator does not answer, until it takes everything again."""
        self.away = self.away or {'sentence': sentence, 'since': time.time()}

    def pilots(self) -> list[PilotRecord]:
        """Return all pilots."""
        return [pilot for manager in list(self.pmgrs.values()) for pilot in list(manager.pilots.values())]

    def find_pilot(self, uid: str) -> PilotRecord:
        """Return the pilot of that uid, of any pilot manager; raise `ValueError` if it is unknown."""
        for manager in list(self.pmgrs.values()):
            if uid in manager.pilots:
                return manager.pilots[uid]   # type: ignore[no-any-return]
        raise ValueError(f'pilot {uid} is not known to {self.uid}')

    def find_master(self, uid: str) -> Any:
        """Return the handle of the RAPTOR master of that uid, of any task manager; None if there is none."""
        found = (manager.find_master(uid) for manager in list(self.tmgrs.values()))
        return next(filter(None, found), None)

    # routing of updates: called in the loop

    def pilot_ended(self, pilot: PilotRecord) -> None:
        """Pass a pilot that became final to the task managers."""
        if pilot.state == states.FAILED and pilot.description.exit_on_error and not self.closed:
            print(f'{self.uid}: {pilot.exception}; {pilot.exception_detail}', file=sys.stderr)
        self.pilot_left(pilot)

    def pilot_left(self, pilot: PilotRecord) -> None:
        """Pass the tasks that a final pilot left to the task managers."""
        path = Path(pilot.agent_sandbox) / 'agent_0.updates'
        if path.exists():   # its agent has ended without a coordinator to report its results to
            self.engine.helpers.run(
                lambda: spool_file.read(path).tasks, lambda results: self._tell_end(pilot, results),
                lambda error: self._tell_end_without(pilot, path, error))
        else:
            self._tell_end(pilot, [])

    def places_changed(self, pilot: PilotRecord) -> None:
        """Pass a change in the nodes or partitions of a pilot to the task managers."""
        for manager in list(self.tmgrs.values()):
            manager.places_changed(pilot)

    def _tell_end_without(self, pilot: PilotRecord, path: Path, error: BaseException) -> None:
        _log.error('the results in %s cannot be used: %s', path, sentence(error))
        self._tell_end(pilot, [])

    def _tell_end(self, pilot: PilotRecord, results: list[Update]) -> None:
        self.calls.pilot_ended(pilot, results)
        for manager in list(self.tmgrs.values()):
            manager.pilot_ended(pilot, results)


def base_directory(given: str | os.PathLike[str] | None = None) -> str:
    """Return the directory of all sessions: the given one, $RADICAL_PILOT_BASE, or the working directory."""
    return str(Path(given or os.environ.get('RADICAL_PILOT_BASE') or os.getcwd()).absolute())


def owner_of(handle: object) -> Owner:
    """Return the owner of a session, given its handle; raise `TypeError` for any other object, such as a uid."""
    owner = getattr(handle, '_owner', None)
    if not isinstance(owner, Owner):
        raise TypeError(f'a manager is made with a Session, not with {handle!r}')
    owner.engine.process.check()
    return owner


def owner_behind(handle: Any) -> Any:
    """Return the owner of what a manager manages, or of a task, given its handle."""
    return handle._owner


def engine_of(handle: Any) -> Engine:
    """Return the engine of the session of a manager or task, given its handle."""
    return owner_behind(handle).engine   # type: ignore[no-any-return]


def no_handle(*_: object) -> None:
    """Make no handle, as there is no application."""

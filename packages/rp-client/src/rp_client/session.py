"""The session: the root object of an application, which owns all processes and threads of the client."""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from rp_api import distributions, states, units
from rp_api.coordination import session_index, spool_file
from rp_api.coordination.connect import coordinator
from rp_api.coordination.contract import ClientHandler, Update
from rp_api.description.html_table import html_table
from rp_api.errors import CoordinationError, sentence
from rp_api.platforms.registry import PlatformRegistry
from rp_api.system import limits
from rp_client.engine import interrupts
from rp_client.engine.engine import Engine
from rp_client.flow.calls import PilotCalls
from rp_client.flow.uids import Uids
from rp_client.ids import session_directory
from rp_client.launcher.tunnels import Tunnels
from rp_client.old_names import OldMethods
from rp_client.report import Report
from rp_client.settings import checked_cfg, checked_close_options, checked_uid, session_settings
from rp_client.stager.fetch import LOGS, PROFILES, fetch
from rp_client.traces import Traces
from rp_profiling.write.detail import chosen, switches
from rp_profiling.write.host_clock import Reading
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:
    from rp_api.platforms.definition import ResourceConfig
    from rp_client.cache.claims import Claims
    from rp_client.cache.store import ResultStore
    from rp_client.core.pilot import PilotRecord
    from rp_client.pilot import Pilot
    from rp_client.pilot_manager import PilotManager
    from rp_client.raptor import RaptorMaster
    from rp_client.task_manager import TaskManager

_log = logging.getLogger('radical.pilot.session')

DESCRIPTORS = 80
"""File descriptors that a session needs: 24 for its hub and a pilot, a dozen for each staging thread."""

THREADS, OF_HUB = 4, 3
"""Threads of the client (event loop, callbacks, two of ZeroMQ), and of the hub, a process of the same user."""


class _Handler(ClientHandler):
    """The calls of a session's connection to its coordinator."""

    def __init__(self, engine: Engine, traces: Traces, calls: PilotCalls, pmgrs: Mapping[str, PilotManager],
                 tmgrs: Mapping[str, TaskManager]) -> None:
        self._engine = engine
        self._traces = traces
        self._calls = calls
        self._pmgrs = pmgrs
        self._tmgrs = tmgrs

    def on_refused(self, reason: str) -> None:
        raise CoordinationError(reason)

    def on_room(self) -> None:
        self._engine.room()

    def on_mark(self) -> None:
        self._engine.acknowledger.soon()

    def on_clock(self, reading: Reading) -> None:
        self._traces.read_clock(reading)

    def on_tasks(self, updates: list[Update]) -> None:
        self._engine.submissions.look()   # no callback waits for the timer then
        if self._calls.sent:
            self._calls.update(updates)
        for manager in list(self._tmgrs.values()):
            manager._update(updates)

    def on_pilots(self, updates: list[Update]) -> None:
        for manager in list(self._pmgrs.values()):
            manager._apply(updates)


class Session(OldMethods):
    """The root object of an application: its managers, pilots and tasks, and the processes and threads they need.

    A session keeps its files in the directory `<base>/<uid>`. Opening a session that was not closed, because its
    application died or called `close(terminate=False)`, attaches to it: managers, pilots and tasks are restored, and
    `attached` is True.

    Client and agents communicate through a coordinator: a hub process that the session starts, a stand-alone `rp hub`
    (`proxy_url`), or a MongoDB (`dburl`).

    A session is a context manager and closes on exit. A fork of the application can read the session and its objects;
    methods that act on them raise `CoordinationError` there. A fork can open its own session.

    Args:
        proxy_url: URL of an `rp hub` (`tcp://...`, `ipc://...`); default: RADICAL_PILOT_PROXY_URL from the environment.
        uid: Uid of the session to create, or to attach to if it was not closed; default: a new uid.
        cfg: Settings, each optional: `base`, the directory of all sessions (default: RADICAL_PILOT_BASE or the working
            directory); `path`, the directory of this session; `client_sandbox`, to which relative client paths refer;
            `heartbeat`, `{'timeout': seconds without a heartbeat after which an agent is lost}`; `hub`,
            `{'listen': 'tcp://<interface>[:<port>]', 'address': url}`: where the hub accepts agents of other hosts,
            and the URL that agents connect to instead if a tunnel or gateway is in between.
        dburl: URL of a MongoDB (`mongodb://...`, `mongodb+srv://...`); default: RADICAL_PILOT_DBURL.
        orphan_timeout: Seconds that idle pilots wait for an application that died without closing the session; 0
            cancels them at once.
        name: The old name of `uid`.
        _role, _reg_addr: The role `Session._DEFAULT`, or the address of its coordinator, joins the session of that uid
            that this process has open, see `JoinedSession`; no other arguments are allowed then.
        **close_options: Defaults for the options of `close`.

    Raises:
        ValueError: An argument or a `cfg` entry has a value that is not allowed.
        TypeError: `cfg`, or an entry of it, is not a mapping.
        CoordinationError: Another application has the session open, or the coordinator does not answer.
        OwnershipError: The session directory does not belong to this user alone.
        LimitError: The process may not open as many files, or start as many threads, as a session needs.
    """

    _PRIMARY, _DEFAULT = 'primary', 'default'
    """Roles of RADICAL-Pilot 1, of which the second joins a session."""

    _opened: ClassVar[weakref.WeakValueDictionary[str, Session]] = weakref.WeakValueDictionary()
    """The sessions that this process has open."""

    def __new__(cls, *_: Any, _role: str = _PRIMARY, _reg_addr: str | None = None, **__: Any) -> Session:
        """Return a new object: with a registry address or the default role, for a session that is open already."""
        if cls is Session and (_role == cls._DEFAULT or _reg_addr):
            cls = JoinedSession
        return super().__new__(cls)

    def __init__(self, proxy_url: str | None = None, uid: str | None = None, cfg: Mapping[str, Any] | None = None, *,
                 dburl: str | None = None, orphan_timeout: units.Time = 60.0, name: str | None = None,
                 _role: str = _PRIMARY, _reg_addr: str | None = None, **close_options: bool) -> None:
        distributions.check_upstream()
        limits.require_descriptors('a session', DESCRIPTORS)
        limits.require_threads('a session', THREADS, OF_HUB)
        self._close_options = checked_close_options(close_options)
        if _role != self._PRIMARY:
            raise ValueError(f'_role is {_role!r}, allowed are: {self._PRIMARY}, {self._DEFAULT}')
        self._role = _role
        uid = checked_uid(uid, name)
        config = checked_cfg(cfg)
        orphan_timeout = units.limit(orphan_timeout, 'orphan_timeout') or 0.0
        if orphan_timeout < 0:
            raise ValueError(f'orphan_timeout is {orphan_timeout}, it must be 0 or more seconds')
        settings = session_settings(config, dburl, proxy_url, orphan_timeout)
        self.base = base_directory(config.get('base'))
        self.uid, self.path = session_directory(self.base, uid, config.get('path'))
        self.client_sandbox = str(Path(config.get('client_sandbox') or os.getcwd()).absolute())
        self._orphan_timeout = orphan_timeout
        self._metadata: dict[str, Any] = {}
        self._pmgrs: dict[str, PilotManager] = {}
        self._tmgrs: dict[str, TaskManager] = {}
        self._platforms = PlatformRegistry()
        self._uids = Uids()
        self._report = Report(self._all_pilots)
        self._lock = threading.RLock()
        self._config_lock = threading.Lock()
        self._closed = False
        self._closer: threading.Thread | None = None
        self._ended = threading.Event()
        self._engine = Engine(self.uid, coordinator(self.uid, Path(self.path), settings))
        self._calls = PilotCalls(self._engine, self._uids)
        self._results: ResultStore | None = None
        self._claimed: Claims | None = None
        self._tunnels = Tunnels()
        self._traces = Traces(self.uid, self.path, self._engine)
        self._tracer = self._traces.own
        self._at_exit = partial(_close_at_exit, weakref.WeakMethod(self.close))
        atexit.register(self._at_exit)
        try:
            self._open(fresh=not uid)
        except BaseException:   # also an interruption, when everything may be there
            self._traces.discard()   # another application may have the session and write its profiles
            self.close(terminate=not self.attached, download=False)
            raise
        self._opened[self.uid] = self

    def _open(self, *, fresh: bool) -> None:
        self._engine.open(_Handler(self._engine, self._traces, self._calls, self._pmgrs, self._tmgrs), fresh=fresh)
        self._tracer.record('session_start', uid=self.uid)
        if self.attached:
            self._take_over()
        session_index.note(self.path)
        self._tracer.record('session_ok', uid=self.uid)
        self._traces.start()

    def _take_over(self) -> None:
        from rp_client.pilot_manager import PilotManager  # most sessions are new
        from rp_client.restore import PAGE_TIMEOUT, Restoration
        from rp_client.task_manager import TaskManager

        restoration = Restoration(self, self._calls, partial(PilotManager, self), partial(TaskManager, self))
        try:
            self._engine.ask(restoration.start, PAGE_TIMEOUT, lambda: restoration.pages)
        except Exception as error:
            reason = error if isinstance(error, TimeoutError) else self._engine.failure
            if reason is not None:
                raise CoordinationError(f'{self.uid} cannot be attached: {reason} ({self.reg_addr})') from reason
            raise

    def __repr__(self) -> str:
        return f'<Session {self.uid} {"closed" if self.closed else "open"}>'

    def _repr_html_(self) -> str:
        """Return a table of the session and its managers, for notebooks."""
        pmgrs = {uid: pmgr._counts() for uid, pmgr in self._pmgrs.items()}
        tmgrs = {uid: tmgr._counts() for uid, tmgr in self._tmgrs.items()}
        return html_table(f'Session {self.uid}', {
            'state': 'closed' if self.closed else 'open', 'directory': self.path, **pmgrs, **tmgrs})

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    @property
    def attached(self) -> bool:
        """True if an earlier application created this session, and this one has attached to it."""
        return self._engine.coordinator.attached

    @property
    def cfg(self) -> dict[str, Any]:
        """The session's settings as plain data."""
        return {'sid': self.uid, 'base': self.base, 'path': self.path, 'client_sandbox': self.client_sandbox,
                'orphan_timeout': self._orphan_timeout}

    @property
    def reg_addr(self) -> str:
        """The address of the coordinator, without secrets."""
        return self._engine.coordinator.endpoint

    proxy_url = reg_addr

    @property
    def rcfgs(self) -> dict[str, Any]:
        """All platform definitions, by site and name: `rcfgs[site][name]`."""
        return self._platforms.configs()

    def close(self, **options: bool) -> None:
        """End pilots, managers, hub and threads. Closing a closed session has no effect.

        The call has no effect in a fork of the application. If another thread is closing the session, the call waits
        for it. In the main thread, Ctrl-C, SIGTERM and SIGHUP take effect after the session is closed.

        Args:
            **options: `download` (default False): also do what `dump`, `fetch_profiles` and `fetch_logfiles` do.
                `terminate` (default True): False leaves pilots, tasks and coordinator running, and `Session(uid=...)`
                attaches to them later. `cleanup`: accepted for compatibility, without effect.

        Raises:
            ValueError: An option is unknown.
        """
        options = self._close_options | checked_close_options(options)
        if not self._engine.process.here:   # a fork of the application: its parent owns the session
            return
        try:
            with interrupts.postponed():
                begins = self._begins_to_close()
                if begins:
                    self._close(leave=not options.get('terminate', True))
            if begins and options.get('download'):
                self.dump()
                self._fetch((*PROFILES, *LOGS), None)
        finally:
            if self._closer is threading.current_thread():
                self._traces.close()
                self._ended.set()
                atexit.unregister(self._at_exit)

    def _begins_to_close(self) -> bool:
        """Return whether this call has to close the session; wait for another thread that is closing it."""
        with self._lock:
            if not self._closed:
                self._closed, self._closer = True, threading.current_thread()
                return True
            closer = self._closer
        # a program that ended now would leave its pilots; a callback must not wait, as the closing thread waits for it
        if closer not in (None, threading.current_thread()) and not self._engine.in_callback:
            self._ended.wait()
        return False

    def _close(self, *, leave: bool) -> None:
        self._tracer.record('session_close', uid=self.uid)
        self._calls.close(f'{self.uid} is closed')
        self._tunnels.close()
        if self._opened.get(self.uid) is self:
            del self._opened[self.uid]
        try:
            if leave:
                self._leave_managers()
            else:
                self._close_managers()
        finally:
            self._engine.close(leave=leave)
            if self._claimed is not None:
                self._claimed.close(leave=leave)
            if self._results is not None:
                self._results.close()
        self._tracer.record('session_stop', uid=self.uid)

    def _result_store(self) -> ResultStore:
        """Return the cached results of the base directory; raise OSError if they cannot be used."""
        from rp_client.cache.store import NAME, ResultStore  # few sessions need it

        with self._config_lock:
            if self._results is None:
                self._results = ResultStore(Path(self.base, NAME))
            return self._results

    def _claims(self) -> Claims:
        """Return the session's claims on cached requests; raise OSError if the cache cannot be used."""
        from rp_client.cache.claims import Claims
        from rp_client.cache.successors import SessionSuccessors

        directory = self._result_store().directory
        with self._config_lock:
            if self._claimed is None:
                self._claimed = Claims(directory, self.path, SessionSuccessors(), uid=self.uid,
                                       client_sandbox=self.client_sandbox)
            return self._claimed

    def as_dict(self) -> dict[str, Any]:
        """Return the session as plain data."""
        return {'uid': self.uid, 'proxy_url': self.proxy_url, 'cfg': self.cfg, 'metadata': self._metadata}

    def dump(self, name: str | None = None) -> None:
        """Write the session and its managers as JSON to `<uid>[.<name>].json` in the session directory.

        Args:
            name: Part of the file names that distinguishes several dumps.

        Raises:
            OSError: A file cannot be written.
        """
        self._write_json(f'{self.uid}.{name}.json' if name else f'{self.uid}.json', self.as_dict())
        for pmgr in self._pmgrs.values():
            pmgr.dump(name)
        for tmgr in self._tmgrs.values():
            tmgr.dump(name)

    def inject_metadata(self, metadata: dict[str, Any]) -> None:
        """Add user data to the result of `as_dict` and `dump`.

        Args:
            metadata: The data, by name; existing names are replaced.

        Raises:
            TypeError: `metadata` is not a dict.
        """
        if not isinstance(metadata, dict):
            raise TypeError(f'metadata must be a dict, it is {type(metadata).__name__}')
        self._metadata.update(metadata)

    def list_pilot_managers(self) -> list[str]:
        """Return the uids of the pilot managers."""
        return list(self._pmgrs)

    def get_pilot_managers(self, pmgr_uids: str | Iterable[str] | None = None) -> Any:
        """Return pilot managers.

        Args:
            pmgr_uids: A uid, several uids, or None for all pilot managers.

        Returns:
            A `PilotManager` for one uid, otherwise a list.

        Raises:
            KeyError: A uid is unknown.
        """
        return _select(self._pmgrs, pmgr_uids)

    def list_task_managers(self) -> list[str]:
        """Return the uids of the task managers."""
        return list(self._tmgrs)

    def get_task_managers(self, tmgr_uids: str | Iterable[str] | None = None) -> Any:
        """Return task managers.

        Args:
            tmgr_uids: A uid, several uids, or None for all task managers.

        Returns:
            A `TaskManager` for one uid, otherwise a list.

        Raises:
            KeyError: A uid is unknown.
        """
        return _select(self._tmgrs, tmgr_uids)

    def list_resources(self) -> list[str]:
        """Return the labels of all platforms that are in service, sorted."""
        return self._platforms.labels()

    def get_resource_config(self, resource: str, schema: str | None = None) -> ResourceConfig:
        """Return a copy of the definition of a platform, which may be changed and added to the session.

        Args:
            resource: Label of the platform, such as `local.localhost`.
            schema: Name of an access schema, whose endpoints the top level of the definition has; default: the
                platform's default schema, or the endpoints that an added definition has at its top level.

        Raises:
            PlatformError: The platform, or its access schema, is unknown.
        """
        with self._config_lock:   # pairs of events do not overlap
            self._tracer.record('config_parser_start', uid=self.uid)
            try:
                return self._platforms.get(resource, schema)
            finally:
                self._tracer.record('config_parser_stop', uid=self.uid)

    def add_resource_config(self, config: ResourceConfig | Mapping[str, Any] | str | os.PathLike[str]) -> None:
        """Add a platform definition, or replace the one with its label, for pilots that are submitted from now on.

            config = session.get_resource_config('local.exact')
            config.label, config.cores_per_node = 'local.small', 2
            session.add_resource_config(config)

        Later changes of `config` have no effect until it is added again. The definition applies to this session only,
        and not after another application has attached to it. A pilot without `access_schema` uses the endpoints at the
        top level of the definition, if there are any.

        Args:
            config: The definition, with a label; or the path of a JSON file `[resource_]<site>.json` with complete
                definitions by name, whose labels are `<site>.<name>`.

        Raises:
            DescriptionError: A field is missing, unknown or not valid; the message names it.
            PlatformError: The file cannot be read.
        """
        self._platforms.add(config)

    def fetch_profiles(self, tgt: str | os.PathLike[str] | None = None) -> list[str]:
        """Copy the traces of all agents and tasks to `<tgt>/<pilot>/`.

        Files of other hosts are copied over ssh, with one connection per host. A host that cannot be reached is
        reported in a warning.

        Args:
            tgt: Target directory; default: the session directory.

        Returns:
            The paths of the copies.
        """
        return self._fetch(PROFILES, tgt)

    def fetch_logfiles(self, tgt: str | os.PathLike[str] | None = None) -> list[str]:
        """Copy the logs and outputs of all agents to `<tgt>/<pilot>/`, as `fetch_profiles` copies traces.

        Args:
            tgt: Target directory; default: the session directory.

        Returns:
            The paths of the copies.
        """
        return self._fetch(LOGS, tgt)

    # methods that the managers of this session call

    def _make_tracer(self, name: str) -> Tracer:
        """Return the tracer for a trace file of that name in the session directory."""
        return self._traces.make(name)

    def _write_json(self, name: str, data: Any) -> None:
        """Write plain data to a file in the session directory."""
        self._engine.process.check()
        with open(Path(self.path) / name, 'w', encoding='utf-8') as file:
            json.dump(data, file, indent=1, default=str, skipkeys=True)   # a task may have returned anything

    def _agent_config(self) -> dict[str, Any]:
        """Return the settings that every agent of the session gets."""
        return {'session': self.uid, 'coordination': self._engine.coordinator.agent_access,
                'registry_address': self.reg_addr,
                'orphan_timeout': self._orphan_timeout, 'profile': str(chosen()), 'profiles': switches()}

    def _register_pmgr(self, manager: PilotManager, uid: str) -> str:
        """Register a pilot manager, under its former uid if it is restored, and return its uid."""
        return self._register('pmgr', self._pmgrs, manager, uid)

    def _register_tmgr(self, manager: TaskManager, uid: str) -> str:
        """Register a task manager, under its former uid if it is restored, and return its uid."""
        return self._register('tmgr', self._tmgrs, manager, uid)

    def _find_pilot(self, uid: str) -> Pilot:
        """Return the pilot of that uid, of any pilot manager; raise `ValueError` if it is unknown."""
        for manager in list(self._pmgrs.values()):
            if uid in manager.list_pilots():
                return manager.get_pilots(uid)   # type: ignore[no-any-return]
        raise ValueError(f'pilot {uid} is not known to {self.uid}')

    def _find_master(self, uid: str) -> RaptorMaster | None:
        """Return the RAPTOR master of that uid, of any task manager; None if there is none."""
        found = (manager._find_master(uid) for manager in list(self._tmgrs.values()))
        return next(filter(None, found), None)

    def _pilot_ended(self, pilot: PilotRecord) -> None:
        """Pass a pilot that became final to the task managers; called in the loop."""
        if pilot.state == states.FAILED and pilot.description.exit_on_error and not self._closed:
            print(f'{self.uid}: {pilot.exception}; {pilot.exception_detail}', file=sys.stderr)
        self._pilot_left(pilot)

    def _pilot_left(self, pilot: PilotRecord) -> None:
        """Pass the tasks that a final pilot left to the task managers; called in the loop."""
        path = Path(pilot.agent_sandbox) / 'agent_0.updates'
        if path.exists():   # its agent has ended without a coordinator to report its results to
            self._engine.helpers.run(
                lambda: spool_file.read(path).tasks, lambda results: self._tell_end(pilot, results),
                lambda error: self._tell_end_without(pilot, path, error))
        else:
            self._tell_end(pilot, [])

    def _places_changed(self, pilot: PilotRecord) -> None:
        """Pass a change in the nodes or partitions of a pilot to the task managers; called in the loop."""
        for manager in list(self._tmgrs.values()):
            manager._places_changed(pilot)

    def _tell_end_without(self, pilot: PilotRecord, path: Path, error: BaseException) -> None:
        _log.error('the results in %s cannot be used: %s', path, sentence(error))
        self._tell_end(pilot, [])

    def _tell_end(self, pilot: PilotRecord, results: list[Update]) -> None:
        self._calls.pilot_ended(pilot, results)
        for manager in list(self._tmgrs.values()):
            manager._pilot_ended(pilot, results)

    # internals

    def _register(self, kind: str, known: dict[str, Any], manager: Any, uid: str) -> str:
        if self._closed:
            raise RuntimeError(f'{self.uid} is closed')
        uid = uid or self._uids.new(kind)
        self._uids.add_manager(uid)
        known[uid] = manager
        return uid

    def _close_managers(self) -> None:
        for tmgr in self._tmgrs.values():
            tmgr.close()
        for pmgr in self._pmgrs.values():
            pmgr.close()

    def _leave_managers(self) -> None:
        for tmgr in self._tmgrs.values():
            tmgr._leave()
        for pmgr in self._pmgrs.values():
            pmgr._leave()

    def _fetch(self, endings: Sequence[str], tgt: str | os.PathLike[str] | None) -> list[str]:
        self._engine.process.check()
        self._tracer.record('session_fetch_start', uid=self.uid)
        fetched = fetch([pilot._record for pilot in self._all_pilots()], endings, Path(tgt or self.path))
        self._tracer.record('session_fetch_stop', uid=self.uid)
        return fetched

    def _all_pilots(self) -> list[Pilot]:
        return [pilot for manager in list(self._pmgrs.values()) for pilot in manager.get_pilots()]


class JoinedSession(Session):
    """The open session of that uid in this process, as `Session(uid=..., _reg_addr=..., _role=...)` returns it.

    EnTK makes one for its task manager. Its managers, pilots and tasks are those of the session, which ends with the
    object that opened it: closing this one has no effect.

    Args:
        uid: Uid of the session.
        _reg_addr: Address of its coordinator (`Session.reg_addr`), which is checked; default: any.
        _role: Accepted for compatibility, without effect; it may be assigned later.

    Raises:
        ValueError: There is no uid, or the coordinator has another address.
        CoordinationError: The process does not have a session of that uid open.
    """

    def __init__(self, *, uid: str | None = None, _reg_addr: str | None = None, _role: str = Session._DEFAULT) -> None:
        self._role = _role
        self._session = _joined(uid)
        if _reg_addr and _reg_addr != self._session.reg_addr:
            raise ValueError(f'_reg_addr is {_reg_addr!r}, but {uid} has {self._session.reg_addr!r}')

    def __getattr__(self, name: str) -> Any:
        if name == '_session':   # the initialisation has failed
            raise AttributeError(name)
        return getattr(self._session, name)

    def close(self, **options: bool) -> None:
        """Leave the session as it is; it may be closed already.

        Args:
            **options: The options of `Session.close`, without effect.

        Raises:
            ValueError: An option is unknown.
        """
        checked_close_options(options)


def base_directory(given: str | os.PathLike[str] | None = None) -> str:
    """Return the directory of all sessions: the given one, $RADICAL_PILOT_BASE, or the working directory."""
    return str(Path(given or os.environ.get('RADICAL_PILOT_BASE') or os.getcwd()).absolute())


def _joined(uid: str | None) -> Session:
    if not uid:
        raise ValueError('a session is joined by its uid, which is not given')
    session = Session._opened.get(uid)
    if session is None:
        raise CoordinationError(f'{uid} is not open in this process, and only sessions that are can be joined: to '
                                f'attach to a session that no application has open, use Session(uid={uid!r})')
    session._engine.process.check()
    return session


def _close_at_exit(close: weakref.WeakMethod[Any]) -> None:
    method = close()
    if method is not None:
        method()


def _select(known: Mapping[str, Any], uids: str | Iterable[str] | None) -> Any:
    if isinstance(uids, str):
        return known[uids]
    return list(known.values()) if uids is None else [known[uid] for uid in uids]

"""The session: the root object of an application, which owns all processes and threads of the client."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from rp_api import distributions, units
from rp_api.description.html_table import html_table
from rp_api.errors import CoordinationError
from rp_api.system import limits
from rp_client.handles.pilot_manager import PilotManager
from rp_client.handles.task_manager import TaskManager
from rp_client.old_names import OldMethods
from rp_client.service.handover import take_over
from rp_client.service.owner import Owner
from rp_client.service.restore import open_session
from rp_client.settings import checked_close_options, checked_uid
from rp_client.stager.fetch import LOGS, PROFILES, fetch

if TYPE_CHECKING:
    from rp_api.platforms.definition import ResourceConfig

DESCRIPTORS = 80
"""File descriptors that a session needs: 24 for its hub and a pilot, a dozen for each staging thread."""

THREADS, OF_HUB = 4, 3
"""Threads of the client (event loop, callbacks, two of ZeroMQ), and of the hub, a process of the same user."""


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
        progress: Show the progress of waits on standard error, and at the end of the session what has failed.
            RADICAL_REPORT=FALSE in the environment turns this off, too.
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

    _opened: ClassVar[weakref.WeakValueDictionary[str, Owner]] = weakref.WeakValueDictionary()
    """The owners of the sessions that this process has open, or had."""

    def __new__(cls, *_: Any, _role: str = _PRIMARY, _reg_addr: str | None = None, **__: Any) -> Session:
        """Return a new object: with a registry address or the default role, for a session that is open already."""
        if cls is Session and (_role == cls._DEFAULT or _reg_addr):
            cls = JoinedSession
        return super().__new__(cls)

    def __init__(self, proxy_url: str | None = None, uid: str | None = None, cfg: Mapping[str, Any] | None = None, *,
                 dburl: str | None = None, orphan_timeout: units.Time = 60.0, progress: bool = True,
                 name: str | None = None, _role: str = _PRIMARY, _reg_addr: str | None = None,
                 **close_options: bool) -> None:
        distributions.check_upstream()
        limits.require_descriptors('a session', DESCRIPTORS)
        limits.require_threads('a session', THREADS, OF_HUB)
        self._close_options = checked_close_options(close_options)
        if _role != self._PRIMARY:
            raise ValueError(f'_role is {_role!r}, allowed are: {self._PRIMARY}, {self._DEFAULT}')
        self._role = _role
        uid = checked_uid(uid, name)
        self._use(Owner(uid, cfg, dburl=dburl, proxy_url=proxy_url, orphan_timeout=orphan_timeout, progress=progress))
        atexit.register(self.close)
        try:
            if uid:
                take_over(self.path)
            open_session(self._owner, lambda uid: PilotManager(self, _uid=uid), lambda scheduler, timeout, uid:
                         TaskManager(self, scheduler=scheduler, no_pilot_timeout=timeout, _uid=uid), fresh=not uid)
        except BaseException:   # also an interruption, when everything may be there
            self.close(terminate=not self.attached, download=False)
            raise
        self._opened[self.uid] = self._owner

    def _use(self, owner: Owner) -> None:
        self._owner = owner
        self.uid, self.path, self.base, self.client_sandbox = owner.uid, owner.path, owner.base, owner.client_sandbox

    def __repr__(self) -> str:
        return f'<Session {self.uid} {"closed" if self.closed else "open"}>'

    def _repr_html_(self) -> str:
        """Return a table of the session and its managers, for notebooks."""
        managers = self._owner.pmgrs | self._owner.tmgrs
        return html_table(f'Session {self.uid}', {
            'state': 'closed' if self.closed else 'open', 'directory': self.path,
            **{uid: manager.counts() for uid, manager in managers.items()}})

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._owner.closed

    @property
    def attached(self) -> bool:
        """True if an earlier application created this session, and this one has attached to it."""
        return self._owner.attached

    @property
    def cfg(self) -> dict[str, Any]:
        """The session's settings as plain data."""
        return {'sid': self.uid, 'base': self.base, 'path': self.path, 'client_sandbox': self.client_sandbox,
                'orphan_timeout': self._owner.orphan_timeout}

    @property
    def reg_addr(self) -> str:
        """The address of the coordinator, without secrets."""
        return self._owner.reg_addr

    proxy_url = reg_addr

    @property
    def rcfgs(self) -> dict[str, Any]:
        """All platform definitions, by site and name: `rcfgs[site][name]`."""
        return self._owner.platforms.configs()

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
        if not self._owner.engine.process.here:   # a fork of the application: its parent owns the session
            return
        leave = not options.get('terminate', True)
        try:
            summary = self._owner.close(leave=leave)
            if summary:
                self._owner.report.say(summary)
            if summary is not None and options.get('download'):
                self.dump()
                self._fetch((*PROFILES, *LOGS), None)
        finally:
            if self._owner.end():
                atexit.unregister(self.close)

    def as_dict(self) -> dict[str, Any]:
        """Return the session as plain data."""
        return {'uid': self.uid, 'proxy_url': self.proxy_url, 'cfg': self.cfg, 'metadata': self._owner.metadata}

    def dump(self, name: str | None = None) -> None:
        """Write the session and its managers as JSON to `<uid>[.<name>].json` in the session directory.

        Args:
            name: Part of the file names that distinguishes several dumps.

        Raises:
            OSError: A file cannot be written.
        """
        self._owner.dump(self.uid, name, self.as_dict())
        for manager in (*self.get_pilot_managers(), *self.get_task_managers()):
            manager.dump(name)

    def inject_metadata(self, metadata: dict[str, Any]) -> None:
        """Add user data to the result of `as_dict` and `dump`.

        Args:
            metadata: The data, by name; existing names are replaced.

        Raises:
            TypeError: `metadata` is not a dict.
        """
        if not isinstance(metadata, dict):
            raise TypeError(f'metadata must be a dict, it is {type(metadata).__name__}')
        self._owner.metadata.update(metadata)

    def list_pilot_managers(self) -> list[str]:
        """Return the uids of the pilot managers."""
        return list(self._owner.pmgrs)

    def get_pilot_managers(self, pmgr_uids: str | Iterable[str] | None = None) -> Any:
        """Return pilot managers.

        Args:
            pmgr_uids: A uid, several uids, or None for all pilot managers.

        Returns:
            A `PilotManager` for one uid, otherwise a list.

        Raises:
            KeyError: A uid is unknown.
        """
        return _select(self._owner.pmgrs, pmgr_uids)

    def list_task_managers(self) -> list[str]:
        """Return the uids of the task managers."""
        return list(self._owner.tmgrs)

    def get_task_managers(self, tmgr_uids: str | Iterable[str] | None = None) -> Any:
        """Return task managers.

        Args:
            tmgr_uids: A uid, several uids, or None for all task managers.

        Returns:
            A `TaskManager` for one uid, otherwise a list.

        Raises:
            KeyError: A uid is unknown.
        """
        return _select(self._owner.tmgrs, tmgr_uids)

    def list_resources(self) -> list[str]:
        """Return the labels of all platforms that are in service, sorted."""
        return self._owner.platforms.labels()

    def get_resource_config(self, resource: str, schema: str | None = None) -> ResourceConfig:
        """Return a copy of the definition of a platform, which may be changed and added to the session.

        Args:
            resource: Label of the platform, such as `local.localhost`.
            schema: Name of an access schema, whose endpoints the top level of the definition has; default: the
                platform's default schema, or the endpoints that an added definition has at its top level.

        Raises:
            PlatformError: The platform, or its access schema, is unknown.
        """
        return self._owner.platform(resource, schema)

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
        self._owner.platforms.add(config)

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

    def _fetch(self, endings: Sequence[str], tgt: str | os.PathLike[str] | None) -> list[str]:
        self._owner.engine.process.check()
        self._owner.tracer.record('session_fetch_start', uid=self.uid)
        fetched = fetch(self._owner.pilots(), endings, Path(tgt or self.path))
        self._owner.tracer.record('session_fetch_stop', uid=self.uid)
        return fetched


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
        self._use(_joined(uid))
        if _reg_addr and _reg_addr != self.reg_addr:
            raise ValueError(f'_reg_addr is {_reg_addr!r}, but {uid} has {self.reg_addr!r}')

    def close(self, **options: bool) -> None:
        """Leave the session as it is; it may be closed already.

        Args:
            **options: The options of `Session.close`, without effect.

        Raises:
            ValueError: An option is unknown.
        """
        checked_close_options(options)


def _joined(uid: str | None) -> Owner:
    if not uid:
        raise ValueError('a session is joined by its uid, which is not given')
    owner = Session._opened.get(uid)
    if owner is None or owner.closed:
        raise CoordinationError(f'{uid} is not open in this process, and only sessions that are can be joined: to '
                                f'attach to a session that no application has open, use Session(uid={uid!r})')
    owner.engine.process.check()
    return owner


def _select(known: Mapping[str, Any], uids: str | Iterable[str] | None) -> Any:
    if isinstance(uids, str):
        return known[uids].manager
    return [known[uid].manager for uid in (list(known) if uids is None else uids)]

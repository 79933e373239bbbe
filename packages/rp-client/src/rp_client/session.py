"""The session: what an application opens first and closes last; it owns everything that runs on its behalf."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rp_api import parts, states
from rp_api.coordination.contract import Update
from rp_api.description.casts import path_part
from rp_api.platforms.load import get_platform, get_resource_configs, list_platforms
from rp_client.engine import Engine
from rp_client.ids import session_uid
from rp_profiling.tracer import Tracer, profiling_enabled

if TYPE_CHECKING:
    from rp_api.platforms.definition import ResourceConfig
    from rp_client.pilot import Pilot
    from rp_client.pilot_manager import PilotManager
    from rp_client.task import Task
    from rp_client.task_manager import TaskManager

_CLOSE_OPTIONS = {'download': False, 'terminate': True, 'cleanup': True}
_CFG_KEYS = ('base', 'path', 'client_sandbox')


class Session:
    """Everything that one application does, from the first pilot to the last result.

    Opens a directory `<base>/<uid>` (base: the working directory, or `cfg['base']`), and starts the hub, the process
    through which the client and the agents of the pilots reach each other. `orphan_timeout`: seconds that pilots whose
    work is done wait for an application that died without closing its session (0: they are cancelled at once). Usable
    as a context manager, which closes it. Close options: see `close`. `proxy_url` is accepted for applications that
    were written for RADICAL-Pilot 1, and has no effect.
    """

    def __init__(self, proxy_url: str | None = None, uid: str | None = None, cfg: Mapping[str, Any] | None = None, *,
                 orphan_timeout: float = 60.0, **close_options: bool) -> None:
        parts.check_upstream()
        if proxy_url is not None:
            warnings.warn('proxy_url has no effect: sessions bring their own hub', stacklevel=2)
        self._close_options = _checked(close_options)
        config = _checked_config(cfg)
        if orphan_timeout < 0:
            raise ValueError(f'orphan_timeout is {orphan_timeout}, it must be 0 or more seconds')
        self.uid = _checked_uid(uid) if uid else session_uid()
        self.base = str(Path(config.get('base') or os.environ.get('RADICAL_PILOT_BASE') or os.getcwd()).absolute())
        self.path = str(Path(config.get('path') or Path(self.base) / self.uid).absolute())
        self.client_sandbox = str(Path(config.get('client_sandbox') or os.getcwd()).absolute())
        self._orphan_timeout = orphan_timeout
        self._metadata: dict[str, Any] = {}
        self._pmgrs: dict[str, PilotManager] = {}
        self._tmgrs: dict[str, TaskManager] = {}
        self._pilots: set[str] = set()
        self._tasks: set[str] = set()
        self._counters: dict[str, int] = {}
        self._lock = threading.RLock()
        self._closed = False
        self._process = os.getpid()
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        self._tracer = self.tracer(self.uid)
        self._tracer.record('session_start', uid=self.uid)
        self.engine = Engine(self.uid, Path(self.path), orphan_timeout)
        self.engine.connection.on_tasks = self._on_tasks
        self.engine.connection.on_pilots = self._on_pilots
        self._at_exit = weakref.WeakMethod(self.close)
        atexit.register(_close_at_exit, self._at_exit)
        self._tracer.record('session_ok', uid=self.uid)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._closed

    @property
    def cfg(self) -> dict[str, Any]:
        """The session's settings as plain data."""
        return {'sid': self.uid, 'base': self.base, 'path': self.path, 'client_sandbox': self.client_sandbox,
                'orphan_timeout': self._orphan_timeout}

    @property
    def reg_addr(self) -> str:
        """The address of the session's hub."""
        return self.engine.hub.address.endpoint

    proxy_url = reg_addr

    @property
    def rcfgs(self) -> dict[str, Any]:
        """All platform definitions, as `rcfgs[site][name]`."""
        return get_resource_configs()

    def close(self, **options: bool) -> None:
        """End pilots, managers, hub and threads; nothing is left running. Harmless when the session is closed already.

        `download` (False): fetch the traces and logs of the pilots into the session directory. `terminate` (True): must
        be True, pilots cannot outlive their session. `cleanup`: accepted, without effect.
        """
        options = self._close_options | _checked(options)
        if os.getpid() != self._process:   # a fork of the application ends: the session is its parent's
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._tracer.record('session_close', uid=self.uid)
        try:
            self._close_managers()
        finally:
            self.engine.close()
            atexit.unregister(self._at_exit)
        self._tracer.record('session_stop', uid=self.uid)
        if options.get('download'):
            self.fetch_profiles()
            self.fetch_logfiles()
        self._tracer.close()

    def as_dict(self) -> dict[str, Any]:
        """The session as plain data."""
        return {'uid': self.uid, 'proxy_url': self.proxy_url, 'cfg': self.cfg, 'metadata': self._metadata}

    def dump(self, name: str | None = None) -> None:
        """Write the session and its managers as JSON files into the session directory."""
        self.write_json(f'{self.uid}.{name}.json' if name else f'{self.uid}.json', self.as_dict())
        for pmgr in self._pmgrs.values():
            pmgr.dump(name)
        for tmgr in self._tmgrs.values():
            tmgr.dump(name)

    def inject_metadata(self, metadata: dict[str, Any]) -> None:
        """Add user data to what `as_dict` and `dump` say about the session."""
        if not isinstance(metadata, dict):
            raise TypeError(f'metadata must be a dict, it is {type(metadata).__name__}')
        self._metadata.update(metadata)

    def list_pilot_managers(self) -> list[str]:
        """The uids of the pilot managers."""
        return list(self._pmgrs)

    def get_pilot_managers(self, pmgr_uids: str | Iterable[str] | None = None) -> Any:
        """The pilot manager with that uid, or a list of them (None: all); `KeyError` for an unknown uid."""
        return _select(self._pmgrs, pmgr_uids)

    def list_task_managers(self) -> list[str]:
        """The uids of the task managers."""
        return list(self._tmgrs)

    def get_task_managers(self, tmgr_uids: str | Iterable[str] | None = None) -> Any:
        """The task manager with that uid, or a list of them (None: all); `KeyError` for an unknown uid."""
        return _select(self._tmgrs, tmgr_uids)

    def list_resources(self) -> list[str]:
        """The labels of all platforms, sorted."""
        return list_platforms()

    def get_resource_config(self, resource: str, schema: str | None = None) -> ResourceConfig:
        """The definition of a platform, with the access schema that applies; `PlatformError` if it is unknown."""
        return get_platform(resource, schema)

    def fetch_profiles(self, tgt: str | None = None) -> list[str]:
        """Copy the traces of all pilots to `<tgt or session directory>/<pilot>/`; gives the local files."""
        return self._fetch('.prof', tgt)

    def fetch_logfiles(self, tgt: str | None = None) -> list[str]:
        """Copy the logs and outputs of all agents to `<tgt or session directory>/<pilot>/`; gives the local files."""
        return self._fetch(('.log', '.out', '.err'), tgt)

    # for the managers of this session

    def tracer(self, name: str) -> Tracer:
        """A trace file of that name in the session directory."""
        return Tracer(Path(self.path) / f'{name}.prof' if profiling_enabled() else None, name)

    @property
    def own_tracer(self) -> Tracer:
        """The trace of the session itself."""
        return self._tracer

    def write_json(self, name: str, data: Any) -> None:
        """Write plain data to a file in the session directory."""
        with open(Path(self.path) / name, 'w', encoding='utf-8') as file:
            json.dump(data, file, indent=1, default=str)

    def agent_config(self) -> dict[str, Any]:
        """What every agent of the session has to know."""
        return {'session': self.uid, 'hub': self.engine.hub.agent_address.as_dict(),
                'orphan_timeout': self._orphan_timeout, 'profile': profiling_enabled()}

    def register_pmgr(self, manager: PilotManager) -> str:
        """Make a pilot manager known; gives its uid."""
        return self._register('pmgr', self._pmgrs, manager)

    def register_tmgr(self, manager: TaskManager) -> str:
        """Make a task manager known; gives its uid."""
        return self._register('tmgr', self._tmgrs, manager)

    def new_uid(self, kind: str) -> str:
        """A uid such as `pilot.0003` that is not in use."""
        with self._lock:
            while True:
                number = self._counters.get(kind, 0)
                self._counters[kind] = number + 1
                uid = f'{kind}.{number:04d}'
                if uid not in self._pilots:
                    return uid

    def task_uids(self, wanted: Sequence[str | None]) -> list[str]:
        """The uids for tasks: those that are asked for, or fresh ones."""
        with self._lock:
            number = self._counters.get('task', 0)
            given = set(wanted)
            uids = []
            for uid in wanted:
                while not uid:
                    fresh = f'task.{number:06d}'
                    number += 1
                    uid = fresh if fresh not in self._tasks and fresh not in given else None
                uids.append(uid)
            self._counters['task'] = number
        return uids

    def claim_tasks(self, tasks: Sequence[Task]) -> None:
        """Reserve the uids of tasks; `ValueError`, and none reserved, if one is in use."""
        self._claim('task', self._tasks, [task.uid for task in tasks])

    def claim_pilots(self, uids: Sequence[str]) -> None:
        """Reserve the uids of pilots; `ValueError`, and none reserved, if one is in use."""
        self._claim('pilot', self._pilots, uids)

    def knows_pilot(self, uid: str) -> bool:
        """Whether there is a pilot of that uid."""
        return uid in self._pilots

    def find_pilot(self, uid: str) -> Pilot:
        """The pilot of that uid, of whichever manager; `ValueError` if there is none."""
        for manager in self._pmgrs.values():
            if uid in manager.list_pilots():
                return manager.get_pilots(uid)   # type: ignore[no-any-return]
        raise ValueError(f'pilot {uid} is not known to {self.uid}')

    def pilot_ended(self, pilot: Pilot) -> None:
        """Tell the task managers that a pilot is final; called in the loop."""
        if pilot.state == states.FAILED and pilot.description['exit_on_error'] and not self._closed:
            print(f'{self.uid}: {pilot.exception}; {pilot.exception_detail}', file=sys.stderr)
        for manager in self._tmgrs.values():
            manager.pilot_ended(pilot)

    # internals

    def _on_tasks(self, updates: list[Update]) -> None:
        for manager in self._tmgrs.values():
            manager.update(updates)

    def _on_pilots(self, updates: list[Update]) -> None:
        for manager in self._pmgrs.values():
            manager.apply(updates)

    def _register(self, kind: str, known: dict[str, Any], manager: Any) -> str:
        if self._closed:
            raise RuntimeError(f'{self.uid} is closed')
        uid = self.new_uid(kind)
        known[uid] = manager
        return uid

    def _claim(self, kind: str, known: set[str], uids: Sequence[str]) -> None:
        with self._lock:
            new: set[str] = set()
            for uid in uids:
                if uid in known or uid in new:
                    raise ValueError(f'{kind} uid {uid!r} is in use already: uids must be unique in a session')
                new.add(uid)
            known.update(new)

    def _close_managers(self) -> None:
        for tmgr in self._tmgrs.values():
            tmgr.close()
        for pmgr in self._pmgrs.values():
            pmgr.close()

    def _fetch(self, endings: str | tuple[str, ...], tgt: str | None) -> list[str]:
        self._tracer.record('session_fetch_start', uid=self.uid)
        fetched = []
        for manager in self._pmgrs.values():
            for pilot in manager.get_pilots():
                target = Path(tgt or self.path) / pilot.uid
                target.mkdir(parents=True, exist_ok=True)
                for source in sorted(Path(pilot.pilot_sandbox).glob('*')):
                    if source.name.endswith(endings):
                        shutil.copy2(source, target)
                        fetched.append(str(target / source.name))
        self._tracer.record('session_fetch_stop', uid=self.uid)
        return fetched


def _close_at_exit(close: weakref.WeakMethod[Any]) -> None:
    method = close()
    if method is not None:
        method()


def _checked(options: Mapping[str, bool]) -> dict[str, bool]:
    for name, value in options.items():
        if name not in _CLOSE_OPTIONS:
            raise ValueError(f'close option {name!r} is unknown, allowed are: {", ".join(_CLOSE_OPTIONS)}')
        if name == 'terminate' and not value:
            raise ValueError('close option terminate=False is not supported: pilots cannot outlive their session')
    return dict(options)


def _checked_uid(uid: str) -> str:
    allowed = path_part(uid) if isinstance(uid, str) else 'a string'
    if allowed:
        raise ValueError(f'the uid of a session must be {allowed}, not {uid!r}')
    return uid


def _checked_config(cfg: Mapping[str, Any] | None) -> Mapping[str, Any]:
    config = cfg or {}
    if not isinstance(config, Mapping):
        raise TypeError(f'cfg must be a dict, it is {cfg!r}')
    unknown = [key for key in config if key not in _CFG_KEYS]
    if unknown:
        raise ValueError(f'cfg key {unknown[0]!r} is unknown, allowed are: {", ".join(_CFG_KEYS)}')
    return config


def _select(known: Mapping[str, Any], uids: str | Iterable[str] | None) -> Any:
    if isinstance(uids, str):
        return known[uids]
    return list(known.values()) if uids is None else [known[uid] for uid in uids]

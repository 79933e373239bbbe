"""Checks of the arguments of sessions and managers, and coordinator settings from them and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_api import units
from rp_api.constants import SCHEDULER_DEFAULT
from rp_api.coordination.contract import LEASE_S
from rp_api.coordination.coordinator import Settings
from rp_api.description.casts import SESSION_UID
from rp_api.description.renamed import warn_renamed

_CLOSE_OPTIONS = ('download', 'terminate', 'cleanup')
_CFG_KEYS = ('base', 'path', 'client_sandbox', 'heartbeat', 'hub')
_DATABASES = ('mongodb://', 'mongodb+srv://')
_HUBS = ('tcp://', 'ipc://')
_HEARTBEAT = ('interval', 'timeout')
_HUB = ('listen', 'address')


def session_settings(cfg: Mapping[str, Any], dburl: str | None, proxy_url: str | None,
                     orphan_timeout: float) -> Settings:
    """Return the checked settings; the environment supplies those that are not given as arguments.

    Raises `ValueError` or `TypeError`. Messages do not show URLs, which may contain a password.
    """
    if dburl and proxy_url:
        raise ValueError('dburl and proxy_url are both given: a session uses only one of them')
    if not dburl and not proxy_url:
        dburl = os.environ.get('RADICAL_PILOT_DBURL')
        proxy_url = None if dburl else os.environ.get('RADICAL_PILOT_PROXY_URL')
    hub = _part(cfg, 'hub', _HUB)
    if hub and dburl:
        raise ValueError("cfg['hub'] cannot be combined with a dburl, as such a session has no hub")
    if hub.get('listen') and proxy_url:
        raise ValueError("cfg['hub']['listen'] cannot be combined with a proxy_url, as such a session starts no hub")
    return Settings(
        dburl=_url('dburl', dburl, _DATABASES), hub_url=_url('proxy_url', proxy_url, _HUBS),
        listen=_listen(hub.get('listen', '')), address=_url("cfg['hub']['address']", hub.get('address'), _HUBS),
        lease=_lease(_part(cfg, 'heartbeat', _HEARTBEAT)), orphan_timeout=orphan_timeout)


def checked_uid(uid: str | None, name: str | None) -> str | None:
    """Return the uid of a session, which may be given by its old name; raise `ValueError` if it is not valid."""
    if name is not None:
        if uid is not None:
            raise ValueError(f'name is the old name of uid: leave it out, uid is {uid!r}')
        warn_renamed('Session(name=)', 'Session(uid=)')
        uid = name
    allowed = None if not uid else SESSION_UID(uid) if isinstance(uid, str) else 'a string'
    if allowed:
        raise ValueError(f'the uid of a session must be {allowed}, not {uid!r}')
    return uid or None


def checked_cfg(cfg: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the `cfg` of a session; raise `TypeError` or `ValueError` if it is no dict, or has an unknown key."""
    config = cfg or {}
    if not isinstance(config, Mapping):
        raise TypeError(f'cfg is {cfg!r}, it must be a dict')
    unknown = [key for key in config if key not in _CFG_KEYS]
    if unknown:
        raise ValueError(f'cfg key {unknown[0]!r} is unknown, allowed are: {", ".join(_CFG_KEYS)}')
    return config


def checked_close_options(options: Mapping[str, bool]) -> dict[str, bool]:
    """Return the options for closing a session; raise `ValueError` for an unknown one."""
    for name in options:
        if name not in _CLOSE_OPTIONS:
            raise ValueError(f'argument {name!r} is unknown; the options for closing are: {", ".join(_CLOSE_OPTIONS)}')
    return dict(options)


def checked_scheduler(cfg: str | Mapping[str, Any] | None, scheduler: str | None) -> str:
    """Return the name of the task scheduler; raise `TypeError` if `cfg` or the name has another type."""
    if cfg is not None and not isinstance(cfg, str | Mapping):
        raise TypeError(f'cfg of a task manager is {cfg!r}, it must be a dict or a name')
    name = scheduler or (cfg.get('scheduler') if isinstance(cfg, Mapping) else None) or SCHEDULER_DEFAULT
    if not isinstance(name, str):
        raise TypeError(f'the scheduler of a task manager is {name!r}, it must be the name of one')
    return name


def checked_timeout(timeout: units.Time | None) -> float | None:
    """Return the seconds without a pilot; raise `ValueError` if they are negative."""
    seconds = units.limit(timeout, 'no_pilot_timeout')
    if seconds is not None and seconds < 0:
        raise ValueError(f'no_pilot_timeout is {timeout!r}, it must not be negative')
    return seconds


def _part(cfg: Mapping[str, Any], name: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
    part = cfg.get(name) or {}
    if not isinstance(part, Mapping):
        raise TypeError(f'cfg[{name!r}] must be a dict, it is {part!r}')
    for key in part:
        if key not in keys:
            raise ValueError(f'cfg[{name!r}] has the key {key!r}, allowed are: {", ".join(keys)}')
    return part


def _url(name: str, url: Any, schemes: tuple[str, ...]) -> str:
    if not url:
        return ''
    if not isinstance(url, str) or not url.startswith(schemes):
        scheme, found, _ = str(url).partition('://')
        raise ValueError(f'{name} must start with {" or ".join(schemes)}, '
                         + (f'not with {scheme}://' if found else 'it has no such beginning'))
    return url


def _listen(address: Any) -> str:
    found = _url("cfg['hub']['listen']", address, ('tcp://',))
    host, _, port = found.removeprefix('tcp://').rpartition(':') if found.count(':') > 1 else (found[6:], '', '')
    if found and (host in ('', '*', '0.0.0.0') or not (port or '0').isdigit() or int(port or 0) > 65535):
        raise ValueError(f"cfg['hub']['listen'] is {found!r}, it must be tcp://<interface>[:<port>], "
                         'for one interface or address of this machine')
    return found if port or not found else f'{found}:*'


def _lease(heartbeat: Mapping[str, Any]) -> float:
    for key, value in heartbeat.items():
        if not (units.limit(value, f"cfg['heartbeat'][{key!r}]") or 0.0) > 0:
            raise ValueError(f"cfg['heartbeat'][{key!r}] is {value!r}, it must be above 0")
    return units.seconds(heartbeat.get('timeout', LEASE_S))

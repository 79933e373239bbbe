"""What an application says about the coordination of its session: checked, with a clear answer to each mistake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_api.coordination.contract import LEASE
from rp_api.coordination.coordinator import Settings

_DATABASES = ('mongodb://', 'mongodb+srv://')
_HUBS = ('tcp://', 'ipc://')
_HEARTBEAT = ('interval', 'timeout')
_HUB = ('listen', 'address')


def session_settings(cfg: Mapping[str, Any], dburl: str | None, proxy_url: str | None,
                     orphan_timeout: float) -> Settings:
    """The settings that follow from a session's arguments and, where those say nothing, from the environment.

    `ValueError` or `TypeError` for what cannot be right; URLs are not shown in it, as they may hold a password.
    """
    if dburl and proxy_url:
        raise ValueError('dburl and proxy_url are given: a session is coordinated by one of them')
    if not dburl and not proxy_url:
        dburl = os.environ.get('RADICAL_PILOT_DBURL')
        proxy_url = None if dburl else os.environ.get('RADICAL_PILOT_PROXY_URL')
    hub = _part(cfg, 'hub', _HUB)
    if hub and dburl:
        raise ValueError("cfg['hub'] is for sessions with a hub, not for those with a dburl")
    if hub.get('listen') and proxy_url:
        raise ValueError("cfg['hub']['listen'] is for sessions with a hub of their own, not for those with a proxy_url")
    return Settings(
        dburl=_url('dburl', dburl, _DATABASES), hub_url=_url('proxy_url', proxy_url, _HUBS),
        listen=_listen(hub.get('listen', '')), address=_url("cfg['hub']['address']", hub.get('address'), _HUBS),
        lease=_lease(_part(cfg, 'heartbeat', _HEARTBEAT)), orphan_timeout=orphan_timeout)


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
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float('inf'):
            raise ValueError(f"cfg['heartbeat'][{key!r}] is {value!r}, it must be a positive number of seconds")
    return float(heartbeat.get('timeout', LEASE))

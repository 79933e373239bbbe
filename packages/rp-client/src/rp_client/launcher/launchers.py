"""The registry of launchers: finds them by the URL of a platform's jobs, and makes them on first use.

An entry point of the group `radical_pilot.launchers` is a sub-class of `rp_client.launcher.base.Launcher`. This
distribution has two: `local`, for agents on this host, and `saga`, for batch systems and other hosts, named after the
library that once submitted its jobs.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from rp_api.description.pilot import PilotDescription
from rp_api.errors import DescriptionError, PlatformError
from rp_api.extensions import installed, load
from rp_api.platforms.agent_config import check
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import load_config, merge
from rp_api.platforms.systems import SCHEMES
from rp_client.launcher.base import Context, Launcher
from rp_client.launcher.local import LocalLauncher

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = 'radical_pilot.launchers'

_OURS = ('local', 'saga')


def launcher_class(platform: ResourceConfig) -> type[Launcher]:
    """Return the launcher class for a platform; raise `PlatformError` if there is none, or it cannot be loaded.

    Built-in launchers are tried first, as the search for entry points is slow.
    """
    url = platform.job_manager_endpoint
    if LocalLauncher.takes(url):
        return LocalLauncher
    batch: type[Launcher] = load('rp_client.launcher.batch.launcher:BatchLauncher')
    if batch.takes(url):
        return batch
    for found in map(_load, _others()):
        if found.takes(url):
            return found
    raise PlatformError(f'job_manager_endpoint of {platform.label} is {url!r}, and no launcher is for that: local '
                        'takes fork://localhost/; saga takes fork, ssh and gsissh with a host, and '
                        f'{", ".join(sorted(SCHEMES))}, each also with +ssh or +gsissh'
                        + ''.join(f'; {point.name} takes other ones' for point in _others()))


@cache
def _others() -> tuple[EntryPoint, ...]:
    return tuple(point for name, point in sorted(installed(GROUP).items()) if name not in _OURS)


def _load(point: EntryPoint) -> type[Launcher]:
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise PlatformError(f'launcher {point.name} ({point.value}) cannot be loaded: {error}') from error
    if not (isinstance(found, type) and issubclass(found, Launcher)):
        raise PlatformError(f'launcher {point.name} ({point.value}) is {found!r}, not a Launcher')
    return found


class Launchers:
    """The launchers of a pilot manager, one object of each class."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._made: dict[type[Launcher], Launcher] = {}
        self._of: dict[str, Launcher] = {}

    def assign(self, uid: str, platform: ResourceConfig) -> Launcher:
        """Assign a pilot to the launcher for its platform, and return the launcher."""
        kind = launcher_class(platform)
        if kind not in self._made:
            self._made[kind] = kind(self._context)
        self._of[uid] = self._made[kind]
        return self._made[kind]

    def of(self, uid: str) -> Launcher | None:
        """Return the launcher of a pilot; None before it is assigned."""
        return self._of.get(uid)

    def close(self, timeout: float) -> None:
        """Close all launchers; see `Launcher.close`."""
        for launcher in self._made.values():
            launcher.close(timeout)

    def leave(self) -> None:
        """Stop watching agents; see `Launcher.leave`."""
        for launcher in self._made.values():
            launcher.leave()


def agent_settings(platform: ResourceConfig, description: PilotDescription) -> dict[str, Any]:
    """Return the platform's `agent_config`, possibly from a file `agent_<name>.json`, merged with `_config`.

    The agent checks the result when it starts; numbers of clones and workers are checked here.
    """
    named = platform.agent_config
    settings = merge(load_config('agent', named) if isinstance(named, str) else named, description['_config'])
    try:
        json.dumps(settings)
    except (TypeError, ValueError) as error:
        raise DescriptionError(f'PilotDescription._config is {description["_config"]!r}, it must be valid JSON: '
                               f'{error}') from None
    check(settings)
    return settings

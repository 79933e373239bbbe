"""Registry of launch methods: detect those of a platform, and choose one for a task.

A platform lists methods in `launch_methods.order`. The methods of this project are in the table
`rp_api.platforms.systems`. Entry points of the group `radical_pilot.launch_methods` add others, each a subclass of
`rp_agent.launch_method.base.LaunchMethod`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from rp_agent.launch_method.base import Job, LaunchMethod, Setting
from rp_agent.launch_method.system import LaunchSystem
from rp_agent.lookup import LaunchRefused
from rp_api import extensions
from rp_api.errors import PlatformError
from rp_api.platforms.systems import LAUNCH_METHODS

GROUP = 'radical_pilot.launch_methods'
"""Entry-point group of launch methods."""


@dataclass(frozen=True, slots=True)
class Methods:
    """The launch methods of a pilot, in the order in which they are tried."""

    found: tuple[LaunchMethod, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Reasons of the methods that cannot be used, by name."""


def find(name: str) -> type[LaunchMethod]:
    """Return the launch method of that name; raise PlatformError, with all names, if it does not exist."""
    own = {name: method.where for name, method in LAUNCH_METHODS.items()}
    return cast('type[LaunchMethod]', extensions.find(GROUP, name, own, f'launch method {name!r} of the platform'))


def detect(platform: Mapping[str, Any], setting: Setting, system: LaunchSystem) -> Methods:
    """Detect the launch methods that the platform lists. This runs programs, and can take seconds."""
    named = platform['launch_methods']
    found = []
    missing = {}
    for name in named['order']:
        try:
            found.append(detect_one(name, named.get(name) or {}, setting, system))
        except PlatformError as error:
            missing[name] = str(error)
    return Methods(tuple(found), missing)


def detect_one(name: str, configuration: Mapping[str, Any], setting: Setting, system: LaunchSystem) -> LaunchMethod:
    """Detect one launch method in the environment that its `pre_exec` sets; raise PlatformError if it is unusable."""
    commands = [*configuration.get('pre_exec_cached', ()), *configuration.get('pre_exec', ())]
    prepared = system.after(commands)
    method = find(name).detect(prepared, setting, configuration.get('options') or {})
    for each in (method, *method.others):
        each.environment |= {key: value for key, value in prepared.environ.items() if system.environ.get(key) != value}
    return method


def choose(job: Job, methods: Methods, spawner: str = '') -> LaunchMethod:
    """Return the first method that can launch the job; raise LaunchRefused, with the reason of each, if none can.

    Launchers that are not the first of their method in PATH come last.
    """
    reasons = []
    for method in (*methods.found, *(other for first in methods.found for other in first.others)):
        reason = (f'it is for platforms with agent_spawner {method.SPAWNER}' if method.SPAWNER not in ('', spawner)
                  else method.refuses(job) or _other_mpi(job, method))
        if not reason:
            return method
        reasons.append(f'{method.NAME}: {reason}')
    reasons += [f'{name}: {reason}' for name, reason in methods.missing.items()]
    raise LaunchRefused(f'no launch method of the platform can start {_described(job)}: {"; ".join(reasons)}')


def _other_mpi(job: Job, method: LaunchMethod) -> str:
    """Return why the program's MPI library does not match the launcher; empty if it may match."""
    linked = job.linked
    if not job.mpi or len(job.ranks) == 1 or linked is None or method.mpi in ('', linked.kind):
        return ''
    return (f'{method.program} is a launcher of {method.mpi}, and {linked.program} uses {linked.kind} '
            f'({linked.library}): each rank would run as a separate program. Build the program with {method.mpi}, or '
            f'have a launcher of {linked.kind} found (PATH, or pre_exec of launch_methods.{method.NAME})')


def _described(job: Job) -> str:
    nodes = len({rank.index for rank in job.ranks})
    return f'{job.uid} ({len(job.ranks)} rank(s) on {nodes} node(s){", MPI" if job.mpi else ""})'

"""The allocation of a pilot, from the resource manager that its platform names or, as plain data, from a configuration.

The table `rp_api.platforms.systems` lists the resource managers of this project. Other distributions add theirs with an
entry point of the group `radical_pilot.resource_managers`, or with a batch system (`radical_pilot.batch_systems`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol, cast

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.batch import BatchSystem
from rp_agent.resource_manager.system import System
from rp_agent.resource_manager.systems.flux import URI
from rp_api import extensions
from rp_api.errors import PlatformError
from rp_api.platforms import systems
from rp_api.platforms.systems import BATCH_SYSTEMS, JOB_VARIABLES, RESOURCE_MANAGERS, other_systems

GROUP = 'radical_pilot.resource_managers'
FORK = 'FORK'
"""Default resource manager of a platform."""


class ResourceManager(Protocol):
    """Finds the nodes and devices of a pilot. The class is instantiated without arguments.

    `rp_agent.resource_manager.batch.BatchSystem` is the base class for batch systems; implement this protocol for
    anything else.
    """

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """Return the allocation of the pilot.

        Args:
            request: The nodes, cores and GPUs that the pilot description requests.
            platform: The platform definition.
            system: The agent's host.

        Returns:
            The nodes of the pilot with their usable devices.

        Raises:
            PlatformError: The resources cannot be determined.
            ResourceError: There are fewer resources than the request.
        """


def allocate(request: Request, platform: Mapping[str, Any], system: System | None = None) -> Allocation:
    """Return the allocation of a pilot, from the resource manager of its platform.

    Args:
        request: The nodes, cores and GPUs that the pilot description requests.
        platform: The platform definition.
        system: The agent's host; None for this one.

    Returns:
        The nodes of the pilot with their usable devices.

    Raises:
        PlatformError: The platform names an unknown resource manager, or the resources cannot be determined.
        ResourceError: There are fewer resources than the request.
    """
    return find(platform.get('resource_manager') or FORK).allocate(request, platform, system or System())


def find(name: str) -> ResourceManager:
    """Return a new resource manager; raise `PlatformError`, which lists all names, if the name is unknown."""
    own = RESOURCE_MANAGERS
    if name not in own:
        own = own | {system.resource_manager: system.agent for system in other_systems() if system.agent}
    return cast('ResourceManager',
                extensions.find(GROUP, name, own, f'resource_manager {name!r} of the platform')())


def allocation_of(config: Mapping[str, Any]) -> Allocation:
    """Return the allocation of the pilot of an agent with this configuration.

    Raises `PlatformError` if the resources cannot be determined, `ResourceError` if there are fewer than requested.
    """
    if 'allocation' in config:
        return from_plain(config['allocation'])
    request = Request(config['nodes'], config['cores'], config['gpus'], config.get('backup_nodes', 0))
    return allocate(request, config['platform'])


def platform_of(platform: Mapping[str, Any], allocation: Allocation) -> Mapping[str, Any]:
    """Return the platform of a pilot: with the executor FLUX for `local.allocation` on several nodes of a Flux job."""
    if platform.get('resource_manager') != 'ALLOCATION' or URI not in allocation.facts or not allocation.elsewhere:
        return platform
    return {**platform, 'agent_spawner': 'FLUX', 'agent_scheduler': 'FLUX',
            'launch_methods': {'order': ['FLUX'], 'FLUX': {}}}


def as_plain(allocation: Allocation) -> dict[str, Any]:
    """Return an allocation as plain data, for the configuration of an agent."""
    return asdict(allocation) | {'smaller': list(allocation.smaller.items())}


def from_plain(data: Mapping[str, Any]) -> Allocation:
    """Return the allocation for the result of `as_plain`, also after a round trip through JSON."""
    return Allocation(**{name: _tuples(value) for name, value in data.items()} | {
        'smaller': dict(_tuples(data['smaller']))})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


class Enclosing:
    """Resource manager ALLOCATION: the job in which the application runs (`salloc`, a batch script, `qsub -I`)."""

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """Return the nodes of the enclosing job, all of them if the request has no size.

        Raises `PlatformError` outside of a job, `ResourceError` if the job is smaller than the request.
        """
        manager = enclosing(system)
        if manager is None:
            raise PlatformError('the application does not run inside of a job: none of the variables '
                                f'{", ".join(JOB_VARIABLES)} is set; start it with salloc, qsub -I or in '
                                'a batch script, or use the resource local.exact')
        if not (request.nodes or request.cores or request.gpus):
            request = replace(request, nodes=len(manager.nodes(system)))
        return manager.allocate(request, platform, system)


def enclosing(system: System) -> BatchSystem | None:
    """Return the resource manager of the job that this process runs in; None outside of a job."""
    name = _name(system.environ)
    found = find(name) if name else None
    assert found is None or isinstance(found, BatchSystem)
    return found


def _name(environ: Mapping[str, str]) -> str | None:
    """Return the name of the job's resource manager. Other distributions come last, as loading them is slow."""
    found = next((system for system in BATCH_SYSTEMS if _is_in_job(system, environ)), None)
    found = found or next((system for system in other_systems() if _is_in_job(system, environ)), None)
    return found.resource_manager if found else None


def _is_in_job(system: systems.BatchSystem, environ: Mapping[str, str]) -> bool:
    return (bool(system.job_variable and environ.get(system.job_variable))
            and (not system.marks or any(mark in environ for mark in system.marks))
            and not any(mark in environ for mark in system.other_marks))


def hint(system: System, used: int) -> str:
    """Return a sentence for a pilot that uses only some nodes of the application's job; empty for any other."""
    try:
        manager = enclosing(system)
        nodes = manager.nodes(system) if manager else []
    except PlatformError:   # a local pilot does not depend on the job
        return ''
    if manager is None or len(nodes) <= used:
        return ''
    return (f'the application runs in job {system.environ[manager.JOB]} of {manager.NAME} with {len(nodes)} nodes, of '
            f'which this pilot uses {used}: the resource local.allocation uses all of them')

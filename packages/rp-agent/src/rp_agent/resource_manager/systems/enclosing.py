"""Resource manager ALLOCATION: the job in which the application runs, of any batch system.

For applications that start inside an allocation (`salloc`, a batch script, `qsub -I`, `bsub -Is`). The resource
manager of that batch system finds the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.batch import BatchSystem
from rp_agent.resource_manager.system import System
from rp_agent.resource_manager.systems.find import find
from rp_api.errors import PlatformError
from rp_api.platforms import systems


class Enclosing:
    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """Return the nodes of the enclosing job, all of them if the request has no size.

        Raises `PlatformError` outside of a job, `ResourceError` if the job is smaller than the request.
        """
        manager = enclosing(system)
        if manager is None:
            raise PlatformError('the application does not run inside of a job: none of the variables '
                                f'{", ".join(systems.JOB_VARIABLES)} is set; start it with salloc, qsub -I or in '
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
    found = next((system for system in systems.BATCH_SYSTEMS if _is_in_job(system, environ)), None)
    found = found or next((system for system in systems.other_systems() if _is_in_job(system, environ)), None)
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

"""The resource manager FLUX: the resources of the instance that the agent runs in.

`flux batch` and `flux alloc` give each job an instance of its own, whose resources are all that the job has. A plain
job (`flux run`, `flux submit`) finds the address of the instance that has started it, whose resources are not its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, indices, number
from rp_agent.resource_manager.hostlist import expand
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError

URI, SIZE = 'flux_uri', 'flux_size'
"""Facts: the address of the instance, and its number of nodes."""


class Flux(BatchSystem):
    """FLUX."""

    NAME: ClassVar[str] = 'FLUX'
    JOB: ClassVar[str] = 'FLUX_URI'
    COUNTS_THREADS: ClassVar[bool] = False

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        found = super().allocate(request, platform, system)
        size = system.run('flux', 'getattr', 'size').strip()
        return replace(found, facts={URI: variable(system, self.JOB), SIZE: size})

    def nodes(self, system: System) -> list[Node]:
        job = system.environ.get('FLUX_JOB_ID')
        if job:
            raise PlatformError(f'job {job} of FLUX has no instance of its own, and so no resources that can be '
                                'divided among tasks: start it with flux batch or flux alloc')
        return of_resources(system.run('flux', 'resource', 'R', '--states=up'))


def of_resources(text: str) -> list[Node]:
    """The nodes of a resource set as RFC 20 of Flux describes it; those without a GPU have none."""
    try:
        execution = json.loads(text)['execution']
        names = [name for part in execution['nodelist'] for name in expand(part)]
        children = {number(rank, 'rank'): each['children'] for each in execution['R_lite']
                    for rank in indices(each['rank'])}
        return [Node(name, len(indices(each['core'])), len(indices(each.get('gpu', ''))))
                for name, (_, each) in zip(names, sorted(children.items()), strict=True)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlatformError(f'`flux resource R` is not understood: {text[:200]!r} ({error!r})') from None

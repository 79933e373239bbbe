"""Resource manager FLUX: the resources of the Flux instance that the agent runs in.

`flux batch` and `flux alloc` start an instance per job, which owns all resources of the job. A plain job (`flux run`,
`flux submit`) sees the address of the parent instance, whose resources belong to other jobs as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, expand, indices, number
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError

URI, SIZE = 'flux_uri', 'flux_size'
"""Keys of `Allocation.facts`: address and number of nodes of the instance."""


class FluxNodes(BatchSystem):
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
            raise PlatformError(f'job {job} of FLUX has no Flux instance, and so no resources that can be divided '
                                'among tasks: start it with flux batch or flux alloc')
        return of_resources(system.run('flux', 'resource', 'R', '--states=up'))


def of_resources(text: str) -> list[Node]:
    """Return the nodes of a resource set in the format of Flux RFC 20."""
    try:
        execution = json.loads(text)['execution']
        names = [name for part in execution['nodelist'] for name in expand(part)]
        children = {number(rank, 'rank'): each['children'] for each in execution['R_lite']
                    for rank in indices(each['rank'])}
        return [Node(name, len(indices(each['core'])), len(indices(each.get('gpu', ''))))
                for name, (_, each) in zip(names, sorted(children.items()), strict=True)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlatformError(f'the output of `flux resource R` cannot be parsed: {text[:200]!r} ({error!r})') from None

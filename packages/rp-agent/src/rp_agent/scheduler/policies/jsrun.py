"""The policy CONTINUOUS_JSRUN: ranks that share GPUs are placed as resource sets, the unit of placement of jsrun.

A task gets a whole number of GPUs, `ranks * gpus_per_rank` rounded up. The number of resource sets is the greatest
common divisor of ranks and GPUs: 6 ranks with half a GPU each are 3 sets of 2 ranks and 1 GPU. A slot is a resource
set. A rank with whole GPUs or without GPUs is a resource set of its own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from rp_agent.scheduler.policies.continuous import Continuous
from rp_agent.task import RANKS_PER_SLOT, AgentTask
from rp_api.errors import ResourceError

_MILLIONTH = 1e-6   # GPUs; rounding error allowed in the sum of decimal shares


class JsrunPolicy(Continuous):
    """Places resource sets as CONTINUOUS places ranks."""

    def request(self, item: AgentTask) -> Hashable:
        """Return the request for the resource sets of a task."""
        wanted = item.description
        ranks, gpus = wanted['ranks'], wanted['gpus_per_rank']
        if gpus == int(gpus):
            return super().request(item)
        total = math.ceil(ranks * gpus - _MILLIONTH)
        sets = math.gcd(ranks, total)
        each = ranks // sets
        item.extra[RANKS_PER_SLOT] = each
        limit = wanted['ranks_per_node']
        if limit is not None and limit < each:
            raise ResourceError(f'ranks_per_node is {limit}, but {each} ranks share the {total // sets} GPU(s) of a '
                                'resource set, which is on one node')
        sized = {'ranks': sets, 'gpus_per_rank': float(total // sets),
                 'cores_per_rank': each * wanted['cores_per_rank'],
                 'mem_per_rank': each * wanted['mem_per_rank'], 'lfs_per_rank': each * wanted['lfs_per_rank'],
                 'ranks_per_node': None if limit is None else limit // each}
        return self._request(type(wanted)({**wanted, **sized}))

"""The resource manager LSF: the host file has one line for each slot, which is a core, however many threads that has.

On some machines the agent is started on a launch node, which is listed as well, with one slot, or as a batch or login
node. Nothing can run there.
"""

from __future__ import annotations

import re
from typing import ClassVar

from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, count_lines, number
from rp_agent.resource_manager.system import System, short
from rp_api.errors import PlatformError


class Lsf(BatchSystem):
    """LSF."""

    NAME: ClassVar[str] = 'LSF'
    JOB: ClassVar[str] = 'LSB_JOBID'
    COUNTS_THREADS: ClassVar[bool] = False

    def nodes(self, system: System) -> list[Node]:
        path = system.environ.get('LSB_DJOB_HOSTFILE')
        if path:
            return without_launch_nodes(count_lines(system.read(path)))
        counts = system.environ.get('LSB_MCPU_HOSTS')
        if counts:
            return without_launch_nodes(of_counts(counts))
        return without_launch_nodes(count_lines('\n'.join(variable(system, 'LSB_HOSTS').split())))


def of_counts(text: str) -> list[Node]:
    """The nodes of LSB_MCPU_HOSTS: each is followed by its number of slots."""
    words = text.split()
    if len(words) % 2:
        raise PlatformError(f'LSB_MCPU_HOSTS is {text!r}, where a number of slots is missing')
    return [Node(name, number(slots, f'the number of slots on {name} in LSB_MCPU_HOSTS'))
            for name, slots in zip(words[::2], words[1::2], strict=True)]


def without_launch_nodes(nodes: list[Node]) -> list[Node]:
    """The nodes that tasks can run on; if all of them look like launch nodes, they are none."""
    named = [node for node in nodes if not re.fullmatch(r'(login|batch)\d*', short(node.name))] or nodes
    return [node for node in named if node.cores > 1] or named

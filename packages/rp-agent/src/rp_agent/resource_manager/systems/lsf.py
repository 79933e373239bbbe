"""Resource manager LSF: the host file has one line per slot; a slot is a core with all its hardware threads.

Some machines start the agent on a launch node and list it as well: as a node with one slot, or by the name of a batch
or login node. Tasks cannot run there.
"""

from __future__ import annotations

import re
from typing import ClassVar

from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, count_lines, number
from rp_agent.resource_manager.system import System, short
from rp_api.errors import PlatformError


class Lsf(BatchSystem):
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
    """Return the nodes of LSB_MCPU_HOSTS, in which a number of slots follows each name."""
    words = text.split()
    if len(words) % 2:
        raise PlatformError(f'LSB_MCPU_HOSTS must be pairs of a host and a number of slots, not {text!r}')
    return [Node(name, number(slots, f'the number of slots on {name} in LSB_MCPU_HOSTS'))
            for name, slots in zip(words[::2], words[1::2], strict=True)]


def without_launch_nodes(nodes: list[Node]) -> list[Node]:
    """Return the nodes without launch nodes; all nodes if each of them looks like one."""
    named = [node for node in nodes if not re.fullmatch(r'(login|batch)\d*', short(node.name))] or nodes
    return [node for node in named if node.cores > 1] or named

"""Resource manager LOADLEVELER: a host file on clusters, a block of nodes on a Blue Gene/Q."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, count_lines, number
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError

BG_CORES = 16
"""Cores per node of a Blue Gene/Q."""


class LoadLeveler(BatchSystem):
    NAME: ClassVar[str] = 'LOADLEVELER'
    JOB: ClassVar[str] = 'LOADL_STEP_ID'
    COUNTS_THREADS: ClassVar[bool] = False

    def nodes(self, system: System) -> list[Node]:
        block = system.environ.get('LOADL_BG_BLOCK')
        if block:
            return of_block(block, system.run('llq', '-l', variable(system, self.JOB)))
        path = system.environ.get('LOADL_HOSTFILE')
        if path:
            text = system.read(path)
        else:
            text = '\n'.join(variable(system, 'LOADL_HOSTFILE', 'LOADL_PROCESSOR_LIST').split())
        found = count_lines(text)
        total = number(system.environ.get('LOADL_TOTAL_TASKS') or '0', 'LOADL_TOTAL_TASKS')
        if all(node.cores == 1 for node in found) and total > len(found):   # the file lists each host once
            return [Node(node.name, total // len(found)) for node in found]
        return found

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        allocation = super().allocate(request, platform, system)
        block = system.environ.get('LOADL_BG_BLOCK')
        return replace(allocation, facts={'loadl_bg_block': block}) if block else allocation


def of_block(block: str, text: str) -> list[Node]:
    """Return the nodes of a Blue Gene/Q block, which have no names, by the size that `llq -l` reports."""
    match = re.search(r'^\s*BG Size Allocated:\s*(\d+)', text, re.MULTILINE)
    if match is None:
        raise PlatformError(f'`llq -l` reports no size of block {block}')
    return [Node(f'{block}:{index}', BG_CORES) for index in range(int(match[1]))]

"""The resource manager YARN: the machine that the agent runs on, in front of a Hadoop cluster that is up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.system import System
from rp_agent.resource_manager.systems import fork
from rp_api.errors import PlatformError


class Yarn:
    """YARN: `facts` say where its file system is (`namenode`) and what nodes run containers (`yarn_nodes`)."""

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """What the pilot gets on this machine; `PlatformError` if the cluster does not answer or has no nodes."""
        namenode = system.run('hdfs', 'getconf', '-nnRpcAddresses').split()
        if not namenode:
            raise PlatformError('`hdfs getconf -nnRpcAddresses` names no address')
        nodes = running(system.run('yarn', 'node', '-list'))
        if not nodes:
            raise PlatformError('`yarn node -list` names no node that is RUNNING')
        return replace(fork.allocate(request, platform, system.environ),
                       facts={'namenode': namenode[0], 'yarn_nodes': ','.join(nodes)})


def running(text: str) -> list[str]:
    """The hosts of nodes that are RUNNING; a node has a line with `host:port`, state, address and containers."""
    return re.findall(r'^\s*(\S+):\d+\s+RUNNING\s', text, re.MULTILINE)

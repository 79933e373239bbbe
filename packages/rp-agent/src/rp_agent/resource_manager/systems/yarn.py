"""Resource manager YARN: the machine that the agent runs on, as a front end of a running Hadoop cluster."""

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
    """YARN; `Allocation.facts` has the address of its file system (`namenode`) and its nodes (`yarn_nodes`)."""

    def allocate(self, request: Request, platform: Mapping[str, Any], system: System) -> Allocation:
        """Return the resources of this machine; raise `PlatformError` if the cluster is down or has no nodes."""
        namenode = system.run('hdfs', 'getconf', '-nnRpcAddresses').split()
        if not namenode:
            raise PlatformError('`hdfs getconf -nnRpcAddresses` names no address')
        nodes = running(system.run('yarn', 'node', '-list'))
        if not nodes:
            raise PlatformError('`yarn node -list` names no node that is RUNNING')
        return replace(fork.allocate(request, platform, system.environ),
                       facts={'namenode': namenode[0], 'yarn_nodes': ','.join(nodes)})


def running(text: str) -> list[str]:
    """Return the hosts of nodes in the state RUNNING; lines have `host:port`, state, address and containers."""
    return re.findall(r'^\s*(\S+):\d+\s+RUNNING\s', text, re.MULTILINE)

"""Selection of a pilot's nodes among the nodes of its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from rp_agent.resource_manager.base import Request
from rp_agent.resource_manager.granted import Node
from rp_api.errors import ResourceError

Devices = Callable[[Node], tuple[int, int]]
"""Function that returns the number of usable cores and GPUs of a node."""

_SHOWN = 5


def choose(nodes: Sequence[Node], own: Node | None, request: Request, devices: Devices, job: str,
           sick: Mapping[str, str]) -> list[Node]:
    """Return as many healthy nodes as the pilot needs, the agent's own first, the others in their order.

    `sick` maps the names of excluded nodes to reasons. Raises `ResourceError` if there are too few nodes.
    """
    healthy = [node for node in nodes if node.name not in sick]
    ordered = sorted(healthy, key=lambda node: node is not own)
    if request.nodes:
        if request.nodes > len(ordered):
            raise _too_few('nodes', request.nodes, len(ordered), job, sick)
        return ordered[:request.nodes]
    cores = gpus = taken = 0
    for node in ordered:
        if taken and cores >= request.cores and gpus >= request.gpus:
            break
        more = devices(node)
        cores, gpus, taken = cores + more[0], gpus + more[1], taken + 1
    if cores < request.cores:
        raise _too_few('cores', request.cores, cores, job, sick)
    if gpus < request.gpus:
        raise _too_few('gpus', request.gpus, gpus, job, sick)
    return ordered[:taken]


def _too_few(what: str, wanted: int, there: int, job: str, sick: Mapping[str, str]) -> ResourceError:
    sentence = f'{what}={wanted} of the pilot description is more than the {there} that {job} has'
    if sick:
        shown = ', '.join(f'{name} ({reason})' for name, reason in islice(sick.items(), _SHOWN))
        more = f' and {len(sick) - _SHOWN} more' if len(sick) > _SHOWN else ''
        sentence += f'; out of order are {shown}{more}'
    return ResourceError(sentence)

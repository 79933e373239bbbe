"""Division of the pilot's nodes among the instances of a launcher. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from rp_api.errors import PlatformError
from rp_api.platforms.systems import LAUNCH_METHODS

MOST_NODES = 256
"""Most nodes of an instance by default; PRRTE has been tested with as many."""

DVM_METHODS = frozenset(name for name, method in LAUNCH_METHODS.items() if method.dvm)
"""Launch methods that launch into virtual machines."""


def divide(method: str, nodes: int, options: Mapping[str, Any], partitions: int = 1) -> tuple[range, ...]:
    """Return the positions of the nodes of each instance: contiguous ranges of nearly equal length.

    `options` are those of the launch method on the platform: a number of instances (`dvm_count` or `instance_count`),
    or of nodes for each (`nodes_per_dvm` or `nodes_per_instance`). Without either, there are as many instances as the
    platform has `partitions`, and more if these would have more than 256 nodes. Raises PlatformError if a number is
    invalid or there are too few nodes.
    """
    count = _number(method, options, 'dvm_count', 'instance_count')
    size = _number(method, options, 'nodes_per_dvm', 'nodes_per_instance')
    if count and size:
        raise PlatformError(f'launch method {method}: both a number of instances ({count}) and of nodes for each '
                            f'({size}) are set, set one of them')
    if count > nodes:
        raise PlatformError(f'launch method {method}: {count} instances cannot share {nodes} node(s), each needs one')
    if not count:
        count = -(-nodes // size) if size else max(min(partitions, nodes), -(-nodes // MOST_NODES))
    share, rest = divmod(nodes, count)
    firsts = [index * share + min(index, rest) for index in range(count + 1)]
    return tuple(range(first, end) for first, end in pairwise(firsts))


def parts(platform: Mapping[str, Any], nodes: int) -> tuple[range, ...]:
    """Return the nodes of each DVM of a pilot with `nodes` nodes; empty if the platform does not use DVMs."""
    methods = platform.get('launch_methods') or {}
    name = next((name for name in methods.get('order', ()) if name in DVM_METHODS), '')
    return divide(name, nodes, methods.get(name) or {}, platform.get('n_partitions') or 1) if name else ()


def _number(method: str, options: Mapping[str, Any], *names: str) -> int:
    """Return the value of the first of these options that is set; 0 if none is."""
    for name in names:
        value = options.get(name)
        if value is not None:
            if type(value) is not int or value < 1:
                raise PlatformError(f'launch method {method}: {name} is {value!r}, allowed: a whole number, at least 1')
            return value
    return 0

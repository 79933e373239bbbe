"""Flux jobspecs, version 1, of tasks. Source: Flux RFC 25."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rp_agent.lookup import LaunchRefused
from rp_agent.task import DEFAULTS
from rp_api.constants import RAPTOR_WORKER


def jobspec(description: Mapping[str, Any], argv: Sequence[str], environment: Mapping[str, str], directory: str,
            output: tuple[str, str], threads: int = 1) -> dict[str, Any]:
    """Return the jobspec of a task whose ranks run `argv` in a directory, with their output in two files.

    Cores of the description are hardware threads, of which each Flux core has `threads`; ranks do not share a core. The
    executor enforces time limits; one in Flux would end the job at the same time, for another reason. Raise
    LaunchRefused if a jobspec cannot express the description.
    """
    ranks = description['ranks']
    if description['mode'] == RAPTOR_WORKER:   # one manager, which starts the ranks
        each = {name: ranks * description[name] for name in ('cores_per_rank', 'gpus_per_rank')}
        description, ranks = {**DEFAULTS, **description, **each, 'ranks': 1}, 1
    resources, count = _resources(description, ranks, threads)
    stdout, stderr = output
    options: dict[str, Any] = {'output': {'stdout': {'type': 'file', 'path': stdout},
                                          'stderr': {'type': 'file', 'path': stderr}}}
    if ranks > 1:
        options['cpu-affinity'] = 'per-task'
        if description['gpus_per_rank']:
            options['gpu-affinity'] = 'per-task'
        if _is_mpi(description):
            options['exit-on-error'] = 1
        else:
            options['exit-timeout'] = 'none'
    return {
        'version': 1,
        'resources': [resources],
        'tasks': [{'command': list(argv), 'slot': 'task', 'count': count}],
        'attributes': {'system': {
            'duration': 0,
            'cwd': directory,
            'environment': dict(environment),
            'shell': {'options': options},
        }},
    }


def _resources(description: Mapping[str, Any], ranks: int, threads: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the requested resources, as one vertex, and the count of ranks."""
    within = [{'type': 'core', 'count': math.ceil(description['cores_per_rank'] / threads)}]
    gpus = description['gpus_per_rank']
    if 0 < gpus < 1:
        raise LaunchRefused(f'gpus_per_rank is {gpus:g}, allowed with Flux: whole GPUs')
    if gpus:
        within.append({'type': 'gpu', 'count': math.ceil(gpus)})
    # ranks that are not MPI share a node
    most = description['ranks_per_node'] or (ranks if not _is_mpi(description) else 0)
    if ranks == 1 or not most:
        return {'type': 'slot', 'count': ranks, 'label': 'task', 'with': within}, {'per_slot': 1}
    nodes = -(-ranks // most)
    slots = -(-ranks // nodes)
    slot = {'type': 'slot', 'count': slots, 'label': 'task', 'with': within}
    counted = {'per_slot': 1} if nodes * slots == ranks else {'total': ranks}
    return {'type': 'node', 'count': nodes, 'with': [slot]}, counted


def _is_mpi(description: Mapping[str, Any]) -> bool:
    wanted = description['use_mpi']
    return description['ranks'] > 1 if wanted is None else bool(wanted)

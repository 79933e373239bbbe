"""What a task is to Flux."""

from __future__ import annotations

from typing import Any

import pytest

from rp_agent.executor.backends.flux.executor import jobspec
from rp_agent.lookup import LaunchRefused
from rp_agent.task import Description
from rp_api.constants import RAPTOR_WORKER


def spec(**description: Any) -> dict[str, Any]:
    return jobspec(Description(description), ('/bin/sh', '/s/t.exec.sh'), {'A': 'b'}, '/s', ('/s/t.out', '/s/t.err'))


def cores(count: int) -> dict[str, Any]:
    return {'type': 'core', 'count': count}


def slot(count: int, *within: dict[str, Any]) -> dict[str, Any]:
    return {'type': 'slot', 'count': count, 'label': 'task', 'with': list(within)}


def test_all_of_it() -> None:
    assert spec(timeout=60.0) == {   # time limits are the executor's
        'version': 1,
        'resources': [slot(1, cores(1))],
        'tasks': [{'command': ['/bin/sh', '/s/t.exec.sh'], 'slot': 'task', 'count': {'per_slot': 1}}],
        'attributes': {'system': {
            'duration': 0, 'cwd': '/s', 'environment': {'A': 'b'},
            'shell': {'options': {'output': {'stdout': {'type': 'file', 'path': '/s/t.out'},
                                             'stderr': {'type': 'file', 'path': '/s/t.err'}}}}}}}


@pytest.mark.parametrize(('description', 'resources', 'count'), [
    ({'cores_per_rank': 4}, slot(1, cores(4)), {'per_slot': 1}),
    ({'ranks': 8}, slot(8, cores(1)), {'per_slot': 1}),
    ({'ranks': 2, 'gpus_per_rank': 2.0}, slot(2, cores(1), {'type': 'gpu', 'count': 2}), {'per_slot': 1}),
    ({'ranks': 8, 'ranks_per_node': 4}, {'type': 'node', 'count': 2, 'with': [slot(4, cores(1))]}, {'per_slot': 1}),
    ({'ranks': 7, 'ranks_per_node': 4}, {'type': 'node', 'count': 2, 'with': [slot(4, cores(1))]}, {'total': 7}),
    ({'ranks': 3, 'cores_per_rank': 2, 'gpus_per_rank': 1.0, 'mode': RAPTOR_WORKER},   # its manager starts the ranks
     slot(1, cores(6), {'type': 'gpu', 'count': 3}), {'per_slot': 1}),
    ({'ranks': 3, 'use_mpi': False}, {'type': 'node', 'count': 1, 'with': [slot(3, cores(1))]}, {'per_slot': 1}),
])
def test_resources(description: dict[str, Any], resources: dict[str, Any], count: dict[str, int]) -> None:
    found = spec(**description)
    assert found['resources'] == [resources]
    assert found['tasks'][0]['count'] == count


@pytest.mark.parametrize(('wanted', 'threads', 'told'), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (8, 4, 2)])
def test_cores_of_a_task_are_hardware_threads(wanted: int, threads: int, told: int) -> None:
    found = jobspec(Description({'cores_per_rank': wanted}), ('true',), {}, '/s', ('o', 'e'), threads)
    assert found['resources'] == [slot(1, cores(told))]


@pytest.mark.parametrize(('description', 'options'), [
    ({'ranks': 2}, {'cpu-affinity': 'per-task', 'exit-on-error': 1}),
    ({'ranks': 2, 'use_mpi': False}, {'cpu-affinity': 'per-task', 'exit-timeout': 'none'}),
    ({'ranks': 2, 'gpus_per_rank': 1.0}, {'cpu-affinity': 'per-task', 'gpu-affinity': 'per-task', 'exit-on-error': 1}),
    ({}, {}),
])
def test_options(description: dict[str, Any], options: dict[str, Any]) -> None:
    found = spec(**description)['attributes']['system']['shell']['options']
    del found['output']
    assert found == options


def test_shared_gpus_are_refused() -> None:
    with pytest.raises(LaunchRefused, match=r'gpus_per_rank is 0\.5, allowed with Flux: whole GPUs'):
        spec(gpus_per_rank=0.5)

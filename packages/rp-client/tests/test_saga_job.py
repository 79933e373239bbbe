"""What is asked of the batch system for a pilot; the scripts that come of it are in test_saga_scripts.py."""

from __future__ import annotations

from typing import Any

import pytest

from rp_api.description.pilot import PilotDescription
from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.saga.job import Size, amendments, job_description, size


def platform(url: str = 'slurm://localhost/', **values: Any) -> ResourceConfig:
    return ResourceConfig({'label': 'site.machine', 'resource_manager': 'SLURM', 'cores_per_node': 8,
                           'gpus_per_node': 2, 'job_manager_endpoint': url} | values)


def pilot(**values: Any) -> PilotDescription:
    description = PilotDescription({'resource': 'site.machine', 'uid': 'pilot.0000'} | (values or {'nodes': 1}))
    description.verify()
    return description


def job(description: PilotDescription, where: ResourceConfig) -> dict[str, Any]:
    return job_description(description, where, '/box', ['/bin/sh', '/box/x'], {'A': 'b'})


@pytest.mark.parametrize(('values', 'wanted'), [
    ({'nodes': 3}, Size(3, 24, 6, 8)),
    ({'nodes': 3, 'backup_nodes': 2}, Size(5, 40, 10, 8)),
    ({'cores': 1}, Size(1, 8, 0, 8)),
    ({'cores': 8}, Size(1, 8, 0, 8)),
    ({'cores': 9}, Size(2, 16, 0, 8)),
    ({'cores': 1, 'gpus': 3}, Size(2, 16, 4, 8)),
])
def test_whole_nodes(values: dict[str, int], wanted: Size) -> None:
    assert size(pilot(**values), platform()) == wanted


def test_cores_that_tasks_cannot_have() -> None:
    blocked = platform(system_architecture={'smt': 2, 'blocked_cores': [0, 1], 'blocked_gpus': [0]})
    assert size(pilot(cores=14), blocked).nodes == 1   # threads count
    assert size(pilot(cores=15), blocked).nodes == 2
    assert size(pilot(cores=1, gpus=2), blocked) == Size(2, 16, 4, 8)


def test_size_of_nodes_is_not_known() -> None:
    unknown = platform(cores_per_node=0)
    assert size(pilot(cores=5, gpus=1), unknown) == Size(0, 5, 1, 0)
    with pytest.raises(PlatformError, match=r'nodes is 2, but site\.machine does not say how many cores'):
        size(pilot(nodes=2), unknown)


def test_no_gpus() -> None:
    with pytest.raises(PlatformError, match=r'gpus is 1, but nodes of site\.machine have none'):
        size(pilot(cores=1, gpus=1), platform(gpus_per_node=0))


def test_attributes() -> None:
    description = pilot(nodes=2, runtime=15, queue='debug', project='abc', memory=100, job_name='my: job')
    assert job(description, platform(system_architecture={'smt': 2, 'iface': 'hsn0'})) == {
        'executable': '/bin/sh', 'arguments': ['/box/x'], 'environment': {'A': 'b'}, 'working_directory': '/box',
        'output': '/box/bootstrap_0.out', 'error': '/box/bootstrap_0.err', 'name': 'my__job', 'queue': 'debug',
        'project': 'abc', 'wall_time_limit': 15, 'total_cpu_count': 16, 'total_gpu_count': 4, 'processes_per_host': 8,
        'total_physical_memory': 100, 'system_architecture': {'smt': 2}}


def test_defaults() -> None:
    found = job(pilot(cores=1), platform(default_queue='q_%(pd.uid)s'))
    assert (found['name'], found['queue'], found['wall_time_limit']) == ('pilot.0000', 'q_pilot.0000', 10)
    assert not {'project', 'total_gpu_count', 'total_physical_memory', 'spmd_variation'} & found.keys()


@pytest.mark.parametrize('system', ['slurm', 'slurm+ssh'])
def test_parts_behind_a_colon(system: str) -> None:
    found = job(pilot(nodes=1, queue='debug:high', project='abc:res'), platform(f'{system}://host/'))
    assert (found['queue'], found['project']) == ('debug:high', 'abc:res')


@pytest.mark.parametrize(('system', 'values', 'sentence'), [
    ('pbspro', {'queue': 'debug:high'}, r"queue is 'debug:high', which asks for a qos .* only for slurm"),
    ('sge', {'project': 'a:b'}, r"project is 'a:b', which asks for a reservation .* only for slurm, lsf"),
    ('sge', {'memory': 5}, r'memory is 5, but job_manager_endpoint of site\.machine .*\?memreqs=h_vmem'),
    ('condor', {'memory': 5}, 'memory is 5, but radical.saga has no way to ask condor'),
    ('loadl', {'nodes': 0, 'cores': 1, 'gpus': 1}, 'gpus is 1, but radical.saga has no way to ask loadl'),
])
def test_what_a_batch_system_cannot_be_asked_for(system: str, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlatformError, match=sentence):
        job(pilot(**{'nodes': 1} | values), platform(f'{system}://localhost/'))


@pytest.mark.parametrize('url', ['ssh://host/', 'fork://localhost/', 'cobalt://localhost/'])
def test_nothing_to_amend(url: str) -> None:
    assert amendments(pilot(), platform(url)) == []

"""The job that is asked for a pilot; the scripts that come of it are compared in test_job_scripts.py."""

from __future__ import annotations

from typing import Any

import pytest

from rp_api.description.pilot import PilotDescription
from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.batch.job import JobSize, check_request, job_request, size
from rp_client.launcher.batch.systems.registry import batch_system
from rp_client.launcher.batch.systems.request import JobRequest
from rp_client.launcher.batch.systems.sge import GridEngine
from rp_client.launcher.batch.systems.slurm import Slurm


def platform(url: str = 'slurm://localhost/', **values: Any) -> ResourceConfig:
    return ResourceConfig({'label': 'site.machine', 'resource_manager': 'SLURM', 'cores_per_node': 8,
                           'gpus_per_node': 2, 'job_manager_endpoint': url} | values)


def pilot(**values: Any) -> PilotDescription:
    description = PilotDescription({'resource': 'site.machine', 'uid': 'pilot.0000'} | (values or {'nodes': 1}))
    description.verify()
    return description


def job(description: PilotDescription, where: ResourceConfig) -> JobRequest:
    found = job_request(description, where, '/box', ['/bin/sh', '/box/x'], {'A': 'b'})
    check_request(description, found, batch_system(where.job_manager_endpoint))
    return found


@pytest.mark.parametrize(('values', 'wanted'), [
    ({'nodes': 3}, JobSize(3, 24, 6, 8)),
    ({'nodes': 3, 'backup_nodes': 2}, JobSize(5, 40, 10, 8)),
    ({'cores': 1}, JobSize(1, 8, 0, 8)),
    ({'cores': 8}, JobSize(1, 8, 0, 8)),
    ({'cores': 9}, JobSize(2, 16, 0, 8)),
    ({'cores': 1, 'gpus': 3}, JobSize(2, 16, 4, 8)),
])
def test_whole_nodes(values: dict[str, int], wanted: JobSize) -> None:
    assert size(pilot(**values), platform()) == wanted


def test_cores_that_tasks_cannot_have() -> None:
    blocked = platform(system_architecture={'smt': 2, 'blocked_cores': [0, 1], 'blocked_gpus': [0]})
    assert size(pilot(cores=14), blocked).nodes == 1   # threads count
    assert size(pilot(cores=15), blocked).nodes == 2
    assert size(pilot(cores=1, gpus=2), blocked) == JobSize(2, 16, 4, 8)


def test_size_of_nodes_is_not_known() -> None:
    unknown = platform(cores_per_node=0)
    assert size(pilot(cores=5, gpus=1), unknown) == JobSize(0, 5, 1, 0)
    with pytest.raises(PlatformError, match=r'nodes is 2, but site\.machine does not say how many cores'):
        size(pilot(nodes=2), unknown)


def test_no_gpus() -> None:
    with pytest.raises(PlatformError, match=r'gpus is 1, but nodes of site\.machine have no GPUs'):
        size(pilot(cores=1, gpus=1), platform(gpus_per_node=0))


def test_attributes() -> None:
    description = pilot(nodes=2, runtime=15, queue='debug', project='abc', memory=100, job_name='my: job')
    assert job(description, platform(system_architecture={'smt': 2, 'iface': 'hsn0'})) == JobRequest(
        command=['/bin/sh', '/box/x'], environment={'A': 'b'}, directory='/box', output='/box/bootstrap_0.out',
        error='/box/bootstrap_0.err', name='my__job', queue='debug', account='abc', minutes=15, nodes=2, cores=16,
        cores_per_node=8, gpus=4, memory=100, threads_per_core=2, options=[])


def test_defaults() -> None:
    found = job(pilot(cores=1), platform(default_queue='q_%(pd.uid)s'))
    assert (found.name, found.queue, found.minutes) == ('pilot.0000', 'q_pilot.0000', 10)
    assert not any((found.account, found.qos, found.gpus, found.memory, found.reserved_cores, found.requeue))


def test_cores_of_nodes_whose_size_is_not_known() -> None:
    """Nothing depends on the nodes of the machine that submits."""
    found = job(pilot(cores=12), platform(cores_per_node=0, gpus_per_node=0))
    assert (found.nodes, found.cores, found.cores_per_node) == (0, 12, 0)


@pytest.mark.parametrize('system', ['slurm', 'slurm+ssh'])
def test_parts_behind_a_colon(system: str) -> None:
    found = job(pilot(nodes=1, queue='debug:high', project='abc:res'), platform(f'{system}://host/'))
    assert (found.queue, found.qos, found.account, found.reservation) == ('debug', 'high', 'abc', 'res')


@pytest.mark.parametrize(('queue', 'found'), [
    ('regular', ('', 'regular')), ('part:regular', ('part', 'regular')), (None, ('', 'mine'))])
def test_a_queue_that_is_a_qos(queue: str | None, found: tuple[str, str]) -> None:
    request = job(pilot(nodes=1, queue=queue), platform(queue_type='qos', default_queue='mine'))
    assert (request.queue, request.qos) == found


def test_the_project_of_the_platform() -> None:
    theirs = platform(default_project='theirs')
    assert job(pilot(nodes=1), theirs).account == 'theirs'
    assert job(pilot(nodes=1, project='mine:res'), theirs).account == 'mine'


@pytest.mark.parametrize(('url', 'values', 'found'), [
    ('slurm://h/', {'job_size': 'nodes'}, True), ('slurm://h/', {}, False),
    ('lsf+ssh://h/', {'launch_methods': {'order': ['JSRUN']}}, True),
    ('slurm://h/', {'job_size': 'nodes', 'cores_per_node': 0, 'gpus_per_node': 0}, False)])
def test_jobs_of_nodes_only(url: str, values: dict[str, Any], found: bool) -> None:
    assert job(pilot(cores=1), platform(url, **values)).nodes_only is found


@pytest.mark.parametrize(('system', 'values', 'sentence'), [
    ('pbspro', {'queue': 'debug:high'}, r"queue is 'debug:high', but there is no way to ask PBS Pro for a QOS"),
    ('sge', {'project': 'a:b'}, r"project is 'a:b', but there is no way to ask Grid Engine for a reservation"),
    ('sge', {'memory': 5}, r'memory is 5, but job_manager_endpoint of the platform .*\?memreqs=h_vmem'),
    ('condor', {'memory': 5}, 'memory is 5, but there is no way to ask HTCondor for memory'),
    ('loadl', {'nodes': 0, 'cores': 1, 'gpus': 1}, 'gpus is 1, but there is no way to ask LoadLeveler for GPUs'),
    ('flux', {'requeue': True}, 'requeue is True, but there is no way to ask Flux for a job that may be started again'),
])
def test_what_a_batch_system_cannot_be_asked_for(system: str, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlatformError, match=sentence):
        job(pilot(**{'nodes': 1} | values), platform(f'{system}://localhost/'))


@pytest.mark.parametrize(('query', 'found'), [
    ('', ('MPI', '')), ('?pe=mpi-16', ('mpi-16', '')), ('?memreqs=h_vmem&pe=smp', ('smp', 'h_vmem'))])
def test_names_that_a_grid_engine_gives(query: str, found: tuple[str, str]) -> None:
    request = job(pilot(nodes=1), platform(f'sge://localhost/{query}'))
    assert (request.parallel_environment, request.memory_resource) == found
    assert f'#$ -pe {found[0]} {request.cores}\n' in GridEngine().render(request)


def test_gpus_that_come_with_whole_nodes_are_not_refused() -> None:
    assert job(pilot(nodes=1), platform('sge://localhost/')).gpus == 2


def test_gpus_without_the_size_of_nodes_for_lsf() -> None:
    with pytest.raises(PlatformError, match='LSF counts GPUs and memory by node: set cores_per_node'):
        job(pilot(cores=1, gpus=1), platform('lsf://localhost/', cores_per_node=0))


@pytest.mark.parametrize('directory', ['/with"quotes', '/with\\backslash', '/two\nlines'])
def test_directories_that_no_job_script_can_have(directory: str) -> None:
    request = job_request(pilot(), platform(), directory, ['true'], {})
    with pytest.raises(PlatformError, match='cannot be used in a job script'):
        Slurm().render(request)


def test_words_that_a_shell_would_change() -> None:
    script = Slurm().render(job_request(pilot(), platform(), '/my box/50%', ['/bin/sh', "it's $HOME"], {'A': '$(id)'}))
    assert '#SBATCH -D "/my box/50%"\n#SBATCH --output="/my box/50%%/bootstrap_0.out"\n' in script
    assert """export A='$(id)'\nexec /bin/sh 'it'"'"'s $HOME'\n""" in script

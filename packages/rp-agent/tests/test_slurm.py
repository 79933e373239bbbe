"""What SLURM's variables say about the nodes of a job."""

from __future__ import annotations

import pytest
from resource_manager_support import MadeUp, allocate

from rp_agent.resource_manager.granted import Node
from rp_agent.resource_manager.systems.slurm import Slurm, by_model
from rp_api.errors import PlatformError, ResourceError

ONE = {'SLURM_JOB_ID': '17', 'SLURM_JOB_NODELIST': 'n1', 'SLURM_JOB_CPUS_PER_NODE': '8', 'SLURMD_NODENAME': 'n1'}


def nodes(**environ: str) -> list[Node]:
    return Slurm().nodes(MadeUp(environ))


def test_a_node_list_is_expanded() -> None:
    assert nodes(SLURM_JOB_NODELIST='nid[00001-00003],login', SLURM_JOB_CPUS_PER_NODE='128(x3),4') == [
        Node('nid00001', 128), Node('nid00002', 128), Node('nid00003', 128), Node('login', 4)]


def test_older_variables_are_understood() -> None:
    assert nodes(SLURM_NODELIST='a,b', SLURM_CPUS_ON_NODE='24') == [Node('a', 24), Node('b', 24)]


def test_without_a_count_it_is_unknown() -> None:
    assert nodes(SLURM_JOB_NODELIST='a') == [Node('a', 0)]


@pytest.mark.parametrize(('environ', 'gpus'), [
    ({'SLURM_GPUS_ON_NODE': '4'}, 4), ({'SLURM_JOB_GPUS': '0,1'}, 2), ({'SLURM_JOB_GPUS': '0-3,6'}, 5),
    ({'SLURM_STEP_GPUS': '2'}, 1), ({'GPU_DEVICE_ORDINAL': '0,1,2'}, 3), ({'SLURM_GPUS_PER_NODE': '2'}, 2),
    ({'SLURM_GPUS_PER_NODE': 'a100:4'}, 4), ({'SLURM_GPUS_PER_NODE': 'a100:2,h100:1'}, 3), ({}, None),
    ({'SLURM_GPUS_ON_NODE': '1', 'SLURM_JOB_GPUS': '0,1', 'SLURM_GPUS_PER_NODE': '4'}, 1)])
def test_gpus(environ: dict[str, str], gpus: int | None) -> None:
    assert nodes(SLURM_JOB_NODELIST='a', **environ) == [Node('a', 0, gpus)]


@pytest.mark.parametrize(('answer', 'gpus'), [('Gres=gpu:a100:4(S:0-1)', 0), ('Gres=(null)', None), ('', None)])
def test_gpus_that_were_not_asked_for(answer: str, gpus: int | None) -> None:
    """Where Slurm hands out GPUs, a job that has asked for none has none."""
    answers = {'scontrol show node a': f'NodeName=a CPUTot=8\n   {answer}\n   Partitions=p'} if answer else {}
    environ = {'SLURM_JOB_NODELIST': 'a', 'SLURM_JOB_CPUS_PER_NODE': '8'}
    assert Slurm().nodes(MadeUp(environ, answers=answers)) == [Node('a', 8, gpus)]


@pytest.mark.parametrize(('environ', 'mem'), [
    ({'SLURM_MEM_PER_NODE': '16000'}, 16000), ({'SLURM_MEM_PER_CPU': '500'}, 4000), ({}, 0),
    ({'SLURM_MEM_PER_NODE': '0'}, 0), ({'SLURM_MEM_PER_GPU': '1000', 'SLURM_GPUS_ON_NODE': '2'}, 2000)])
def test_memory(environ: dict[str, str], mem: int) -> None:
    node, = nodes(SLURM_JOB_NODELIST='a', SLURM_JOB_CPUS_PER_NODE='8', **environ)
    assert node.mem == mem


def test_heterogeneous_jobs_have_their_groups_one_after_the_other() -> None:
    assert nodes(SLURM_HET_SIZE='2', SLURM_JOB_NODELIST='c1',
                 SLURM_JOB_NODELIST_HET_GROUP_0='c[1-2]', SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0='64(x2)',
                 SLURM_JOB_NODELIST_HET_GROUP_1='g7', SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1='32',
                 SLURM_GPUS_PER_NODE_HET_GROUP_1='h100:4') == [
        Node('c1', 64), Node('c2', 64), Node('g7', 32, 4)]


@pytest.mark.parametrize(('environ', 'sentence'), [
    ({}, 'SLURM_JOB_NODELIST is not set'),
    ({'SLURM_JOB_NODELIST': 'a[1-'}, 'brackets do not match'),
    ({'SLURM_JOB_NODELIST': 'a', 'SLURM_JOB_CPUS_PER_NODE': '8(x2)'}, r"'8\(x2\)', which does not match 1 node"),
    ({'SLURM_JOB_NODELIST': 'a', 'SLURM_JOB_CPUS_PER_NODE': 'many'}, "'many' is not a number"),
    ({'SLURM_JOB_NODELIST': 'a', 'SLURM_GPUS_ON_NODE': 'x'}, "SLURM_GPUS_ON_NODE must be a number, not 'x'"),
    ({'SLURM_HET_SIZE': '1', 'SLURM_JOB_NODELIST': 'a'}, 'SLURM_JOB_NODELIST_HET_GROUP_0 is not set')])
def test_what_cannot_be_understood_is_named(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(PlatformError, match=sentence):
        nodes(**environ)


def test_models_of_gpus() -> None:
    assert [by_model(text) for text in ('', '4', 'gpu:a100:2', 'tesla:1, kepler:2')] == [0, 4, 2, 3]
    with pytest.raises(PlatformError, match=r"must be a number such as 4, .* not 'a100'"):
        by_model('a100')


# the allocation


def test_the_agent_runs_on_the_node_that_slurm_names() -> None:
    """On a test machine, several nodes are one host."""
    allocation = allocate('SLURM', ONE | {'SLURM_JOB_GPUS': '2,3', 'CUDA_VISIBLE_DEVICES': '2,3'}, nodes=1)
    assert (allocation.names, allocation.cores_per_node, allocation.gpus_per_node) == (('n1',), 8, 2)
    assert allocation.gpu_ids == ('2', '3')


def test_the_own_node_comes_first() -> None:
    environ = ONE | {'SLURM_JOB_NODELIST': 'n[1-3]', 'SLURM_JOB_CPUS_PER_NODE': '8(x3)', 'SLURMD_NODENAME': 'n2'}
    assert allocate('SLURM', environ, nodes=1).names == ('n2',)


def test_outside_of_a_job_there_is_nothing() -> None:
    with pytest.raises(PlatformError, match='not run in a job of SLURM: the environment variable SLURM_JOB_ID is not'):
        allocate('SLURM', {}, nodes=1)


def test_other_hosts_are_told_from_the_own_one() -> None:
    environ = ONE | {'SLURM_JOB_NODELIST': 'n[1-9]', 'SLURM_JOB_CPUS_PER_NODE': '8(x9)'}
    assert allocate('SLURM', environ, nodes=2).elsewhere == (1,)
    assert len(allocate('SLURM', environ, cores=72).elsewhere) == 8
    allocation = allocate('SLURM', environ | {'SLURMD_NODENAME': 'login'}, nodes=2)
    assert (allocation.names, allocation.elsewhere, allocation.cpus) == (('n1', 'n2'), (0, 1), ())


def test_less_than_was_asked_for_is_refused() -> None:
    with pytest.raises(ResourceError, match='nodes=2 of the pilot description is more than the 1 that job 17 of SLURM'):
        allocate('SLURM', ONE, nodes=2)
    with pytest.raises(ResourceError, match='cores=9 of the pilot description is more than the 8 that job 17'):
        allocate('SLURM', ONE, cores=9)
    with pytest.raises(ResourceError, match='gpus=1 of the pilot description is more than the 0 that job 17'):
        allocate('SLURM', ONE, cores=8, gpus=1)

"""What batch systems other than SLURM say about the nodes of a job: golden inputs, odd ones among them."""

from __future__ import annotations

import pytest
from resource_manager_support import MadeUp, allocate

from rp_agent.resource_manager.batch import BatchSystem
from rp_agent.resource_manager.granted import Node
from rp_agent.resource_manager.systems import cobalt, fork, lsf, pbspro, sge
from rp_agent.resource_manager.systems.cobalt import Cobalt
from rp_agent.resource_manager.systems.find import find
from rp_agent.resource_manager.systems.loadleveler import LoadLeveler
from rp_agent.resource_manager.systems.lsf import Lsf
from rp_agent.resource_manager.systems.pbspro import PbsPro
from rp_agent.resource_manager.systems.sge import Sge
from rp_agent.resource_manager.systems.torque import Ccm, Torque
from rp_api.errors import PlatformError
from rp_api.platforms.systems import RESOURCE_MANAGERS

PBS = {'PBS_JOBID': '7.server', 'PBS_NODEFILE': '/n'}
QSTAT = """Job Id: 7.server
    Job_Name = pilot.0000
    job_state = R
    exec_host = x1000c0s0b0n0/0*64+x1000c0s0b1n0/0*64
    exec_vnode = (x1000c0s0b0n0:ncpus=64:ngpus=4:mem=536870912kb)+(x1000c0s0b1n0:n
\tcpus=64:ngpus=4:mem=512gb)
    Resource_List.ncpus = 128
    Variable_List = PBS_O_HOME=/home/u,exec_vnode = no,
\tPBS_O_LANG=C
"""


def nodes(manager: BatchSystem, environ: dict[str, str] | None = None, files: dict[str, str] | None = None,
          answers: dict[str, str] | None = None) -> list[Node]:
    return manager.nodes(MadeUp(environ or {}, files, answers))


# PBSPRO


def test_pbspro_takes_the_nodes_from_qstat() -> None:
    assert nodes(PbsPro(), PBS, answers={'qstat -f 7.server': QSTAT}) == [
        Node('x1000c0s0b0n0', 64, 4, 512 * 1024), Node('x1000c0s0b1n0', 64, 4, 512 * 1024)]


@pytest.mark.parametrize(('text', 'expected'), [
    ('(n1:ncpus=1)', [Node('n1', 1)]),
    ('(n1:ncpus=2+n2:ncpus=3)', [Node('n1', 2), Node('n2', 3)]),
    ('(n1:ncpus=2)+(n1:ncpus=2:ngpus=1)+(n2:ncpus=4)', [Node('n1', 4, 1), Node('n2', 4)]),
    ('(r1i0n0[0]:ncpus=12+r1i0n0[1]:ncpus=12)', [Node('r1i0n0', 24)]),
    ('(c:mem=100mb:ncpus=4:naccelerators=2)', [Node('c', 4, 2, 100)]),
    ('(c:ncpus=4:Qlist=prod:host=c)', [Node('c', 4)]),
    ('(c:ncpus=1:mem=1048576)', [Node('c', 1, None, 1)])])
def test_virtual_nodes(text: str, expected: list[Node]) -> None:
    assert pbspro.of_vnodes(text) == expected


@pytest.mark.parametrize(('text', 'sentence'), [
    ('(n1:ncpus=x)', "ncpus of n1 must be a number, not 'x'"),
    ('(n1:ncpus=1:mem=lots)', 'mem of n1 must be an amount of memory')])
def test_broken_virtual_nodes(text: str, sentence: str) -> None:
    with pytest.raises(PlatformError, match=sentence):
        pbspro.of_vnodes(text)


@pytest.mark.parametrize('answers', [{}, {'qstat -f 7.server': 'Job Id: 7.server\n    job_state = R\n'}])
def test_without_qstat_pbspro_takes_the_node_file(answers: dict[str, str]) -> None:
    """Its lines are MPI processes; cores are counted by nobody but the definition, and NCPUS on this node."""
    files = {'/n': 'n1\nn1\nn2\nn2\n'}
    assert nodes(PbsPro(), PBS, files, answers) == [Node('n1'), Node('n2')]
    assert nodes(PbsPro(), PBS | {'NCPUS': '16'}, files, answers) == [Node('n1', 16), Node('n2', 16)]


def test_pbs_pro_node_file_of_chunks_of_one_core() -> None:
    """As a pilot gets them that asks for cores, where it is not known how many a node has."""
    files = {'/n': 'n1\n' * 8 + 'n2\n' * 4}
    assert nodes(PbsPro(), PBS | {'NCPUS': '1'}, files) == [Node('n1', 8), Node('n2', 4)]


def test_pbspro_without_anything_says_so() -> None:
    with pytest.raises(PlatformError, match='PBS_NODEFILE is not set'):
        nodes(PbsPro(), {'PBS_JOBID': '7'})
    with pytest.raises(PlatformError, match='/n cannot be read: No such file'):
        nodes(PbsPro(), PBS)


# TORQUE


def test_torque_has_a_line_for_each_core() -> None:
    assert nodes(Torque(), PBS, {'/n': 'n1\nn1\nn2\n\n'}) == [Node('n1', 2), Node('n2', 1)]


@pytest.mark.parametrize(('name', 'cores'), [('PBS_NUM_PPN', 8), ('SAGA_PPN', 8), ('OTHER', 1)])
def test_torque_with_a_line_for_each_node(name: str, cores: int) -> None:
    assert nodes(Torque(), PBS | {name: '8'}, {'/n': 'n1\nn2\n'}) == [Node('n1', cores), Node('n2', cores)]


def test_torque_counts_gpus_by_their_file() -> None:
    files = {'/n': 'a-gpu1\na-gpu1\nb\nb\n', '/g': 'a-gpu1-gpu0\na-gpu1-gpu1\n'}
    assert nodes(Torque(), PBS | {'PBS_GPUFILE': '/g'}, files) == [Node('a-gpu1', 2, 2), Node('b', 2, 0)]
    assert nodes(Torque(), PBS | {'PBS_GPUFILE': '/g'}, files | {'/g': ''})[0].gpus is None


# SGE


def test_sge_has_a_host_file() -> None:
    files = {'/h': 'node1.site 4 all.q@node1.site UNDEFINED\nnode2.site 2 all.q@node2.site <NULL>\n'}
    assert nodes(Sge(), {'PE_HOSTFILE': '/h'}, files) == [Node('node1.site', 4), Node('node2.site', 2)]


def test_a_host_may_be_listed_for_several_queues() -> None:
    assert sge.of_host_file('a 4 all.q@a U\nb 1 all.q@b U\na 2 big.q@a U\n', '/h') == [Node('a', 6), Node('b', 1)]
    with pytest.raises(PlatformError, match='/h has a line without a number of slots'):
        sge.of_host_file('a\n', '/h')


def test_a_job_of_sge_that_is_not_parallel() -> None:
    assert nodes(Sge(), {'HOSTNAME': 'vm'}) == [Node('vm', 1)]
    assert nodes(Sge(), {'HOSTNAME': 'vm', 'NSLOTS': '3', 'SGE_HGR_gpu': '0 2'}) == [Node('vm', 3, 2)]


# LSF


def test_lsf_has_a_line_for_each_slot() -> None:
    text = 'batch5\n' + 'a01n01\n' * 42 + 'a01n02\n' * 42
    assert nodes(Lsf(), {'LSB_DJOB_HOSTFILE': '/h'}, {'/h': text}) == [Node('a01n01', 42), Node('a01n02', 42)]


@pytest.mark.parametrize(('text', 'names'), [
    ('login1 1 c1 40 c2 40', ['c1', 'c2']), ('lassen710 1 lassen1 40', ['lassen1']), ('c1 1', ['c1']),
    ('c1 1 c2 1', ['c1', 'c2']), ('batch1 4', ['batch1']), ('batchnode 2 x 1', ['batchnode']),
    ('login1.site 2 c1 2', ['c1'])])
def test_launch_nodes_are_left_out(text: str, names: list[str]) -> None:
    assert [node.name for node in lsf.without_launch_nodes(lsf.of_counts(text))] == names


def test_lsf_without_a_host_file() -> None:
    assert nodes(Lsf(), {'LSB_MCPU_HOSTS': 'a 2 b 3 '}) == [Node('a', 2), Node('b', 3)]
    assert nodes(Lsf(), {'LSB_HOSTS': 'a a b b b'}) == [Node('a', 2), Node('b', 3)]
    with pytest.raises(PlatformError, match='must be pairs of a host and a number of slots'):
        nodes(Lsf(), {'LSB_MCPU_HOSTS': 'a 2 b'})
    with pytest.raises(PlatformError, match='LSB_HOSTS is not set'):
        nodes(Lsf())


def test_slots_of_lsf_are_cores() -> None:
    environ = {'LSB_JOBID': '1', 'LSB_MCPU_HOSTS': 'batch1 1 a 42'}
    platform = {'cores_per_node': 42, 'gpus_per_node': 6, 'system_architecture': {'smt': 4}}
    allocation = allocate('LSF', environ, platform, nodes=1, here=['a'])
    assert (allocation.cores_per_node, allocation.threads_per_core, allocation.gpus_per_node) == (168, 4, 6)


def test_an_agent_on_a_launch_node_is_on_none_of_its_nodes() -> None:
    allocation = allocate('LSF', {'LSB_JOBID': '1', 'LSB_MCPU_HOSTS': 'batch1 1 a 42'}, nodes=1, here=['batch1'])
    assert (allocation.names, allocation.elsewhere) == (('a',), (0,))


# COBALT


def test_cobalt_has_a_node_file_or_a_partition() -> None:
    assert nodes(Cobalt(), {'COBALT_NODEFILE': '/n'}, {'/n': 'nid1\nnid1\nnid2\n'}) == [Node('nid1'), Node('nid2')]
    assert nodes(Cobalt(), {'COBALT_PARTNAME': '8-10,00017'}) == [
        Node('nid00008'), Node('nid00009'), Node('nid00010'), Node('nid00017')]
    with pytest.raises(PlatformError, match=r"COBALT_PARTNAME must be a list of node numbers .*'MIR-1'"):
        cobalt.of_partition('MIR-1')


def test_older_cobalt_is_asked_on_its_nodes() -> None:
    answers = {'aprun -q -n 2 -N 1 hostname': 'nid00001\nnid00002\n'}
    assert nodes(Cobalt(), {'COBALT_PARTSIZE': '2'}, answers=answers) == [Node('nid00001'), Node('nid00002')]
    with pytest.raises(PlatformError, match='COBALT_NODEFILE or COBALT_PARTNAME or COBALT_PARTSIZE is not set'):
        nodes(Cobalt())


# LOADLEVELER


@pytest.mark.parametrize(('environ', 'expected'), [
    ({'LOADL_HOSTFILE': '/h'}, [Node('a', 2), Node('b', 1)]),
    ({'LOADL_HOSTFILE': '/once', 'LOADL_TOTAL_TASKS': '32'}, [Node('a', 16), Node('b', 16)]),
    ({'LOADL_HOSTFILE': '/once', 'LOADL_TOTAL_TASKS': '2'}, [Node('a', 1), Node('b', 1)]),
    ({'LOADL_PROCESSOR_LIST': 'a a b '}, [Node('a', 2), Node('b', 1)])])
def test_loadleveler_on_clusters(environ: dict[str, str], expected: list[Node]) -> None:
    assert nodes(LoadLeveler(), environ, {'/h': 'a\na\nb\n', '/once': 'a\nb\n'}) == expected


def test_loadleveler_on_a_blue_gene() -> None:
    environ = {'LOADL_STEP_ID': 'fen1.7.0', 'LOADL_BG_BLOCK': 'LL17'}
    answer = '=== Job Step fen1.7.0 ===\n        BG Size Requested: 64\n        BG Size Allocated: 64\n'
    found = nodes(LoadLeveler(), environ, answers={'llq -l fen1.7.0': answer})
    assert (len(found), found[0], found[-1]) == (64, Node('LL17:0', 16), Node('LL17:63', 16))
    with pytest.raises(PlatformError, match='reports no size of block LL17'):
        nodes(LoadLeveler(), environ, answers={'llq -l fen1.7.0': ''})
    facts = allocate('LOADL', environ, nodes=1, here=['LL17:0'], answers={'llq -l fen1.7.0': answer}).facts
    assert facts == {'loadl_bg_block': 'LL17'}


# CCM, YARN, DEBUG


def test_ccm_takes_the_newest_list() -> None:
    files = {'~/.crayccm/ccm_nodelist.17': 'nid1\nnid1\nnid2\n'}
    assert nodes(Ccm(), files=files) == [Node('nid1', 2), Node('nid2', 1)]
    with pytest.raises(PlatformError, match='there is no node list ~/'):
        nodes(Ccm())


YARN = {'hdfs getconf -nnRpcAddresses': 'nn1:8020\n', 'yarn node -list': """Total Nodes:2
         Node-Id\t     Node-State\tNode-Http-Address\tNumber-of-Running-Containers
     w1:45454\t        RUNNING\t          w1:8042\t                           0
     w2:45454\t           LOST\t          w2:8042\t                           0
"""}


def test_yarn_is_this_machine_and_a_cluster() -> None:
    allocation = allocate('YARN', {}, {'cores_per_node': 2}, cores=2, answers=YARN)
    assert (allocation.names, allocation.cores) == (('localhost',), 2)
    assert allocation.facts == {'namenode': 'nn1:8020', 'yarn_nodes': 'w1'}
    assert allocation.details()['namenode'] == 'nn1:8020'
    for broken, sentence in (({**YARN, 'yarn node -list': ''}, 'no node that is RUNNING'),
                             ({**YARN, 'hdfs getconf -nnRpcAddresses': ''}, 'names no address'), ({}, 'cannot be run')):
        with pytest.raises(PlatformError, match=sentence):
            allocate('YARN', {}, nodes=1, answers=broken)
    assert fork.running_nodes('') == []


def test_debug_has_what_is_asked_for() -> None:
    allocation = allocate('DEBUG', {}, {'cores_per_node': 4}, nodes=3)
    assert (allocation.names, allocation.cores) == (('localhost',) * 3, 12)


# all


@pytest.mark.parametrize(('name', 'variable'), [
    ('CCM', 'PBS_JOBID'), ('COBALT', 'COBALT_JOBID'), ('LOADL', 'LOADL_STEP_ID'), ('LOADLEVELER', 'LOADL_STEP_ID'),
    ('LSF', 'LSB_JOBID'), ('PBSPRO', 'PBS_JOBID'), ('SGE', 'JOB_ID'), ('SLURM', 'SLURM_JOB_ID'),
    ('TORQUE', 'PBS_JOBID')])
def test_outside_of_a_job_each_names_its_variable(name: str, variable: str) -> None:
    with pytest.raises(PlatformError, match=f'the environment variable {variable} is not set'):
        allocate(name, {}, nodes=1)


def test_unknown_resource_managers_are_refused_with_all_names() -> None:
    with pytest.raises(PlatformError, match="resource_manager 'SLRUM' of the platform is unknown, installed are ALLOC"):
        find('SLRUM')


@pytest.mark.parametrize('name', sorted(RESOURCE_MANAGERS))
def test_all_that_definitions_may_name_are_there(name: str) -> None:
    assert callable(find(name).allocate)


def test_a_job_without_nodes_is_refused() -> None:
    with pytest.raises(PlatformError, match='job 1 of CCM has no nodes'):
        allocate('CCM', {'PBS_JOBID': '1'}, nodes=1, files={'~/.crayccm/nodelist': '# none\n'})

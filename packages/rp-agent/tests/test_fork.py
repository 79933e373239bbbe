"""What a pilot gets on the machine that its agent runs on."""

from __future__ import annotations

from typing import Any

import pytest

from rp_agent.resource_manager import machine
from rp_agent.resource_manager.base import Allocation, Request
from rp_agent.resource_manager.system import System
from rp_agent.resource_manager.systems import fork
from rp_api.errors import PlatformError, ResourceError
from rp_api.resources import NodeList
from rp_api.wire import codec

FAKE = {'fake_resources': True, 'cores_per_node': 42, 'gpus_per_node': 6, 'mem_per_node': 500, 'lfs_size_per_node': 9}


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores, two GPUs, 8 GB."""
    monkeypatch.setattr(machine, 'usable_cores', lambda: 4)
    monkeypatch.setattr(machine, 'usable_gpus', lambda environ: 2)
    monkeypatch.setattr(machine, 'usable_memory', lambda: 8192)
    monkeypatch.delenv('RADICAL_SMT', raising=False)


def allocate(platform: dict[str, Any] | None = None, nodes: int = 0, cores: int = 0, gpus: int = 0) -> Allocation:
    return fork.allocate(Request(nodes, cores, gpus), platform or {})


def test_a_node_is_the_whole_machine() -> None:
    assert allocate(nodes=1) == Allocation(('localhost',), 4, 2, 8192, 0)


def test_a_pilot_that_asks_for_cores_gets_just_these() -> None:
    assert allocate(cores=3) == Allocation(('localhost',), 3, 0, 8192, 0)
    assert allocate(cores=1, gpus=2) == Allocation(('localhost',), 1, 2, 8192, 0)


def test_a_pilot_that_asks_for_gpus_alone_gets_all_cores() -> None:
    assert allocate(gpus=1) == Allocation(('localhost',), 4, 1, 8192, 0)


@pytest.mark.parametrize(('wanted', 'sentence'), [
    ({'cores': 5}, 'cores=5 of the pilot description is more than the 4'),
    ({'gpus': 3, 'cores': 1}, 'gpus=3 of the pilot description is more than the 2'),
    ({'nodes': 2}, 'nodes=2 of the pilot description is more than the 1')])
def test_more_than_there_is_is_refused(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ResourceError, match=sentence):
        allocate(**wanted)


@pytest.mark.parametrize('platform', [{}, {'fake_resources': True}, FAKE])
@pytest.mark.parametrize(('name', 'value', 'names'), [
    ('CUDA_VISIBLE_DEVICES', '7', ('7',)), ('CUDA_VISIBLE_DEVICES', '', ()), ('CUDA_VISIBLE_DEVICES', '-1', ()),
    ('ROCR_VISIBLE_DEVICES', 'NoDevFiles', ()), ('HIP_VISIBLE_DEVICES', '3', ('3',)),
    ('ZE_AFFINITY_MASK', '1', ('1',))])
def test_gpus_that_the_environment_hides(platform: dict[str, Any], name: str, value: str,
                                         names: tuple[str, ...]) -> None:
    seen = len(names)
    refused = (f'gpus={seen + 1} of the pilot description is more than the {seen} that this machine has '
               rf'\(with {name}={value} in the environment')
    assert fork.allocate(Request(0, 1, seen), platform, {name: value}).gpu_ids == names
    with pytest.raises(ResourceError, match=refused):
        fork.allocate(Request(0, 1, seen + 1), platform, {name: value})
    assert fork.allocate(Request(1, 0, 0), platform, {name: value}).gpus_per_node == seen


def test_the_platform_definition_knows_better_than_the_machine() -> None:
    assert allocate({'cores_per_node': 3, 'gpus_per_node': 1, 'mem_per_node': 10}, nodes=1) == Allocation(
        ('localhost',), 3, 1, 10, 0)
    with pytest.raises(ResourceError, match='cores=3'):
        allocate({'cores_per_node': 2}, cores=3)


def test_fake_resources_may_be_more_than_there_is() -> None:
    assert allocate(FAKE, nodes=3) == Allocation(('localhost',) * 3, 42, 6, 500, 9)
    assert allocate({'fake_resources': True}, cores=1000, gpus=10) == Allocation(('localhost',), 1000, 10, 8192, 0)


@pytest.mark.parametrize(('wanted', 'nodes'), [
    ({'cores': 1}, 1), ({'cores': 42}, 1), ({'cores': 43}, 2), ({'cores': 1000, 'gpus': 10}, 24),
    ({'cores': 4, 'gpus': 13}, 3), ({'gpus': 6}, 1), ({}, 1)])
def test_nodes_of_the_definition_are_handed_out_whole(wanted: dict[str, Any], nodes: int) -> None:
    assert allocate(FAKE, **wanted) == Allocation(('localhost',) * nodes, 42, 6, 500, 9)


def test_gpus_of_nodes_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pilot gets those that it requests, on the nodes that its cores need."""
    monkeypatch.setattr(machine, 'usable_gpus', lambda environ: 0)
    platform = {'fake_resources': True, 'cores_per_node': 4}
    assert allocate(platform, cores=6, gpus=3) == Allocation(('localhost',) * 2, 4, 2, 8192, 0)
    assert allocate(platform, cores=6) == Allocation(('localhost',) * 2, 4, 0, 8192, 0)


@pytest.mark.parametrize(('platform', 'wanted', 'shares'), [
    (FAKE, Request(0, 1, 0), True), ({'fake_resources': True}, Request(0, 5, 0), True), ({}, Request(0, 4, 0), False),
    ({}, Request(1, 0, 0), False)])
def test_a_pilot_that_is_larger_than_the_machine_says_so(platform: dict[str, Any], wanted: Request,
                                                         shares: bool) -> None:
    hint = fork.ForkNodes().allocate(wanted, platform, System({})).hint
    assert ('has 4 usable cores and the pilot has more' in hint) is shares
    assert bool(hint) is shares


def test_an_allocation_becomes_a_node_list() -> None:
    allocation = allocate(FAKE, nodes=2)
    nodes = NodeList(nodes=allocation.node_list())
    assert (nodes.uniform, nodes.cores_per_node, nodes.gpus_per_node, nodes.mem_per_node, nodes.lfs_per_node) == (
        True, 42, 6, 500, 9)
    assert [(node.index, node.name) for node in nodes.nodes] == [(0, 'localhost'), (1, 'localhost')]
    nodes.check()
    assert nodes.find_slots({'n_cores': 42, 'n_gpus': 6, 'mem': 500, 'lfs': 9}, n_slots=2)


def test_the_application_gets_to_see_what_there_is() -> None:
    details = allocate(FAKE, nodes=2).details()
    assert details == codec.unpack(codec.pack(details)), 'plain data'
    assert len(details.pop('node_list')) == 2
    assert details == {'cores_per_node': 42, 'gpus_per_node': 6, 'mem_per_node': 500, 'lfs_per_node': 9,
                       'threads_per_core': 1, 'requested_nodes': 2, 'agent_node_list': [], 'cores': 84, 'gpus': 12}


# what the platform definition says about the architecture


def test_blocked_cores_and_gpus_are_left_to_the_system() -> None:
    allocation = allocate({'system_architecture': {'blocked_cores': [2, 0, 9], 'blocked_gpus': [1]}}, nodes=1)
    assert (allocation.cores_per_node, allocation.gpus_per_node) == (2, 1)
    assert (allocation.blocked_cores, allocation.blocked_gpus) == ((0, 2), ())
    node, = allocation.node_list()
    assert [core['occupation'] for core in node['cores']] == [None, 0.0, None, 0.0]
    assert [gpu['occupation'] for gpu in node['gpus']] == [0.0]
    assert allocation.details()['cores'] == 2
    NodeList(nodes=allocation.node_list()).check()


def test_a_pilot_that_asks_for_cores_gets_as_many_besides_the_blocked_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, 'usable_cores', lambda: 8)
    platform = {'system_architecture': {'blocked_cores': [0, 1, 4, 7]}}
    assert allocate(platform, cores=3).node(0)['cores'] == [
        {'index': index, 'occupation': part} for index, part in enumerate([None, None, 0.0, 0.0, None, 0.0])]
    assert allocate(platform, cores=4).blocked_cores == (0, 1, 4)
    with pytest.raises(ResourceError, match='cores=5 of the pilot description is more than the 4'):
        allocate(platform, cores=5)
    fake = allocate(platform | {'fake_resources': True}, cores=6)
    assert len(fake.node(0)['cores']) == 10
    whole = allocate(platform | {'fake_resources': True, 'cores_per_node': 8}, cores=6)
    assert (whole.cores, len(whole.names), len(whole.node(1)['cores'])) == (8, 2, 7)


def test_a_node_without_any_core_left_is_refused() -> None:
    with pytest.raises(PlatformError, match='blocks all 4 cores'):
        allocate({'system_architecture': {'blocked_cores': [0, 1, 2, 3]}}, nodes=1)


def test_cores_are_hardware_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = {'cores_per_node': 3, 'system_architecture': {'smt': 2, 'blocked_cores': [0, 3]}}
    allocation = allocate(platform, nodes=1)
    assert (allocation.cores_per_node, allocation.threads_per_core) == (4, 2)
    assert allocation.details()['threads_per_core'] == 2
    monkeypatch.setenv('RADICAL_SMT', '4')
    assert allocate(platform, nodes=1).cores_per_node == 10
    monkeypatch.setenv('RADICAL_SMT', 'many')
    with pytest.raises(PlatformError, match="at least 1, not 'many'"):
        allocate(platform, nodes=1)


def test_numa_domains_are_those_of_the_definition() -> None:
    domains = {'1': {'cores': [2, 3, 9], 'gpus': [1]}, '0': {'cores': [0, 1]}, '10': {'cores': [4]}}
    assert allocate({'numa_domain_map': domains}, nodes=1).domains == (((0, 1), ()), ((2, 3), (1,)), ((), ()))
    assert allocate({'numa_domain_map': domains}, cores=3).domains == (((0, 1), ()), ((2,), ()), ((), ()))


@pytest.mark.parametrize('value', ['0', [-1], ['x']])
def test_blocked_devices_must_be_indices(value: Any) -> None:
    with pytest.raises(PlatformError, match=r'system_architecture\.blocked_cores must be a list of indices'):
        allocate({'system_architecture': {'blocked_cores': value}}, nodes=1)


def test_tasks_are_bound_where_the_pilot_has_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may use the rest of the machine, and would be bound to the same cores."""
    monkeypatch.setattr('os.sched_getaffinity', lambda pid: {9, 4, 5, 6})
    assert fork.allocate(Request(1, 0, 0), {}).cpus == (4, 5, 6, 9)
    assert fork.allocate(Request(0, 4, 0), {}).cpus == (4, 5, 6, 9)
    assert fork.allocate(Request(0, 3, 0), {}).cpus == ()
    assert fork.allocate(Request(0, 5, 0), {'fake_resources': True}).cpus == ()
    assert fork.allocate(Request(1, 0, 0), {'fake_resources': True}).cpus == (4, 5, 6, 9)
    assert fork.allocate(Request(2, 0, 0), {'fake_resources': True}).cpus == (), 'two nodes on the same CPUs'
    assert fork.allocate(Request(1, 0, 0), {'fake_resources': True, 'cores_per_node': 4}).cpus == ()
    assert fork.allocate(Request(1, 0, 0), {'cores_per_node': 4}).cpus == (4, 5, 6, 9)
    blocked = {'system_architecture': {'blocked_cores': [0]}}
    assert fork.allocate(Request(1, 0, 0), blocked).cpus == (4, 5, 6, 9)

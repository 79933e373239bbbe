"""How processors and GPUs lie: made-up /sys trees, and what this machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from resource_manager_support import write

from rp_agent.resource_manager import binding


@pytest.fixture
def two_sockets(tmp_path: Path) -> Path:
    """Two sockets of two cores of two threads each, with an NVIDIA GPU at each."""
    files = {f'sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list': f'{cpu % 4},{cpu % 4 + 4}\n'
             for cpu in range(8)}
    for name, text in (('node0/cpulist', '0-1,4-5'), ('node1/cpulist', '2-3,6-7'), ('node2/cpulist', ''),
                       ('possible', '0-2')):
        files[f'sys/devices/system/node/{name}'] = f'{text}\n'
    for minor, (address, node) in enumerate([('0000:81:00.0', 1), ('0000:01:00.0', 0)]):
        files[f'proc/driver/nvidia/gpus/{address}/information'] = f'Model: \t NVIDIA A100\nDevice Minor: \t {minor}\n'
        files[f'sys/bus/pci/devices/{address}/numa_node'] = f'{node}\n'
    return write(tmp_path, files)


def test_numa_nodes_without_cpus_are_left_out(two_sockets: Path) -> None:
    assert binding.numa_nodes(two_sockets) == {0: [0, 1, 4, 5], 1: [2, 3, 6, 7]}


def test_threads_of_cores(two_sockets: Path) -> None:
    assert binding.threads_of_cores(range(8), 1, two_sockets) == [0, 1, 2, 3]
    assert binding.threads_of_cores(range(8), 2, two_sockets) == list(range(8))
    assert binding.threads_of_cores({5, 1, 6}, 1, two_sockets) == [1, 6]


def test_where_gpus_are(two_sockets: Path) -> None:
    assert binding.gpu_numa_nodes(two_sockets) == [1, 0]


def test_where_gpus_of_amd_are(tmp_path: Path) -> None:
    nodes = 'sys/class/kfd/kfd/topology/nodes'
    write(tmp_path, {
        f'{nodes}/0/properties': 'cpu_cores_count 64\nsimd_count 0\nlocation_id 0\n',
        f'{nodes}/10/properties': f'simd_count 440\nlocation_id {0xd6 << 8}\ndomain 0\n',
        f'{nodes}/4/properties': f'simd_count 440\nlocation_id {0xc1 << 8}\ndomain 0\n',
        'sys/bus/pci/devices/0000:c1:00.0/numa_node': '3\n', 'sys/bus/pci/devices/0000:d6:00.0/numa_node': '-1\n'})
    assert binding.gpu_numa_nodes(tmp_path) == [3, -1]


def test_nothing_is_known_of_an_empty_tree(tmp_path: Path) -> None:
    assert (binding.numa_nodes(tmp_path), binding.gpu_numa_nodes(tmp_path)) == ({}, [])
    assert binding.threads_of_cores([1, 0], 1, tmp_path) == [0, 1]


def test_this_machine_has_nodes_with_its_cpus() -> None:
    cpus = {cpu for members in binding.numa_nodes().values() for cpu in members}
    assert not cpus or os.sched_getaffinity(0) <= cpus


def test_lists_of_cpus() -> None:
    assert binding.cpu_list('0-2,5,7-8\n') == [0, 1, 2, 5, 7, 8]
    assert binding.cpu_list('\n') == []


# binding


@pytest.fixture
def on_two_sockets(two_sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ('numa_nodes', 'gpu_numa_nodes'):
        found = getattr(binding, name)(two_sockets)
        monkeypatch.setattr(binding, name, lambda found=found: found)
    threads = binding.threads_of_cores
    monkeypatch.setattr(binding, 'threads_of_cores', lambda cpus, count: threads(cpus, count, two_sockets))
    monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: set(range(8)))


@pytest.mark.usefixtures('on_two_sockets')
def test_threads_and_domains() -> None:
    assert binding.of_this_host(8, 2, (), 2) == (
        tuple(range(8)), (((0, 1, 4, 5), (1,)), ((2, 3, 6, 7), (0,))))


@pytest.mark.usefixtures('on_two_sockets')
def test_cores_are_their_first_threads() -> None:
    assert binding.of_this_host(4, 1, (), 1) == ((0, 1, 2, 3), (((0, 1), ()), ((2, 3), ())))


@pytest.mark.usefixtures('on_two_sockets')
def test_a_pilot_with_a_part_of_the_machine_is_not_bound() -> None:
    assert binding.of_this_host(3, 2, (), 1) == ((), ())
    assert binding.of_this_host(16, 2, (), 2) == ((), ())


@pytest.mark.usefixtures('on_two_sockets')
def test_the_system_may_have_taken_out_what_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: {1, 2, 3, 5, 6, 7})
    assert binding.of_this_host(8, 0, (0, 4), 2)[0] == tuple(range(8))
    assert binding.of_this_host(4, 0, (0,), 1)[0] == (0, 1, 2, 3)


def test_names_of_gpus() -> None:
    assert binding.gpu_ids({'CUDA_VISIBLE_DEVICES': '2,3'}, 2) == ('2', '3')
    assert binding.gpu_ids({'CUDA_VISIBLE_DEVICES': '2,3'}, 1) == ('2',)
    assert binding.gpu_ids({'CUDA_VISIBLE_DEVICES': '2,3'}, 6) == ()
    assert binding.gpu_ids({}, 2) == ()

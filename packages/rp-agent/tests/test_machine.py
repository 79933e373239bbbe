"""What of a machine may be used: held against made-up /proc, /sys and /dev trees, and against the real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from resource_manager_support import write

from rp_agent.resource_manager import machine

pytestmark = pytest.mark.timeout(30)

MB = 2**20


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: set(range(8)))


@pytest.fixture
def much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, 'sysconf', {'SC_PAGE_SIZE': 4096, 'SC_PHYS_PAGES': 64 * 1024 * MB // 4096}.__getitem__)


# version 2: one hierarchy


def version_2(root: Path, path: str, **limits: str) -> Path:
    """A control group tree; limits are named `level_controller_file`, level 0 is the top."""
    files = {'proc/self/cgroup': f'0::{path}\n'}
    parts = [part for part in path.split('/') if part]
    for name, text in limits.items():
        level, controller, file = name.lstrip('l').split('_')
        files['/'.join(['sys/fs/cgroup', *parts[:int(level)], f'{controller}.{file}'])] = text + '\n'
    return write(root, files)


@pytest.mark.parametrize(('limits', 'quota'), [
    ({}, None), ({'l0_cpu_max': 'max 100000'}, None), ({'l2_cpu_max': '150000 100000'}, 1.5),
    ({'l1_cpu_max': '200000 100000', 'l2_cpu_max': '400000 100000'}, 2.0),
    ({'l1_cpu_max': 'max 100000', 'l2_cpu_max': '50000 100000'}, 0.5), ({'l2_cpu_max': ''}, None)])
def test_the_tightest_cpu_limit_counts(tmp_path: Path, limits: dict[str, str], quota: float | None) -> None:
    assert machine.cpu_quota(version_2(tmp_path, '/user.slice/session.scope', **limits)) == quota


def test_in_a_container_the_top_is_its_own_group(tmp_path: Path) -> None:
    assert machine.cpu_quota(version_2(tmp_path, '/', l0_cpu_max='300000 100000')) == 3.0


def test_a_group_outside_of_what_is_mounted_is_no_problem(tmp_path: Path) -> None:
    root = version_2(tmp_path, '/../../outside')
    write(root, {'sys/fs/cgroup/cpu.max': '100000 100000\n'})
    assert machine.cpu_quota(root) == 1.0


def test_without_proc_there_is_no_limit(tmp_path: Path) -> None:
    assert machine.cpu_quota(tmp_path) is None


# version 1: one hierarchy for each controller

VERSION_1 = ('12:pids:/docker/c0\n7:memory:/docker/c0\n4:cpu,cpuacct:/docker/c0\n3:cpuset:/other\n'
             '1:name=systemd:/docker/c0\n0::/system.slice\n')


def version_1(root: Path, path: str, quota: str, period: str, memory: str = '9223372036854771712') -> Path:
    return write(root, {
        'proc/self/cgroup': VERSION_1,
        f'sys/fs/cgroup/cpu/{path}cpu.cfs_quota_us': quota + '\n',
        f'sys/fs/cgroup/cpu/{path}cpu.cfs_period_us': period + '\n',
        f'sys/fs/cgroup/memory/{path}memory.limit_in_bytes': memory + '\n'})


@pytest.mark.parametrize('path', ['docker/c0/', 'docker/', ''])
def test_the_limit_of_version_1_is_found_on_every_level(tmp_path: Path, path: str) -> None:
    """At the top, too: in a container the names in /proc are often those of the host."""
    assert machine.cpu_quota(version_1(tmp_path, path, '250000', '100000')) == 2.5


def test_version_1_without_a_limit(tmp_path: Path) -> None:
    assert machine.cpu_quota(version_1(tmp_path, '', '-1', '100000')) is None


def test_quota_and_period_of_version_1_belong_together(tmp_path: Path) -> None:
    root = version_1(tmp_path, '', '-1', '100000')
    version_1(root, 'docker/', '100000', '10000')
    version_1(root, 'docker/c0/', '20000', '10000')
    assert machine.cpu_quota(root) == 2.0


# cores


@pytest.mark.usefixtures('eight_cores')
@pytest.mark.parametrize(('quota', 'cores'), [('max', 8), ('1600000', 8), ('250000', 3), ('200000', 2), ('10000', 1)])
def test_cores_are_those_of_the_mask_within_the_limit(tmp_path: Path, quota: str, cores: int) -> None:
    assert machine.usable_cores(version_2(tmp_path, '/', l0_cpu_max=f'{quota} 100000')) == cores


def test_a_process_that_is_bound_to_a_core_has_one() -> None:
    core = min(os.sched_getaffinity(0))
    program = (f'import os; os.sched_setaffinity(0, [{core}]); from rp_agent.resource_manager import machine; '
               'print(machine.usable_cores())')
    assert subprocess.run([sys.executable, '-c', program], check=True, capture_output=True).stdout == b'1\n'


def test_this_machine_has_cores_and_memory() -> None:
    assert 1 <= machine.usable_cores() <= (os.cpu_count() or 1)
    assert machine.usable_memory() > 0


# memory


@pytest.mark.usefixtures('much_memory')
@pytest.mark.parametrize(('limits', 'memory'), [
    ({}, 64 * 1024), ({'l0_memory_max': 'max'}, 64 * 1024), ({'l1_memory_max': str(512 * MB)}, 512),
    ({'l1_memory_max': str(512 * MB), 'l2_memory_max': str(700 * MB)}, 512),
    ({'l2_memory_max': str(100 * 1024 * 1024 * MB)}, 64 * 1024)])
def test_memory_is_that_of_the_machine_within_the_limit(tmp_path: Path, limits: dict[str, str], memory: int) -> None:
    assert machine.usable_memory(version_2(tmp_path, '/a/b', **limits)) == memory


@pytest.mark.usefixtures('much_memory')
def test_memory_limit_of_version_1(tmp_path: Path) -> None:
    assert machine.usable_memory(version_1(tmp_path / 'a', 'docker/c0/', '-1', '1', str(3 * MB + 1))) == 3
    assert machine.usable_memory(version_1(tmp_path / 'b', '', '-1', '1')) == 64 * 1024


# GPUs


@pytest.mark.parametrize(('text', 'gpus'), [
    ('', 0), ('0', 1), ('0,1, 3', 3), ('-1', 0), ('NoDevFiles', 0), ('0,-1,1', 1), ('0,1,', 2),
    ('GPU-8f2e, MIG-1d2c', 2)])
@pytest.mark.parametrize('name', [
    'CUDA_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES', 'HIP_VISIBLE_DEVICES', 'ZE_AFFINITY_MASK'])
def test_the_environment_says_which_gpus_may_be_used(tmp_path: Path, name: str, text: str, gpus: int) -> None:
    write(tmp_path, {f'dev/nvidia{number}': '' for number in range(4)})
    assert machine.usable_gpus({name: text}, tmp_path) == gpus


def test_of_several_variables_those_for_other_gpus_do_not_count() -> None:
    environ = {'CUDA_VISIBLE_DEVICES': '', 'ROCR_VISIBLE_DEVICES': '2,3', 'HIP_VISIBLE_DEVICES': '0,1'}
    assert machine.visible_gpus(environ) == ('2', '3')
    assert [machine.bounded_gpus(gpus, environ) for gpus in (1, 2, 8)] == [1, 2, 2]
    assert machine.bounded_gpus(8, {}) == 8


def test_nvidia_gpus_are_counted(tmp_path: Path) -> None:
    write(tmp_path, {f'dev/{name}': '' for name in ('nvidia0', 'nvidia11', 'nvidiactl', 'nvidia-uvm', 'nvidia-caps/x')})
    assert machine.usable_gpus({}, tmp_path) == 2


def test_amd_gpus_are_counted(tmp_path: Path) -> None:
    """The topology has a node for each processor, too; those have no SIMD units."""
    nodes = 'sys/class/kfd/kfd/topology/nodes'
    write(tmp_path, {f'{nodes}/{number}/properties': f'cpu_cores_count 8\nsimd_count {simds}\nmem_banks_count 1\n'
                     for number, simds in enumerate((0, 440, 0, 304))})
    assert machine.usable_gpus({}, tmp_path) == 2


def test_a_machine_without_gpus_has_none(tmp_path: Path) -> None:
    assert machine.usable_gpus({}, tmp_path) == 0

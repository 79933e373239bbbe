"""Which launch methods a pilot has, and which of them gets a job."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from launch_method_support import METHODS, SETTING, on
from programs_support import program

from rp_agent.launch_method import find
from rp_agent.launch_method.base import Setting
from rp_agent.launch_method.find import Methods, choose
from rp_agent.launch_method.single import Fork
from rp_agent.launch_method.system import LaunchSystem
from rp_agent.lookup import LaunchRefused
from rp_agent.resource_manager.base import Allocation
from rp_api.errors import PlatformError

FEW = Methods((METHODS['FORK'], METHODS['SSH'], METHODS['SRUN']))


def test_the_first_that_can_is_chosen() -> None:
    assert choose(on(0), FEW).NAME == 'FORK'
    assert choose(on(1), FEW).NAME == 'SSH'
    assert choose(on(0, 0), FEW).NAME == 'SRUN'


def test_without_one_each_tells_why() -> None:
    methods = Methods((METHODS['FORK'], METHODS['RSH']), {'MPIRUN': 'mpirun is not there'})
    with pytest.raises(LaunchRefused) as caught:
        choose(on(0, 1), methods)
    assert str(caught.value) == (
        'no launch method of the platform can start task.000000 (2 rank(s) on 2 node(s), MPI): FORK: it starts one '
        'process, not 2 ranks; RSH: it starts one process, not 2 ranks; MPIRUN: mpirun is not there')


def test_a_method_of_a_spawner_is_for_that_one() -> None:
    methods = Methods((METHODS['DRAGON'],))
    with pytest.raises(LaunchRefused, match='DRAGON: it is for platforms with agent_spawner DRAGON'):
        choose(on(0), methods)
    assert choose(on(0), methods, 'DRAGON').NAME == 'DRAGON'


def test_an_unknown_name() -> None:
    with pytest.raises(PlatformError, match="launch method 'SRUM' of the platform is unknown, installed are APRUN, "):
        find.find('SRUM')


def test_a_method_of_another_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = EntryPoint('MINE', 'rp_agent.launch_method.single:Fork', find.GROUP)
    monkeypatch.setattr('importlib.metadata.entry_points', lambda: EntryPoints([ours]))
    assert find.find('MINE') is Fork


def test_what_is_there_is_found_and_what_is_not_has_a_reason(tmp_path: Path) -> None:
    program(tmp_path / 'ssh', 'exit 0')
    platform = {'launch_methods': {'order': ['SRUN', 'SSH', 'NEW'], 'SSH': {'options': {'arguments': ['-v']}}}}
    methods = find.detect(platform, SETTING, LaunchSystem({'PATH': str(tmp_path)}))
    assert [method.NAME for method in methods.found] == ['SSH']
    assert '-v' in methods.found[0].command(on(0), ['true']).argv
    assert methods.missing['SRUN'] == f'srun is not in PATH ({tmp_path})'
    assert methods.missing['NEW'].startswith("launch method 'NEW' of the platform is unknown")


def test_commands_before_make_the_environment_of_a_launcher(tmp_path: Path) -> None:
    program(tmp_path / 'hidden/ssh', 'exit 0')
    before = {'pre_exec_cached': [f'PATH={tmp_path}/hidden:$PATH'], 'pre_exec': ['export LATER="a b"  # and a comment']}
    method = find.detect_one('SSH', before, SETTING, LaunchSystem({'PATH': '/usr/bin:/bin', 'KEPT': '1'}))
    assert method.program.path == f'{tmp_path}/hidden/ssh'
    assert method.environment == {'PATH': f'{tmp_path}/hidden:/usr/bin:/bin', 'LATER': 'a b'}


def test_commands_before_that_fail() -> None:
    with pytest.raises(PlatformError) as caught:
        find.detect_one('SSH', {'pre_exec': ['echo not there; false']}, SETTING,
                        LaunchSystem({'PATH': '/usr/bin:/bin'}))
    assert str(caught.value) == ('pre_exec of the launch method failed with exit code 1: not there\n'
                                 '(echo not there; false)')


def test_the_setting_of_a_pilot() -> None:
    allocation = Allocation(('a', 'b'), 8, 2, 0, 0, threads_per_core=2, facts={'loadl_bg_block': 'R0'})
    assert Setting.of(allocation, {}) == Setting(('a', 'b'), 8, 2, 2, facts={'loadl_bg_block': 'R0'})
    exclusive = Setting.of(allocation, {'system_architecture': {'exclusive': True}})
    assert exclusive == replace(Setting.of(allocation, {}), exclusive=True)

"""A pilot over hosts of their own networks: the agent starts a sub-agent on the other one by ssh."""

from __future__ import annotations

from pathlib import Path

from batch_pilots import platform
from conftest import processes_with, wait_until
from pilot_run import run
from remote_slurm import Remote

from rp_profiling.read.profile import read_profile


def test_tasks_run_on_both_hosts(remote: Remote, base: Path) -> None:
    """The agent is started inside of a job, as from an interactive one."""
    nodes = base / 'nodes'
    nodes.write_text('h1\nh1\nh2\nh2\n')
    environ = remote.hosts.environ | platform(
        base, 'fork://localhost/', 'TORQUE', cores_per_node=2, launch_methods={'order': ['SSH'], 'SSH': {}})
    told = run(environ | {'PBS_JOBID': '1', 'PBS_NODEFILE': str(nodes)}, base, remote.prefix, 'cores=4')
    assert told['state'] == 'PMGR_ACTIVE', told
    assert [state for state, _ in told['tasks']] == ['DONE'] * 4, told
    assert sorted(output.split()[0] for _, output in told['tasks']) == ['h1', 'h1', 'h2', 'h2']


def test_a_host_that_is_not_reached(remote: Remote, base: Path) -> None:
    """Its tasks were not started, so that they run on the other one."""
    nodes = base / 'nodes'
    nodes.write_text('h1\nh1\nh9\nh9\n')
    environ = remote.hosts.environ | platform(
        base, 'fork://localhost/', 'TORQUE', cores_per_node=2, launch_methods={'order': ['SSH'], 'SSH': {}})
    told = run(environ | {'PBS_JOBID': '1', 'PBS_NODEFILE': str(nodes)}, base, remote.prefix, 'cores=4')
    assert told['state'] == 'PMGR_ACTIVE', told
    assert [(state, output.split()[0]) for state, output in told['tasks']] == [('DONE', 'h1')] * 4
    (err,) = Path(told['sandbox']).glob('agent_n.err')
    assert 'h9' in err.read_text()


def test_components_on_a_host_of_their_own(remote: Remote, base: Path) -> None:
    """h2 has a stager and the executor for tasks on several hosts; those on h1 start there, all the same."""
    nodes = base / 'nodes'
    nodes.write_text('h1\nh1\nh2\nh2\n')
    environ = remote.hosts.environ | platform(
        base, 'fork://localhost/', 'TORQUE', cores_per_node=2, launch_methods={'order': ['SSH'], 'SSH': {}},
        agent_config={'agents': {'agent_1': {'target': 'node', 'components': {
            'agent_staging_output': {}, 'agent_executing': {}}}}})
    told = run(environ | {'PBS_JOBID': '1', 'PBS_NODEFILE': str(nodes)}, base, remote.prefix, 'cores=4')
    assert told['state'] == 'PMGR_ACTIVE', told
    assert [(state, output.split()[0]) for state, output in told['tasks']] == [('DONE', 'h1')] * 4, told
    traces = {path.stem: {row.uid for row in read_profile(path) if row.uid.startswith('task.')}
              for path in Path(told['sandbox']).glob('agent_*.prof')}
    assert len(traces['agent_staging_output.0000']) == 4
    assert not traces['agent_executing.0000']   # for tasks on several hosts
    assert len(traces['agent_executing.0001']) == 4


def test_the_agent_moves_to_the_first_node(remote: Remote, base: Path) -> None:
    """The job starts on h1, which is not one of its nodes; nothing of the agent is left there but the launcher."""
    nodes = base / 'nodes'
    nodes.write_text('h2\nh2\n')
    environ = remote.hosts.environ | platform(
        base, 'fork://localhost/', 'TORQUE', cores_per_node=2, launch_methods={'order': ['SSH'], 'SSH': {}},
        agent_config={'target': 'node'})
    told = run(environ | {'PBS_JOBID': '1', 'PBS_NODEFILE': str(nodes)}, base, remote.prefix, 'cores=2')
    assert told['state'] == 'PMGR_ACTIVE', told
    assert [(state, output.split()[0]) for state, output in told['tasks']] == [('DONE', 'h2')] * 4, told
    (trace,) = Path(told['sandbox']).glob('agent_0.prof')
    assert [row.msg for row in read_profile(trace) if row.event == 'hostname'] == ['h2']
    assert not list(Path(told['sandbox']).glob('*.cfg'))
    wait_until(lambda: not processes_with(told['sandbox']))


def test_the_agent_cannot_move(remote: Remote, base: Path) -> None:
    nodes = base / 'nodes'
    nodes.write_text('h9\n')
    environ = remote.hosts.environ | platform(
        base, 'fork://localhost/', 'TORQUE', launch_methods={'order': ['SSH'], 'SSH': {}},
        agent_config={'target': 'node'})
    told = run(environ | {'PBS_JOBID': '1', 'PBS_NODEFILE': str(nodes)}, base, remote.prefix, 'cores=1')
    assert told['state'] == 'FAILED', told
    assert 'the agent on h9, launched by SSH, ended with exit code 255; see ' in told['exception'] + told['detail']

"""Applications inside of an allocation of a real Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SlurmCluster

from rp_profiling.read.profile import read_profile

APPLICATION = '''
import json, sys
import radical.pilot as rp
size, count, description = json.loads(sys.argv[1])
session = rp.Session()
pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
pilot = pmgr.submit_pilots(rp.PilotDescription({'runtime': 5, 'exit_on_error': False} | size))
tmgr.add_pilots(pilot)
pilot.wait([rp.PMGR_ACTIVE, *rp.FINAL], timeout=60)
found = {'state': pilot.state, 'exception': pilot.exception, 'log': pilot.log}
if pilot.state == rp.PMGR_ACTIVE:
    details = pilot.resource_details
    tasks = tmgr.submit_tasks([rp.TaskDescription(description) for _ in range(count)])
    tmgr.wait_tasks(timeout=90)
    found |= {'nodes': [node['name'] for node in details['node_list']], 'cores': details['cores'],
              'gpus': details['gpus'], 'states': sorted({task.state for task in tasks}),
              'errors': [str(task.exception) for task in tasks if task.exception],
              'outputs': [task.stdout.split() for task in tasks]}
session.close()
json.dump(found, open('found.json', 'w'))
'''
NODE = {'executable': '/bin/sh', 'arguments': ['-c', 'echo $SLURMD_NODENAME']}


def run(slurm: SlurmCluster, base: Path, options: list[str], size: dict[str, Any], *, count: int = 0,
        description: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    """What an application finds that runs in an allocation with these options, and what it says on standard error."""
    (base / 'application.py').write_text(APPLICATION)
    arguments = json.dumps([size, count, description or NODE])
    environ = {**os.environ, **slurm.environ, 'HOME': str(base), 'PWD': str(base)}
    done = subprocess.run(['salloc', '--quiet', *options, sys.executable, 'application.py', arguments], cwd=base,
                          env=environ, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((base / 'found.json').read_text())
    return found, done.stderr


def test_all_nodes_are_used(slurm: SlurmCluster, base: Path) -> None:
    """A pilot without a size has all nodes and all cores, and single-node and multi-node tasks run on them."""
    ranks = {'executable': '/bin/sh', 'arguments': ['-c', 'echo $SLURMD_NODENAME'], 'ranks': 3, 'cores_per_rank': 8}
    found, _ = run(slurm, base, ['--nodes=3', '--exclusive'], {'resource': 'local.allocation'}, count=2,
                   description=ranks)
    assert found['state'] == 'PMGR_ACTIVE', found
    assert (len(found['nodes']), found['cores']) == (3, 24)
    assert found['states'] == ['DONE'], found['errors']
    assert [sorted(output) for output in found['outputs']] == [sorted(found['nodes'])] * 2


def test_a_size_takes_a_part(slurm: SlurmCluster, base: Path) -> None:
    found, _ = run(slurm, base, ['--nodes=2', '--exclusive'], {'resource': 'local.allocation', 'nodes': 1}, count=2)
    assert (found['state'], len(found['nodes']), found['states']) == ('PMGR_ACTIVE', 1, ['DONE']), found


@pytest.mark.parametrize(('options', 'gpus'), [(['--gpus-per-node=1'], 2), ([], 0)])
def test_only_granted_gpus(slurm: SlurmCluster, base: Path, options: list[str], gpus: int) -> None:
    """The nodes have two GPUs each, of which a job has those that it has asked for."""
    found, _ = run(slurm, base, ['--nodes=2', '--ntasks=2', *options], {'resource': 'local.allocation'})
    assert (found['state'], found['gpus']) == ('PMGR_ACTIVE', gpus), found


def test_the_local_machine_says_that_there_is_more(slurm: SlurmCluster, base: Path) -> None:
    found, said = run(slurm, base, ['--nodes=2', '--exclusive'], {'resource': 'local.exact', 'cores': 1}, count=1,
                      description={'executable': '/bin/true'})
    (notice,) = found['log']
    assert 'with 2 nodes, of which this pilot uses 1: the resource local.allocation uses all of them' in notice
    assert notice in said
    assert found['states'] == ['DONE']


def test_the_agent_moves_to_the_first_node(slurm: SlurmCluster, base: Path) -> None:
    """The application runs where the allocation was requested, the agent on its first node, stagers on the last one."""
    stagers = {'target': 'node', 'components': {'agent_staging_input': {}, 'agent_staging_output': {}}}
    ranks = {'executable': '/bin/sh', 'arguments': ['-c', 'echo $SLURMD_NODENAME'], 'ranks': 2, 'cores_per_rank': 8}
    found, _ = run(slurm, base, ['--nodes=3', '--exclusive'], {
        'resource': 'local.allocation', '_config': {'target': 'node', 'agents': {'stagers': stagers}}}, count=2,
        description=ranks)
    assert found['state'] == 'PMGR_ACTIVE', found
    assert (len(found['nodes']), found['cores'], found['states']) == (2, 16, ['DONE']), found
    assert [sorted(output) for output in found['outputs']] == [sorted(found['nodes'])] * 2
    (sandbox,) = {path.parent for path in base.rglob('agent_0.prof')}
    nodes = {row.msg for row in read_profile(sandbox / 'agent_0.prof') if row.event == 'sub_agent_stop'}
    assert nodes == {'agent_n.0001', 'stagers'}   # the agent needs none on its own node

"""Pilots on the local machine as other software requests them: whole nodes, or exactly the requested cores."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until

import radical.pilot as rp

SIZES = '''
import radical.pilot as rp

with rp.Session() as session:
    pmgr = rp.PilotManager(session)
    pilots = pmgr.submit_pilots([rp.PilotDescription({'resource': f'local.{name}', 'runtime': 5, **size})
                                 for name, size in (('localhost', {'nodes': 1}), ('localhost', {'cores': 12}),
                                                    ('localhost_anaconda', {'cores': 1, 'gpus': 2}),
                                                    ('exact', {'cores': 1}))])
    pmgr.wait_pilots(state=rp.PMGR_ACTIVE, timeout=30)
    for pilot in pilots:
        details = pilot.resource_details
        print(len(details['node_list']), details['cores'], details['gpus'], details['mem_per_node'] == 4096,
              sum('usable cores' in line for line in pilot.log))
'''


def test_sizes_and_the_warning(tmp_path: Path) -> None:
    """A script without a log configuration prints once that pilots are larger than the machine."""
    environ = dict(os.environ) | {'HOME': str(tmp_path), 'RADICAL_BASE': str(tmp_path)}
    cpu = min(os.sched_getaffinity(0))   # the machine has one core, so the smallest pilot is as large
    done = subprocess.run([sys.executable, '-W', 'error', '-c', SIZES], cwd=tmp_path, env=environ, text=True,
                          capture_output=True, timeout=50, check=False,
                          preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ['1 8 1 True 1', '2 16 2 True 1', '2 16 2 True 1', '1 1 0 False 0']
    (line,) = done.stderr.splitlines()
    assert ' has 1 usable cores and the pilot has more, so its tasks share them' in line
    wait_until(lambda: not processes_with(str(tmp_path)), what='the end of all that it started')


def test_whole_nodes_and_exact_ones(session: rp.Session, base: Path) -> None:
    """Parsl wants a master with a core and a worker with four of `cores=4`, asyncflow a GPU of `nodes=1`.

    On a pilot of four cores, that worker has no room beside its master, and fails.
    """
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilots = whole, exact = pmgr.submit_pilots([
        pilot_description(base, resource='local.localhost', access_schema='local', cores=4),
        pilot_description(base, cores=4)])
    tmgr.add_pilots(pilots)
    with_gpu = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true', 'ranks': 1, 'gpus_per_rank': 1,
                                                      'pilot': whole.uid}) for _ in range(2)])
    masters = [pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER, 'ranks': 1, 'cores_per_rank': 1}))[0]
               for pilot in pilots]
    refused = [master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'cores_per_rank': 4}))[0]
               for master in masters][1]
    call, = masters[0].submit_tasks([rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '3 * 4'})])
    tmgr.wait_tasks([task.uid for task in (call, refused, *with_gpu)], timeout=45)
    assert (call.state, call.return_value) == (rp.DONE, 12), call.exception
    assert [task.state for task in with_gpu] == [rp.DONE] * 2, with_gpu[0].exception
    assert [[gpu['index'] for slot in task.slots or () for gpu in slot['gpus']] for task in with_gpu] == [[0], [0]]
    assert refused.state == rp.FAILED
    assert refused.exception == (
        f'{refused.uid} can never run on {exact.uid}: 1 ranks of 4 cores are requested, and the 1 node(s) of the pilot '
        f'hold 0 beside its master {masters[1].uid}, which leaves 3 of 4 cores')


def test_definitions_that_the_application_changes(session: rp.Session, base: Path) -> None:
    """Agents get the definition as it was when their pilot was submitted."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    config = session.get_resource_config('local.exact')
    pilots = [pmgr.submit_pilots(pilot_description(base, cores=1))]
    for label, cores in ('my.machine', 3), ('local.exact', 5):
        config = rp.ResourceConfig(label, config)
        config.cores_per_node = cores
        config.mem_per_node = 100 * cores
        session.add_resource_config(config)
        config.cores_per_node = 100
        pilots.append(pmgr.submit_pilots(pilot_description(base, resource=label, cores=1)))
    with pytest.raises(ValueError, match=r'my\.machine: resource_manager is required'):
        session.add_resource_config({'label': 'my.machine'})
    assert {'my.machine', 'local.exact'}.issubset(session.list_resources())
    assert session.rcfgs['my']['machine'].cores_per_node == 3
    tmgr.add_pilots(pilots)
    tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', 'echo $RP_RESOURCE'],
                                                   'cores_per_rank': cores, 'pilot': pilot.uid})
                               for cores, pilot in zip((1, 3, 5), pilots, strict=True)])
    assert tmgr.wait_tasks(timeout=45) == [rp.DONE] * 3, [task.exception for task in tasks]
    assert [task.stdout.strip() for task in tasks] == ['local.exact', 'my.machine', 'local.exact']
    details = [pilot.resource_details or {} for pilot in pilots]
    assert [found['cores'] for found in details] == [1, 3, 5]
    assert [found['mem_per_node'] for found in details][1:] == [300, 500]


def test_a_pilot_of_a_user_without_home(session: rp.Session, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('HOME')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, cores=1)))
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'printenv', 'arguments': ['HOME']}))
    assert task.wait(timeout=60) == rp.DONE, task.exception
    assert task.stdout == f'{pwd.getpwuid(os.getuid()).pw_dir}\n'

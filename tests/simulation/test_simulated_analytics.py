"""radical.analytics reads simulated sessions, of which only traces are there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from radical.pilot.utils import get_session_description
from rp_client.simulation import Model, Platform, Workload, simulate

PROGRAM = """
import json, sys
import radical.analytics as ra
session = ra.Session(sys.argv[1], 'radical.pilot')
tasks = session.filter(etype='task', inplace=False)
runs = [{1: 'rank_start'}, {1: 'rank_stop'}]
print(json.dumps({
    'tasks': len(tasks.get()), 'done': len(tasks.filter(state=['DONE'], inplace=False).get()),
    'running': tasks.duration(event=runs), 'most': max(n for _, n in tasks.concurrency(event=runs, sampling=1.0)),
    'pilots': [pilot.cfg['cores'] for pilot in session.get(etype='pilot')],
    'cores': session.utilization(['exec_cmd'])[3]['exec_cmd'],
    'gpus': session.utilization(['exec_cmd'], rtype='gpu')[3]['exec_cmd'],
}))
"""

WORKLOAD = Workload([{'ranks': 4, 'cores_per_rank': 3, 'gpus_per_rank': 1, 'duration': 100, 'count': 5},
                     {'cores_per_rank': 1000, 'duration': 1}])


def test_radical_analytics_finds_what_the_result_says(tmp_path: Path) -> None:
    if 'CI' not in os.environ:   # there it is installed
        pytest.importorskip('radical.analytics')
    directory = tmp_path / 'session'
    result = simulate(Platform.of(nodes=2, cores=16, gpus=4), WORKLOAD, Model(), directory=directory)
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', PROGRAM, str(directory)], capture_output=True,
                          text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found['tasks'], found['done'], found['pilots'], found['most']) == (6, 5, [32], 2)
    assert found['running'] == pytest.approx(300, rel=0.01)
    assert found['cores'] == pytest.approx(100 * result.core_utilisation, rel=0.01)
    assert found['gpus'] == pytest.approx(100 * result.gpu_utilisation, rel=0.01)


def test_entities_are_those_of_the_traces(tmp_path: Path) -> None:
    directory = tmp_path / 'session'
    simulate(Platform.of(nodes=2, cores=16, gpus=4), WORKLOAD, Model(), directory=directory)
    tree = get_session_description(str(directory))['tree']
    assert tree['pilot.0000']['resources'] == {'cpu': 32, 'gpu': 8}
    assert tree['task.000000']['resources'] == {'cpu': 12, 'gpu': 4}
    first, *_, last = tree['task.000000']['cfg']['slots']
    assert first['node_index'] == last['node_index'] == 0
    assert {core['index'] for core in first['cores']}.isdisjoint(core['index'] for core in last['cores'])
    never = tree['task.000005']
    assert (never['cfg']['pilot'], never['resources']) == ('', {'cpu': 0, 'gpu': 0})
    assert tree['pmgr.0000']['children'] == ['pilot.0000']
    assert len(tree['tmgr.0000']['children']) == 6


def test_a_directory_without_traces_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match='there is no session'):
        get_session_description(str(tmp_path))

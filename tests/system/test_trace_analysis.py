"""What is made of the traces of real sessions: by our own tools, and by radical.analytics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

import radical.pilot as rp
from rp_profiling.analyse.utilisation import Analysis
from rp_profiling.check import check_session
from rp_profiling.read.session import read_trace

TASKS = 12


def finished(run: Run) -> str:
    """The directory of a session in which tasks of several kinds have run."""
    (Path(run.session.path) / 'in.dat').write_text('x')
    tasks = run.tmgr.submit_tasks([
        rp.TaskDescription({'executable': 'true' if number else 'sleep', 'cores_per_rank': 1 + number % 2,
                            'ranks': 1 + number % 2, 'pre_exec': ['true'] if number % 4 == 3 else [], 'use_mpi': False,
                            'arguments': {0: ['0.1'], 5: ['x']}.get(number, [])}) for number in range(TASKS - 2)])
    tasks.append(run.tmgr.submit_tasks(rp.TaskDescription({
        'executable': 'false', 'input_staging': [str(Path(run.session.path) / 'in.dat')]})))
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=50)
    endless = run.tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['1000']}))
    endless.cancel()
    assert endless.wait(timeout=30) == rp.CANCELED
    run.session.close(download=True)
    return run.session.path


def test_a_session_is_analysed(run: Run) -> None:
    directory = finished(run)
    findings = check_session(directory)
    assert not findings, str(findings)
    assert findings.remarks == []
    analysis = Analysis(read_trace(directory))
    used = analysis.utilisation()
    assert used.most == 4
    assert 0 < used.spent['exec cmd'] < used.available
    assert sum(used.shares.values()) == pytest.approx(100)
    assert 0 < analysis.ttx < 60
    assert 0 < analysis.overhead < 60


def test_the_command_finds_the_sandbox_of_a_local_pilot(run: Run, tmp_path: Path) -> None:
    directory = finished(run)
    done = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'trace', directory, 'report', '-o',
                           str(tmp_path / 'r.html')], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, '')
    assert 'no violations: all orders, states and accounts are correct' in (tmp_path / 'r.html').read_text()


ANALYTICS = """
import json, os, sys
import radical.analytics as ra
import radical.pilot as rp
METRICS = [
    ['startup', ['boot', 'setup_1']], 'warm', ['prepare', ['exec_queue', 'exec_prep']],
    ['launcher', ['exec_rp', 'exec_sh', 'term_sh', 'term_rp']], 'exec_cmd', 'unschedule', 'drain', 'idle', 'agent',
    'term']
session = ra.Session(sys.argv[1], 'radical.pilot')
tasks = session.filter(etype='task', inplace=False)
pilot, = session.get(etype='pilot')
print(json.dumps({
    'tasks': len(tasks.get()),
    'executing': tasks.duration(event=[{1: 'rank_start'}, {1: 'rank_stop'}]),
    'scheduled': tasks.duration(state=['AGENT_SCHEDULING', 'AGENT_EXECUTING_PENDING']),
    'done': len(tasks.filter(state=['DONE'], inplace=False).get()),
    'concurrency': max(n for _, n in tasks.concurrency(event=[{1: 'rank_start'}, {1: 'rank_stop'}], sampling=0.01)),
    'rate': len(tasks.rate(event={1: 'rank_start'}, sampling=0.5)),
    'cores': pilot.cfg['cores'], 'host': pilot.cfg['hostid'],
    'utilisation': session.utilization(METRICS)[3],
    'inconsistent': session.consistency(),
    'children': len(session.describe('relations', ['pilot', 'task'])[pilot.uid]),
    'runtime': session.filter(etype='pilot', inplace=False).duration(
        event=rp.utils.PILOT_DURATIONS_DEBUG['p_agent_runtime']),
    'series': sorted(ra.get_pilot_series(session, pilot, dict(zip(
        ('pilot', 'task'), rp.utils.get_resource_transitions(pilot))), ['cpu'])[1]['cpu']),
}))
"""


def test_radical_analytics_reads_a_session(run: Run, base: Path) -> None:
    if 'CI' not in os.environ:   # there it is installed
        pytest.importorskip('radical.analytics')
    directory = finished(run)
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', ANALYTICS, directory], capture_output=True, text=True,
                          timeout=50, cwd=base)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (found['tasks'], found['done'], found['cores']) == (TASKS, TASKS - 2, 4)
    assert found['host'] == os.uname().nodename
    assert 0 < found['executing'] < 60
    assert 0 < found['scheduled'] < 60
    assert 1 <= found['concurrency'] <= 4
    assert found['rate'] >= 1
    used = found['utilisation']
    assert 0 < used['exec_cmd'] < 100
    assert used['Other'] == pytest.approx(0, abs=0.01), used   # each core-second has one purpose
    assert (found['inconsistent'], found['children']) == ([], TASKS)
    assert 0 < found['runtime'] < 60
    assert {'system', 'setup_1', 'idle', 'term', 'exec_queue', 'exec_cmd', 'unschedule'} <= set(found['series'])

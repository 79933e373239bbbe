"""Sessions whose traces have less detail, or are compressed: in all processes, and for all that reads traces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import pilot_description

import radical.pilot as rp
from rp_api.analytics.session import get_session_profile
from rp_profiling.analyse.durations import TASK, durations
from rp_profiling.analyse.utilisation import Analysis
from rp_profiling.catalogue import LEFT_OUT
from rp_profiling.check import check_session
from rp_profiling.read.files import profiles_below
from rp_profiling.read.profile import read_profile
from rp_profiling.read.session import read_trace

CORES = 4
TASKS = 6

# the agent, a process beside it, and a sub-agent
LAYOUT = {'components': {'agent_staging_output': {'target': 'process'}},
          'agents': {'agent_1': {'components': {'agent_executing': {'count': 1}}}}}


def finished(base: Path) -> Path:
    """The directory of a session in which plain tasks, and those with scripts and files, have run."""
    (base / 'in').write_text('x')
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, cores=CORES, _config=LAYOUT)))
        tasks = tmgr.submit_tasks([rp.TaskDescription({
            'executable': 'sh', 'arguments': ['-c', '$RP_PROF app_ready' if number % 3 == 2 else 'true'],
            'ranks': 1 + number % 2, 'pre_exec': ['true'] if number % 3 == 2 else [],
            'input_staging': [str(base / 'in')] if number % 3 == 1 else []}) for number in range(TASKS)])
        tmgr.wait_tasks(timeout=50)
        assert {task.state for task in tasks} == {rp.DONE}
        session.close(download=True)
    return Path(session.path)


@pytest.mark.parametrize('choice', ['default', 'states', 'gzip', 'states,gzip'])
def test_all_processes_write_what_was_asked_for(choice: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_PROFILE', choice)
    session = finished(base)
    components = [path for path in profiles_below(session) if not path.name.startswith(('task.', 'bootstrap_0.'))]
    assert {path.name.partition('.')[0] for path in components} >= {
        'rp', 'pmgr', 'tmgr', 'tmgr_staging_input', 'agent_0', 'agent_scheduling', 'agent_executing',
        'agent_staging_output'}
    assert {path.name.endswith('.gz') for path in components} == {'gzip' in choice}
    recorded = {row.event for path in profiles_below(session) for row in read_profile(path)}
    assert bool(recorded & LEFT_OUT) == ('states' not in choice)
    assert {'app_ready', 'rank_start', 'schedule_ok'} <= recorded


@pytest.mark.parametrize('choice', ['states', 'states,gzip'])
def test_less_is_analysed_as_well(choice: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_PROFILE', choice)
    session = finished(base)
    findings = check_session(session)
    assert not findings, str(findings)
    trace = read_trace(session)
    used = Analysis(trace).utilisation()
    assert used.most == CORES
    assert 0 < used.spent['exec cmd'] < used.available
    for name, (start, stop) in TASK.items():
        assert len(durations(trace, start, stop)) == TASKS, name
    with pytest.raises(ValueError, match='RADICAL_PILOT_PROFILE=default'):
        durations(trace, 'launch_start', 'rank_start')
    for action, said in (('check', 'profiles: 0 violations'), ('stats', 'exec cmd')):
        done = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'trace', str(session), action],
                              capture_output=True, text=True, timeout=50)
        assert (done.returncode, done.stderr, said in done.stdout) == (0, '', True)
    rows, _, hosts = get_session_profile(session.name, str(session))
    assert (len(rows) > 20 * TASKS, set(hosts)) == (True, {'pilot.0000'})


def test_a_component_can_have_its_own_detail(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of tasks go by that of the executor."""
    monkeypatch.setenv('RADICAL_PILOT_AGENT_EXECUTING_PROFILE', 'states,gzip')
    session = finished(base)
    assert not check_session(session)
    assert {path.name.endswith('.gz') for path in profiles_below(session)
            if path.name.startswith(('agent_executing', 'agent_sch'))} == {False, True}
    trace = read_trace(session)
    assert len(trace.rows_of('schedule_try')) == TASKS
    assert len(trace.rows_of('launch_start')) == len(trace.rows_of('exec_start')) == 0


def test_a_session_is_compressed_afterwards(base: Path) -> None:
    session = finished(base)
    before = list(read_trace(session).rows())
    sandboxes = base / 'radical.pilot.sandbox'
    for directory in (session, sandboxes):
        subprocess.run(['find', directory, '-name', '*.prof', '-exec', 'gzip', '{}', '+'], check=True, timeout=50)
    assert not [name for _, _, names in os.walk(base) for name in names if name.endswith('.prof')]
    assert list(read_trace(session).rows()) == before
    assert not check_session(session)

"""The traces of a session: every component has its file, and the events of a task come in their order."""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description, wait_until

import radical.pilot as rp
from rp_api import states
from rp_api.errors import DescriptionError, StagingError
from rp_profiling.catalogue import ALL_PROFILES, EVENTS
from rp_profiling.check import check_session
from rp_profiling.read.files import profiles_below
from rp_profiling.read.profile import read_profile

CLIENT = ('pmgr.0000', 'pmgr_launching.0000', 'tmgr.0000', 'tmgr_scheduling.0000', 'tmgr_staging_input.0000',
          'tmgr_staging_output.0000')
AGENT = ('agent_0', 'agent_staging_input.0000', 'agent_scheduling.0000', 'agent_executing.0000',
         'agent_staging_output.0000')

# what a task without commands before and after it does, one event after the other
EXECUTION = ['task_start', 'task_mkdir', 'task_mkdir_done', 'task_run_start', 'task_run_ok', 'launch_start',
             'launch_pre', 'launch_submit', 'exec_start', 'exec_pre', 'rank_start', 'rank_stop', 'exec_post',
             'exec_stop', 'launch_collect', 'launch_post', 'launch_stop', 'task_run_stop']


def test_a_session_is_traced(run: Run, base: Path) -> None:
    (base / 'in').write_text('x')
    done = run.one(executable='/bin/true', input_staging=['in'],
                   output_staging=[{'source': 'in', 'target': 'out', 'action': rp.COPY}])
    failed = run.one(executable='/bin/false')
    assert (done.state, failed.state) == (rp.DONE, rp.FAILED)
    run.session.close()
    client, agent = Path(run.session.path), Path(run.pilot.pilot_sandbox)
    for directory, names in ((client, (run.session.uid, *CLIENT)), (agent, AGENT)):
        for name in names:
            events = [row.event for row in read_profile(directory / f'{name}.prof')]
            assert (events[0], events[-1]) == ('sync_abs', 'END'), name
    rows = sorted((row for directory in (client, agent) for path in profiles_below(directory)
                   for row in read_profile(path)), key=lambda row: row.time)
    known = {event.name for event in EVENTS}
    assert {row.event for row in rows} <= known | {'app_start', 'app_stop'}
    by_uid = defaultdict(list)
    for row in rows:
        by_uid[row.uid].append(row)
    advanced = [row.state for row in by_uid[done.uid] if row.event == 'advance']
    assert advanced == [name for name in states.TASK.names if name not in (rp.NEW, rp.FAILED, rp.CANCELED)]
    assert [row.event for row in by_uid[done.uid] if row.event in EXECUTION] == EXECUTION
    staged = [row.event for row in by_uid[done.uid] if row.event.startswith('staging_')]
    assert staged.index('staging_in_start') < staged.index('staging_in_stop') < staged.index('staging_out_start')
    assert [row.event for row in by_uid[failed.uid] if row.event in EXECUTION] == EXECUTION
    assert [row.state for row in by_uid[failed.uid] if row.event == 'advance'][-1] == rp.FAILED
    scheduled = [row.event for row in by_uid[done.uid] if 'schedule' in row.event]
    assert [event for event in scheduled if event != 'schedule_fail'] == [
        'schedule_try', 'schedule_ok', 'unschedule_start', 'unschedule_stop']
    session = [row.event for row in by_uid[run.session.uid] if row.event.startswith('session_')]
    assert session == ['session_start', 'session_ok', 'session_close', 'session_stop']
    pilot = [row.state for row in by_uid[run.pilot.uid] if row.event == 'advance']
    assert pilot == [name for name in states.PILOT.names if name not in (rp.NEW, rp.FAILED, rp.DONE)]


def test_tracing_can_be_switched_off(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_PROFILE', 'false')
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': 1, 'sandbox': str(base)})))
        assert tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'})).wait(timeout=30) == rp.DONE
    assert not list(base.rglob('*.prof'))


@pytest.mark.disorder('the events of a component are missing')
@pytest.mark.parametrize('name', ['AGENT_EXECUTING', 'TMGR_STAGING_INPUT'])
def test_a_component_can_be_left_out(name: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f'RADICAL_PILOT_{name}_PROFILE', 'no')
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
        assert tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'})).wait(timeout=30) == rp.DONE
    found = {path.name.partition('.')[0] for path in base.rglob('*.prof')}
    left_out = {wanted.partition('.')[0] for wanted in (*CLIENT, *AGENT)} - found
    assert left_out == {name.lower()}


def test_an_application_that_is_killed_loses_no_more_than_a_second(base: Path) -> None:
    """What it has recorded before is in its profiles."""
    with rp.Session(cfg={'base': str(base)}) as session:
        wait_until(lambda: (Path(session.path) / f'{session.uid}.prof').exists(), what='a profile')
        rows = read_profile(Path(session.path) / f'{session.uid}.prof')
    assert [row.event for row in rows] == ['sync_abs', 'session_start', 'session_ok']


def test_clones_stay_in_the_pilot(session: rp.Session, base: Path) -> None:
    """The session's fixture has the traces checked."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, _config={
        'blowup_factor': {'execution_queue': 10},
        'drop_clones': {'execution_queue': 1, 'ExecWorker': 0, 'watch_queue': 0, 'Watcher': 0}}))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true'}) for _ in range(4)])
    tmgr.wait_tasks(timeout=40)
    assert {task.state for task in tasks} == {rp.DONE}
    assert tmgr.list_tasks() == [task.uid for task in tasks]
    session.close()
    rows = read_profile(Path(pilot.pilot_sandbox) / 'agent_executing.0000.prof')
    assert {row.uid for row in rows if row.event == 'rank_start'} == {
        f'{task.uid}{clone}' for task in tasks for clone in ('', *(f'.clone.{number:04}' for number in range(1, 10)))}


def test_clones_that_make_no_sense_are_refused(base: Path, session: rp.Session) -> None:
    pmgr = rp.PilotManager(session)
    with pytest.raises(DescriptionError, match=r'blowup_factor\.Watcher is 2, allowed: 1: a running task cannot be'):
        pmgr.submit_pilots(pilot_description(base, _config={'blowup_factor': {'Watcher': 2}}))


ELSEWHERE = {
    'bootstrap_0': 'pilots of batch systems',
    'Coordination': 'reports of foreign agents',
    ALL_PROFILES: 'clocks that differ, and less detail',
}
"""Components of which this session has no events, or not all, with what causes them."""

OTHER_EVENTS = {
    'partition_start', 'partition_ready', 'partition_stop', 'signal', 'node_lost', 'dvm_start', 'dvm_uri', 'dvm_ready',
    'dvm_stop', 'dvm_fail', 'add clone', 'drop clone', 'app_*'}
"""Events of partitions, several nodes, DVMs, clones and applications, which this session does not have."""


def test_the_events_of_most_features_are_in_the_traces(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all detail, and in order."""
    monkeypatch.setenv('RADICAL_PILOT_PROFILE', 'full')
    for name in ('in', 'packed', 'given'):
        (base / name).write_text(name)
    missing = {'source': '/nowhere/at/all', 'target': 'missing', 'flags': rp.NON_FATAL}
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(pilot_description(base, input_staging=[str(base / 'given')], _config={
            'components': {'agent_staging_output': {'target': 'process'}}}))
        (never,) = tmgr.submit_tasks([rp.TaskDescription({'executable': 'true'})])
        tmgr.cancel_tasks(never.uid)
        tmgr.add_pilots(pilot)
        described: list[dict[str, Any]] = [
            {'executable': 'sh', 'arguments': ['-c', '$RP_PROF app_start; $RP_PROF app_stop'], 'cleanup': True,
             'pre_exec': ['true']},
            {'executable': 'touch', 'arguments': ['made'],
             'input_staging': [str(base / 'in'), {'source': str(base / 'packed'), 'action': rp.TARBALL},
                               {'source': 'pilot:///given', 'action': rp.COPY}, missing | {'action': rp.TRANSFER},
                               missing | {'action': rp.LINK}],
             'output_staging': [{'source': 'made', 'target': 'client:///made', 'action': rp.TRANSFER},
                                {'source': 'made', 'target': 'pilot:///made', 'action': rp.COPY},
                                missing | {'action': rp.TRANSFER}, missing | {'action': rp.COPY}]},
            {'executable': 'sleep', 'arguments': ['60'], 'timeout': 0.2},
            {'executable': 'mkdir', 'arguments': [str(base / 'first'), str(base / 'second')], 'uid': 'other'},
            {'executable': 'rmdir', 'arguments': [str(base / 'first')], 'after': ['other'], 'cache': True},
            {'executable': 'sh', 'arguments': ['-c', f'! rmdir {base}/second'], 'after': ['other'], 'retries': 1,
             'retry_delay': 0.1},
            *[{'executable': 'sleep', 'arguments': ['0.2'], 'cores_per_rank': 4}] * 2]
        tasks = tmgr.submit_tasks([rp.TaskDescription(description) for description in described])
        pilot.wait(state=rp.PMGR_ACTIVE, timeout=40)
        pilot.stage_in(str(base / 'in'))
        pilot.stage_out({'source': 'in', 'target': f'{base}/out'})
        for stage in (pilot.stage_in, pilot.stage_out):
            with pytest.raises(StagingError):
                stage({'source': '/nowhere/at/all', 'target': '/nowhere/else'})
        tmgr.wait_tasks(timeout=50)
        tasks.append(tmgr.submit_tasks(rp.TaskDescription(described[4])))
        tasks[-1].wait(timeout=30)
        assert [task.state for task in tasks] == [rp.DONE, rp.DONE, rp.CANCELED, *[rp.DONE] * 6]
        session.close(download=True)
    files = defaultdict(set)
    for path in profiles_below(Path(session.path)):
        for row in read_profile(path):
            files[row.event].add(path.name)
    found = set(files)
    wanted = {each.name for each in EVENTS if not each.unrecorded and each.component not in ELSEWHERE} - OTHER_EVENTS
    assert wanted - found == set()
    assert {'app_start', 'app_stop', 'sync_abs', 'END'} <= found
    assert {each.name for each in EVENTS if each.unrecorded} & found == set()
    patterns = {name: [pattern for each in EVENTS if each.covers(name) for pattern in each.profiles] for name in files}
    assert {(name, file) for name, there in files.items() for file in there
            if not any(fnmatch(file, pattern) for pattern in patterns[name])} == set()
    findings = check_session(Path(session.path))
    assert not findings, str(findings)

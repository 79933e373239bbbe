"""Simulated pilots that do not get through: their time is over, or their launchers are lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rp_api.errors import DescriptionError
from rp_client.cli.program import main
from rp_client.simulation import Cost, Model, Platform, Result, Workload, simulate
from rp_client.simulation.calls import Calls, simulate_calls
from rp_profiling.analyse.utilisation import Analysis
from rp_profiling.check import check_session
from rp_profiling.read.session import read_trace
from rp_profiling.write.virtual import EPOCH

DVMS: dict[str, Any] = {'launch_method': 'PRTE', 'launchers': 4}
UNTIL_LOST = 3 * 60
"""Seconds in which a launcher that has failed is started three times in vain."""


def simulated(path: Path, platform: Platform, workload: Workload, model: Model, **options: Any) -> Result:
    """A simulation whose traces are in order, and say what the result says."""
    result = simulate(platform, workload, model, directory=path, **options)
    findings = check_session(path)
    assert not findings, str(findings)
    analysis = Analysis(read_trace(path))
    assert analysis.ttx == pytest.approx(result.ttx, abs=1e-3)
    assert analysis.overhead == pytest.approx(result.overhead, abs=1e-3)
    assert analysis.utilisation('core').shares['exec cmd'] == pytest.approx(100 * result.core_utilisation, abs=1e-2)
    return result


def rows(path: Path, uid: str) -> list[tuple[float, str, str]]:
    """What the profiles say of one entity: time, component without number, event or state."""
    found = []
    for profile in sorted(path.rglob('*.prof')):
        for line in profile.read_text().splitlines()[1:]:
            time, event, comp, _, entity, state, _ = line.split(',')
            if entity == uid:
                found.append((float(time) - EPOCH, comp.partition('.')[0], state or event))
    return sorted(found, key=lambda row: row[0])


def events(path: Path, uid: str, since: float) -> list[str]:
    return [event for time, _, event in rows(path, uid) if time >= since]


# the time is over


def test_what_does_not_fit_into_the_time_is_left_undone(tmp_path: Path) -> None:
    model = Model(bootstrap=Cost(10), launch=Cost(1), acknowledge=Cost(0.5), teardown=Cost(2))
    result = simulated(tmp_path / 'session', Platform.of(nodes=2, cores=4, runtime=5),
                       Workload.of({'duration': 100}, 40), model)
    # two generations of eight end before 300 s, the third one is killed, the others never begin
    assert result.ends == {'DONE': 16, 'CANCELED': 24}
    assert result.undone == 24
    assert result.failed == 0
    assert result.walltime == 302
    assert len(result.pilots[0].runs) == 24
    assert result.core_utilisation == pytest.approx((200 + 300 - 214) / 302)
    assert str(result) == 'needs 2 nodes for 5 min, 95 % used, 24 of 40 tasks left undone'
    assert rows(tmp_path / 'session', 'pilot.0000')[-1][1:] == ('pmgr', 'DONE')


def test_with_enough_time_nothing_changes(tmp_path: Path) -> None:
    platform, model = Platform.of(nodes=2, cores=4), Model(launch=Cost(1))
    workload = Workload.of({'duration': 100}, 16)
    result = simulated(tmp_path / 'session', Platform.of(nodes=2, cores=4, runtime=5), workload, model)
    assert str(result) == str(simulate(platform, workload, model)) == 'needs 2 nodes for 3 min, 99 % used'
    assert rows(tmp_path / 'session', 'pilot.0000')[-1][1:] == ('pmgr', 'CANCELED')


def test_in_a_job_tasks_are_ended_before_the_batch_system_does(tmp_path: Path) -> None:
    platform = Platform.of(nodes=1, cores=1, runtime=5, resource_manager='SLURM')
    result = simulated(tmp_path / 'session', platform, Workload.of({'duration': 1000}), Model(teardown=Cost(100)))
    pilot, = result.pilots
    assert pilot.last == 285
    assert pilot.stopped == 300, 'the job does not outlast its time'


def test_tasks_end_as_in_a_real_pilot_wherever_they_are(tmp_path: Path) -> None:
    """These are the events, and their order in each profile, of a real pilot that has reached its runtime."""
    session = tmp_path / 'session'
    model = Model(launch=Cost(25), launching=1, concurrent=2, acknowledge=Cost(100))
    workload = Workload([{'duration': 1}, {'duration': 100}, {'duration': 100}])
    simulated(session, Platform.of(nodes=1, cores=3, runtime=1), workload, model)
    left = ['AGENT_STAGING_OUTPUT_PENDING', 'unschedule_start', 'unschedule_stop', 'AGENT_STAGING_OUTPUT',
            'staging_stdout_start', 'staging_stdout_stop', 'staging_stderr_start', 'staging_stderr_stop',
            'TMGR_STAGING_OUTPUT_PENDING', 'TMGR_STAGING_OUTPUT', 'CANCELED']
    collected = ['launch_collect', 'launch_post', 'launch_stop', 'task_run_stop', 'task_run_cancel_stop']
    killed = ['task_run_cancel_start', *collected]
    ran = ['rank_stop', 'exec_post', 'exec_stop']
    # one whose end is not known yet, one that runs, and one that waits for its launch
    assert sorted(events(session, 'task.000000', 60)) == sorted([*killed, *left])
    assert sorted(events(session, 'task.000001', 60)) == sorted(['task_run_cancel_start', *ran, *collected, *left])
    of_executor = [event for time, comp, event in rows(session, 'task.000001')
                   if comp == 'agent_executing' and time >= 60]
    assert of_executor == ['task_run_cancel_start', *ran, *collected, 'AGENT_STAGING_OUTPUT_PENDING']
    assert sorted(events(session, 'task.000002', 60)) == sorted(left)


def test_tasks_that_are_being_launched_are_killed_and_those_that_wait_have_no_output(tmp_path: Path) -> None:
    session, workload = tmp_path / 'session', Workload.of({'duration': 1}, 3)
    result = simulated(session, Platform.of(nodes=1, cores=1, runtime=1), workload, Model(launch=Cost(40)))
    assert result.ends == {'DONE': 1, 'CANCELED': 2}
    assert result.core_utilisation == pytest.approx(1 / 60)
    killed, waited = (events(session, f'task.{number:06d}', 60) for number in (1, 2))
    assert 'task_run_cancel_stop' in killed
    assert 'rank_stop' not in killed
    assert waited == ['CANCELED']


@pytest.mark.parametrize('lookahead', [0, 3])
def test_a_slow_scheduler_is_interrupted(lookahead: int, tmp_path: Path) -> None:
    model = Model(placement=Cost(8), search=Cost(0.1), lookahead=lookahead)
    result = simulated(tmp_path / 'session', Platform.of(nodes=2, cores=4, runtime=1),
                       Workload.of({'duration': 100}, 20), model)
    assert result.ends == {'CANCELED': 20}
    assert result.walltime == 60


def test_a_pilot_that_was_never_active_fails_with_its_tasks(tmp_path: Path) -> None:
    result = simulated(tmp_path / 'session', Platform.of(nodes=1, cores=4, runtime=1), Workload.of({'duration': 1}, 4),
                       Model(bootstrap=Cost(100)))
    assert result.ends == {'FAILED': 4}
    assert rows(tmp_path / 'session', 'pilot.0000')[-1][1:] == ('pmgr', 'FAILED')


def test_each_pilot_has_its_own_time(tmp_path: Path) -> None:
    platform = Platform.of(nodes=1, cores=1, pilots=2, runtime=5)
    result = simulated(tmp_path / 'session', platform, Workload.of({'duration': 200}, 4),
                       Model(queue=Cost(500, spread=0.9)))
    assert result.ends == {'DONE': 2, 'CANCELED': 2}
    one, other = result.pilots
    assert one.stopped - one.started == other.stopped - other.started == 300
    assert one.started != other.started


def test_the_command_has_a_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'workload.jsonl'
    path.write_text('{"duration": 600, "count": 80}\n')
    command = ['simulate', str(path), '--cores', '4', '--nodes', '10', '--runtime', '15']
    assert main([*command, '--compare', '5']) == 0
    assert capsys.readouterr().out == ('needs 10 nodes for 15 min, 100 % used, 40 of 80 tasks left undone; '
                                       '5 nodes: 15 min, 100 % used, 60 of 80 tasks left undone\n')
    assert main([*command[:-1], '15m']) == 0
    assert capsys.readouterr().out.startswith('needs 10 nodes for 15 min, 100 % used, 40 of 80 tasks left undone')
    with pytest.raises(SystemExit):
        main([*command[:-1], '-1'])
    assert "argument --runtime: '-1' is less than 0" in capsys.readouterr().err


# launchers are lost


def test_tasks_of_a_lost_launcher_run_again_on_others(tmp_path: Path) -> None:
    model = Model(**DVMS, lost_launchers=1, launcher_life=Cost(150))
    result = simulated(tmp_path / 'session', Platform.of(nodes=8, cores=4),
                       Workload.of({'ranks': 8, 'duration': 100}, 20), model)
    assert result.ends == {'DONE': 20}
    # the task that ran when its launcher failed has waited for it, and then for another one
    begun = {uid: start for uid, (start, _) in result.pilots[0].runs.items()}
    rerun, = (uid for uid in begun if 'task_run_cancel_start' in events(tmp_path / 'session', uid, 0))
    assert begun[rerun] >= 150 + UNTIL_LOST
    told = events(tmp_path / 'session', rerun, 150)
    assert told[0] == 'task_run_cancel_start'
    assert told.count('AGENT_SCHEDULING') == told.count('schedule_ok') == told.count('rank_stop') == 1
    assert 'task_start' not in told
    # 20 tasks on three machines, and two that the fourth one had in time or was given in vain
    assert result.ttx == 700


def test_of_a_lost_launcher_nothing_is_left_but_its_starts(tmp_path: Path) -> None:
    model = Model(**DVMS, lost_launchers=1, launcher_life=Cost(50))
    simulated(tmp_path / 'session', Platform.of(nodes=4, cores=1), Workload.of({'duration': 1000}, 4), model)
    told = [row for row in rows(tmp_path / 'session', 'pilot.0000') if row[2].startswith('dvm_')]
    assert [event for time, _, event in told if time == 0] == 4 * ['dvm_start', 'dvm_uri', 'dvm_ready']
    later = [(time, event) for time, _, event in told if time > 0]
    assert later == [(50, 'dvm_stop'), (50, 'dvm_start'), (110, 'dvm_stop'), (110, 'dvm_start'), (170, 'dvm_stop'),
                     (170, 'dvm_start'), (230, 'dvm_stop'), *3 * [(2000, 'dvm_stop')]]


def test_two_of_sixteen_are_lost_and_the_workload_is_done_as_in_the_paper(tmp_path: Path) -> None:
    model = Model(launch_method='PRTE', launchers=16, lost_launchers=2, acknowledge=Cost(2),
                  launch=Cost(3, spread=0.5))
    workload = Workload([{'ranks': 4, 'duration': {'from': 500, 'to': 900}, 'count': 60},
                         {'duration': 600, 'count': 40}])
    result = simulated(tmp_path / 'session', Platform.of(nodes=32, cores=4), workload, model)
    assert result.ends == {'DONE': 100}
    # those that were placed there before it was known began after that
    assert sum(start >= UNTIL_LOST for start, _ in result.pilots[0].runs.values()) > 2


@pytest.mark.parametrize('lookahead', [0, 5])
def test_tasks_for_a_machine_that_is_lost_fail(lookahead: int, tmp_path: Path) -> None:
    model = Model(launch_method='PRTE', launchers=2, lost_launchers=1, launcher_life=Cost(50), lookahead=lookahead,
                  placement=Cost(0.5 if lookahead else 0))
    workload = Workload([{'duration': 400, 'partition': number % 2, 'ranks': 2} for number in range(12)])
    result = simulate(Platform.of(nodes=2, cores=4), workload, model, directory=tmp_path / 'session')
    findings = check_session(tmp_path / 'session')
    assert not findings, str(findings)
    assert result.ends == {'DONE': 6, 'FAILED': 6}


def test_a_pilot_whose_launchers_are_all_lost_fails(tmp_path: Path) -> None:
    model = Model(**DVMS, lost_launchers=4, launcher_life=Cost(50, spread=0.5))
    result = simulate(Platform.of(nodes=4, cores=4), Workload.of({'ranks': 4, 'duration': 1000}, 10), model,
                      directory=tmp_path / 'session')
    findings = check_session(tmp_path / 'session')
    assert not findings, str(findings)
    assert result.ends == {'FAILED': 10}
    assert rows(tmp_path / 'session', 'pilot.0000')[-1][1:] == ('pmgr', 'FAILED')


def test_what_has_ended_when_its_launcher_fails_is_done(tmp_path: Path) -> None:
    model = Model(launchers=2, lost_launchers=1, launcher_life=Cost(105), acknowledge=Cost(10))
    result = simulated(tmp_path / 'session', Platform.of(nodes=2, cores=1), Workload.of({'duration': 100}, 2), model)
    assert result.ends == {'DONE': 2}
    assert result.ttx == 100


def test_tasks_that_are_placed_nowhere_go_to_another_launcher(tmp_path: Path) -> None:
    platform = Platform.of(nodes=4, cores=1, agent_scheduler='NOOP')
    model = Model(launchers=4, lost_launchers=1, launcher_life=Cost(50))
    result = simulate(platform, Workload.of({'duration': 100}, 8), model, directory=tmp_path / 'session')
    assert not check_session(tmp_path / 'session')
    assert result.ends == {'DONE': 8}
    assert sorted(result.pilots[0].runs.values()) == [(0, 100)] * 6 + [(50, 150)] * 2


def test_slots_that_are_lost_cannot_be_replaced(tmp_path: Path) -> None:
    slots = [{'node_index': 0, 'node_name': 'node-000000', 'cores': [0], 'gpus': []}]
    model = Model(launchers=1, lost_launchers=1, launcher_life=Cost(50))
    result = simulate(Platform.of(nodes=1, cores=1), Workload([{'duration': 100, 'slots': slots}]), model,
                      directory=tmp_path / 'session')
    assert not check_session(tmp_path / 'session')
    assert result.ends == {'FAILED': 1}


def test_no_more_launchers_are_lost_than_there_are() -> None:
    with pytest.raises(DescriptionError, match=r'model\.lost_launchers must be at most 4, .* not 5'):
        simulate(Platform.of(nodes=4, cores=1), Workload.of({'duration': 1}), Model(**DVMS, lost_launchers=5))


@pytest.mark.parametrize(('runtime', 'lost'), [(10, 0), (0, 1)])
def test_function_calls_have_neither(runtime: int, lost: int) -> None:
    platform = Platform.of(nodes=2, cores=4, runtime=runtime)
    with pytest.raises(DescriptionError, match='with a runtime of the pilot, or with lost launchers'):
        simulate_calls(platform, Calls(100, Cost(1.0)), Model(lost_launchers=lost))

"""Simulated sessions: traces are in order and tell what the result says, and the same seed gives the same bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rp_api.errors import DescriptionError, PilotError
from rp_client.cli.program import main
from rp_client.simulation import Cost, Model, Platform, Workload, list_models, load_model, simulate
from rp_profiling.analyse.utilisation import Analysis
from rp_profiling.check import check_session
from rp_profiling.read.session import read_trace
from rp_profiling.read.trace import Trace

ROOT = Path(__file__).parents[2]

MIXED = Workload([
    {'ranks': 4, 'cores_per_rank': 4, 'duration': {'from': 500, 'to': 900}, 'count': 60},
    {'ranks': 100, 'duration': 600, 'count': 3},
    {'gpus_per_rank': 1, 'duration': {'mean': 100, 'spread': 0.2, 'shape': 'normal'}, 'count': 40},
    {'cores_per_rank': 1000, 'duration': 1},
])


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob('*.prof'))}


def stays(trace: Trace) -> list[str]:
    """What each task got, in the order in which tasks got it."""
    columns = trace.columns
    return [columns.messages[columns.message[row]] for row in trace.rows_of('schedule_ok')]


@pytest.mark.parametrize('model', list_models())
def test_a_session_is_in_order_and_tells_what_the_result_says(model: str, tmp_path: Path) -> None:
    result = simulate(Platform.named('ornl.summit', nodes=6, pilots=2), MIXED, load_model(model).changed(launchers=2),
                      directory=tmp_path / 'session')
    assert result.tasks == 104
    assert result.ends['FAILED'] >= 1   # no node has 1,000 cores
    findings = check_session(tmp_path / 'session')
    assert not findings, str(findings)
    analysis = Analysis(read_trace(tmp_path / 'session'))
    assert analysis.ttx == pytest.approx(result.ttx, abs=1e-4)
    assert analysis.overhead == pytest.approx(result.overhead, abs=1e-3)
    assert analysis.utilisation('core').shares['exec cmd'] == pytest.approx(100 * result.core_utilisation, abs=1e-3)
    assert analysis.utilisation('GPU').shares['exec cmd'] == pytest.approx(100 * result.gpu_utilisation, abs=1e-3)


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(tmp_path: Path) -> None:
    platform, model = Platform.of(nodes=4, cores=42, gpus=6), load_model('paper-titan-orte')
    for name, seed in (('one', 5), ('same', 5), ('other', 6)):
        simulate(platform, MIXED, model, directory=tmp_path / name, seed=seed)
    assert files(tmp_path / 'one') == files(tmp_path / 'same')
    assert files(tmp_path / 'one') != files(tmp_path / 'other')
    assert len(files(tmp_path / 'one')) == 13


def test_times_are_those_of_the_model() -> None:
    model = Model(queue=Cost(1000), bootstrap=Cost(10, per_node=1), launch=Cost(5), acknowledge=Cost(3),
                  teardown=Cost(2))
    result = simulate(Platform.of(nodes=2, cores=1), Workload.of({'duration': 100}, 4), model)
    # two after each other on each of two cores
    assert result.ttx == 2 * (5 + 100 + 3) - 3
    assert result.walltime == 10 + 2 + 2 * (5 + 100 + 3) + 2
    assert result.core_utilisation == pytest.approx(200 / result.walltime)
    assert result.overhead == pytest.approx(result.walltime - 200)


def test_launchers_take_tasks_at_their_rate_and_no_more_than_they_can_have() -> None:
    workload = Workload.of({'duration': 100}, 10)
    slow = simulate(Platform.of(nodes=1, cores=10), workload, Model(launch_rate=0.5))
    assert slow.ttx == 9 * 2 + 100
    few = simulate(Platform.of(nodes=1, cores=10), workload, Model(concurrent=5))
    assert few.ttx == 200
    both = simulate(Platform.of(nodes=2, cores=5), workload, Model(launch_rate=0.5, launchers=2, launch_method='PRTE'))
    assert both.ttx == 4 * 2 + 100   # two DVMs


def test_no_more_than_so_many_are_launched_at_a_time() -> None:
    model = Model(launching=2, launch=Cost(5.0))
    result = simulate(Platform.of(nodes=1, cores=5), Workload.of({'duration': 100}, 5), model)
    assert sorted(start for start, _ in result.pilots[0].runs.values()) == [5, 5, 10, 10, 15]
    failing = simulate(Platform.of(nodes=1, cores=5), Workload.of({'duration': 100}, 5), model.changed(failures=1.0))
    assert failing.failed == 5


def test_ends_are_acknowledged_one_after_the_other() -> None:
    model = Model(acknowledge_rate=0.5, acknowledge=Cost(1.0))
    result = simulate(Platform.of(nodes=1, cores=2), Workload.of({'duration': 100}, 4), model)
    # known after 2 and 4 s, and told 1 s later
    assert sorted(start for start, _ in result.pilots[0].runs.values()) == [0, 0, 103, 105]
    assert result.walltime == 205 + 2 + 1


def test_first_launches_on_a_node_take_longer() -> None:
    model = Model(launch=Cost(5.0), first_launch=Cost(7.0))
    result = simulate(Platform.of(nodes=2, cores=1), Workload.of({'duration': 100}, 4), model)
    assert sorted(start for start, _ in result.pilots[0].runs.values()) == [12, 12, 117, 117]


def test_launchers_wait_for_the_file_system_that_they_share() -> None:
    model = Model(storage=Cost(1.0, per_task=2.0), launch=Cost(5.0), launchers=2, launch_method='PRTE')
    result = simulate(Platform.of(nodes=2, cores=2), Workload.of({'duration': 100}, 4), model)
    begun = sorted(start for start, _ in result.pilots[0].runs.values())
    assert begun == [1 + 5, 4 + 5, 9 + 5, 16 + 5]   # 1, 3, 5 and 7 s, one after the other
    assert result.ttx == 16 + 5 + 100


def test_what_waits_for_the_file_system_does_not_run(tmp_path: Path) -> None:
    model = Model(storage=Cost(10.0), failures=1.0)
    simulate(Platform.of(nodes=1, cores=4), Workload.of({'duration': 100}, 4), model, directory=tmp_path / 'session')
    shares = Analysis(read_trace(tmp_path / 'session')).utilisation('core').shares
    assert shares['exec cmd'] == pytest.approx(0, abs=0.01)
    # four cores of which one fails after the other: 10, 20, 30 and 40 s of 40 s
    assert shares['prepare exec'] == pytest.approx(100 * (10 + 20 + 30 + 40) / (4 * 40), abs=0.1)


def test_a_pass_of_the_scheduler_tries_all_that_comes_and_then_hands_on_what_it_placed() -> None:
    model = Model(placement=Cost(1.0), search=Cost(2.0), lookahead=5)
    result = simulate(Platform.of(nodes=1, cores=2), Workload.of({'duration': 100}, 4), model)
    # two tasks placed and two tried in vain; then one placed as soon as a core was free, and one in the pass after that
    begun = sorted(start for start, _ in result.pilots[0].runs.values())
    assert begun == [6, 6, 106 + 1 + 2, 109 + 1]
    assert result.overhead == 6 + 3


@pytest.mark.parametrize(('lookahead', 'ttx'), [(1, 120), (2, 110), (0, 110)])
def test_a_scheduler_that_looks_no_further_overlooks_tasks_that_fit(lookahead: int, ttx: float) -> None:
    workload = Workload([{'cores_per_rank': 2, 'duration': 100}, {'cores_per_rank': 2, 'duration': 50},
                         {'cores_per_rank': 4, 'duration': 10}, {'cores_per_rank': 2, 'duration': 10}])
    assert simulate(Platform.of(nodes=1, cores=4), workload, Model(lookahead=lookahead)).ttx == ttx


@pytest.mark.parametrize('costs', [{}, {'placement': Cost(0.5), 'search': Cost(0.5)}])
def test_passes_refuse_what_can_never_run(costs: dict[str, Any], tmp_path: Path) -> None:
    workload = Workload([{'cores_per_rank': 5, 'duration': 1}, {'duration': 7}, {'cores_per_rank': 5, 'duration': 1}])
    result = simulate(Platform.of(nodes=1, cores=4), workload, Model(lookahead=1, **costs),
                      directory=tmp_path / 'session')
    assert result.ends == {'FAILED': 2, 'DONE': 1}
    findings = check_session(tmp_path / 'session')
    assert not findings, str(findings)


def test_tasks_stay_on_the_nodes_of_one_virtual_machine(tmp_path: Path) -> None:
    workload = Workload.of({'ranks': 8, 'duration': 10}, 12)
    simulate(Platform.of(nodes=8, cores=4), workload, Model(launch_method='PRTE', launchers=2),
             directory=tmp_path / 'session')
    given = stays(read_trace(tmp_path / 'session'))
    parts = [{int(word.partition(':')[0]) // 4 for word in stay.split()} for stay in given]
    assert len(parts) == 12
    assert {tuple(part) for part in parts} == {(0,), (1,)}


def test_a_share_of_the_tasks_fails(tmp_path: Path) -> None:
    result = simulate(Platform.of(nodes=10, cores=10), Workload.of({'duration': 50}, 400), Model(failures=0.25),
                      directory=tmp_path / 'session')
    assert 60 < result.failed < 140
    assert result.ends['DONE'] == 400 - result.failed
    assert f'{result.failed} of 400 tasks fail' in str(result)
    findings = check_session(tmp_path / 'session')
    assert not findings, str(findings)


def test_tasks_are_shared_by_pilots_of_which_one_may_be_needed_no_more(tmp_path: Path) -> None:
    result = simulate(Platform.of(nodes=1, cores=2, pilots=3), Workload.of({'duration': 10}, 2),
                      Model(queue=Cost(100, spread=0.9)), directory=tmp_path / 'session', seed=3)
    assert sorted(len(pilot.runs) for pilot in result.pilots) == [0, 1, 1]
    findings = check_session(tmp_path / 'session')
    assert not findings, str(findings)


def test_what_was_recorded_can_be_simulated_again(tmp_path: Path) -> None:
    platform, model = Platform.of(nodes=6, cores=42, gpus=6), Model(launch=Cost(2.0))
    first = simulate(platform, Workload(MIXED.entries[:3]), model, directory=tmp_path / 'first')
    again = simulate(platform, Workload.recorded(tmp_path / 'first'), model)
    assert again.tasks == first.tasks
    assert again.ttx == pytest.approx(first.ttx, rel=0.05)   # which task of a kind goes first may differ
    assert again.core_utilisation == pytest.approx(first.core_utilisation, rel=0.05)


def test_the_policy_is_that_of_the_platform(tmp_path: Path) -> None:
    tags = [{'order': {'ns': 'a', 'order': number, 'size': 1}} for number in (1, 0)]
    workload = Workload([{'duration': 10, 'tags': each} for each in tags])
    result = simulate(Platform.of(nodes=1, cores=4, agent_scheduler='CONTINUOUS_ORDERED'), workload, Model())
    assert result.ttx == 20


def test_what_waits_for_ever_is_told() -> None:
    with pytest.raises(PilotError, match='1 of the tasks wait forever'):
        simulate(Platform.of(nodes=1, cores=1), Workload([{'duration': 1, 'pilot': 'pilot.0007'}]), Model())


def test_an_empty_workload_ends() -> None:
    assert simulate(Platform.of(nodes=1, cores=1), Workload(), Model(bootstrap=Cost(5))).ttx == 0


@pytest.mark.parametrize(('line', 'sentence'), [
    ('{"ranks": 0, "duration": 1}', 'line 2: TaskDescription.ranks is 0'),
    ('{"ranks": 2}', 'line 2: duration is None, allowed are seconds'),
    ('{"duration": -1}', 'line 2: duration is -1, allowed are seconds'),
    ('{"duration": {"from": 5}}', "line 2: duration is {'from': 5}, allowed are"),
    ('{"duration": {"from": 5, "to": 1}}', 'allowed are seconds "from" and "to" that are not less'),
    ('{"duration": {"mean": 5, "shape": "odd"}}', "cost.shape is 'odd'"),
    ('{"duration": 1, "count": 0}', 'line 2: count is 0'),
    ('{"duration": 1, "count": 2, "uid": "one"}', "line 2: 2 tasks cannot share the uid 'one'"),
    ('{"duration": 1, "rank": 2}', 'line 2: '),
    ('[1]', 'line 2: a description must be a dict'),
    ('{"duration', 'line 2: '),
])
def test_what_is_no_workload_is_refused(line: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / 'workload.jsonl'
    path.write_text(f'# tasks\n{line}\n')
    with pytest.raises(DescriptionError) as error:
        Workload.read(path)
    assert sentence in str(error.value)


@pytest.mark.parametrize('values', [{'nodes': 0}, {'nodes': 2, 'cores': 0}, {'nodes': 2, 'pilots': 0}, {'nodes': 1.5}])
def test_what_is_no_platform_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(DescriptionError, match='allowed are whole numbers from 1 on'):
        Platform.of(**{'cores': 4, **values})


def test_the_command_says_how_long_it_takes_and_what_others_would_give(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'workload.jsonl'
    path.write_text('{"duration": 600, "count": 80}\n')
    session = tmp_path / 'session'
    assert main(['simulate', str(path), '--cores', '4', '--nodes', '10', '--compare', '5,20', '--output',
                 str(session)]) == 0
    output = capsys.readouterr().out
    assert re.fullmatch(r'needs 10 nodes for \d+ min, \d+ % used; 5 nodes: \d+ min, \d+ % used; '
                        r'20 nodes: \d+ min, \d+ % used\n', output), output
    assert main(['trace', str(session), 'check']) == 0
    assert main(['simulate', str(session), '--cores', '4', '--nodes', '10']) == 0
    assert capsys.readouterr().out.endswith(output.partition(';')[0] + '\n')
    assert main(['simulate', str(path), '--cores', '4', '--nodes', '10', '--compare', '5', '--json']) == 0
    ten, five = json.loads(capsys.readouterr().out)
    assert (ten['nodes'], five['nodes'], five['tasks']) == (10, 5, 80)
    assert five['walltime'] > ten['walltime'] > ten['ttx'] > 600
    assert main(['simulate', str(path), '--cores', '4', '--nodes', '0']) == 1
    assert 'nodes is 0, allowed are whole numbers from 1 on' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(['simulate', str(path), '--nodes', '10'])


def test_the_page_shows_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / 'docs/guides/simulator.md').read_text()
    programs = re.findall(r'^```python\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    assert programs
    for program in programs:
        exec(program, {})
    assert capsys.readouterr().out.startswith('needs 64 nodes for ')
    block = re.search(r'^    # heterogeneous tasks\n(?:    .*\n)+', page, re.MULTILINE)
    assert block
    Path('tasks.jsonl').write_text(re.sub('^    ', '', block[0], flags=re.MULTILINE))
    assert len(Workload.read('tasks.jsonl')) == 2510

"""Durations, rates, utilisation: of a session of which all times are known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from traced_session import CORES, SESSION, Event, events_of, uid_of, write_session

from rp_profiling.analyse.durations import TASK, concurrency, durations, final_states, polars_table, rate, table
from rp_profiling.analyse.utilisation import ACTIVITIES, Analysis
from rp_profiling.draw.export import write_chrome, write_csv
from rp_profiling.draw.pictures import all_pictures, thinned
from rp_profiling.draw.plot import save
from rp_profiling.read.description import Description, read_description
from rp_profiling.read.profile import read_profile
from rp_profiling.read.session import read_trace
from rp_profiling.read.trace import Trace
from rp_profiling.write import slots


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return read_trace(write_session(tmp_path, events_of(8)))


@pytest.fixture
def analysis(trace: Trace) -> Analysis:
    return Analysis(trace)


def test_durations_are_those_between_two_moments(trace: Trace) -> None:
    assert durations(trace, 'rank_start', 'last rank_stop') == pytest.approx([0.05] * 8)
    assert durations(trace, 'AGENT_SCHEDULING', 'end') == pytest.approx([0.08] * 8)
    assert durations(trace, 'PMGR_LAUNCHING', 'PMGR_ACTIVE', 'pilot') == pytest.approx([0.194])
    assert len(durations(trace, 'app_start', 'app_stop')) == 0


def test_the_stretches_of_a_life_are_its_whole(trace: Trace) -> None:
    data = table(trace)
    assert list(data.index) == [uid_of(number) for number in range(8)]
    # what lies between `release of resources` and the output stager is in two stretches
    whole = data[list(TASK)].sum(axis=1) - 0.002
    assert whole.to_numpy() == pytest.approx([0.092] * 8)
    assert set(data['state']) == {'DONE'}
    assert list(table(trace, 'pilot')['active']) == pytest.approx([4.805])


def test_polars_has_the_same_table(tmp_path: Path) -> None:
    """Of tasks that have run, of one that has not, and of none."""
    unrun = [event._replace(uid='task.new') for event in events_of(1)
             if event.uid == uid_of(0) and event.state == 'TMGR_SCHEDULING_PENDING']
    trace = read_trace(write_session(tmp_path / 'some', events_of(2) + unrun))
    expected, found = table(trace), polars_table(trace)
    assert found.columns == ['uid', *expected.columns]
    assert found['uid'].to_list() == list(expected.index)
    assert found['state'].to_list() == list(expected['state'])
    for name in TASK:
        assert found[name].null_count() == 1
        assert found[name].to_list() == [None if np.isnan(value) else value for value in expected[name]]
    assert polars_table(trace, 'pilot')['active'].to_list() == list(table(trace, 'pilot')['active'])
    nobody = polars_table(read_trace(write_session(tmp_path / 'none', events_of(0))))
    assert len(nobody) == 0
    assert nobody.schema == found.schema


def test_each_table_needs_its_own_library_only(tmp_path: Path) -> None:
    directory = write_session(tmp_path, events_of(1))
    for function, other in (('table', 'polars'), ('polars_table', 'pandas')):
        done = subprocess.run([sys.executable, '-c', dedent(f"""
            import sys
            sys.modules['{other}'] = None
            from rp_profiling.analyse.durations import {function}
            from rp_profiling.read.session import read_trace
            print(len({function}(read_trace(sys.argv[1]))))"""), directory], capture_output=True, text=True, timeout=55)
        assert (done.stdout, done.stderr) == ('1\n', '')


def test_the_last_of_several_final_states_counts(tmp_path: Path) -> None:
    late = [event._replace(state='CANCELED', time=event.time - 5) for event in events_of(1) if event.state == 'DONE']
    trace = read_trace(write_session(tmp_path, events_of(1) + late))
    assert final_states(trace)[trace.entities('task')].tolist() == ['DONE']


def test_concurrency_counts_those_between_two_moments(trace: Trace) -> None:
    times, count = concurrency(trace, 'rank_start', 'last rank_stop')
    assert count.max() == CORES
    assert count[-1] == 0
    # four tasks of 50 ms each overlap; then four more
    assert np.sum(count[:-1] * np.diff(times)) == pytest.approx(8 * 0.05)


def test_a_rate_counts_each_task_once(trace: Trace) -> None:
    middles, rates = rate(trace, 'rank_start', 0.1)
    assert np.sum(rates) * 0.1 == pytest.approx(8)
    assert middles[1] - middles[0] == pytest.approx(0.1)
    with pytest.raises(ValueError, match='longer than 0 s, it is 0'):
        rate(trace, 'rank_start', 0)


def test_utilisation_accounts_for_all_device_time(analysis: Analysis) -> None:
    used = analysis.utilisation()
    # 4 cores from 100 ms until the last row of the agent, at 5021 ms
    assert used.most == CORES
    assert used.available == pytest.approx(4 * 4.921)
    assert used.spent['bootstrap'] == pytest.approx(4 * 0.1)
    assert used.spent['exec cmd'] == pytest.approx(8 * 0.05)
    assert used.spent['prepare exec'] == pytest.approx(8 * 0.010)
    assert used.spent['launcher'] == pytest.approx(8 * 0.006)
    assert used.spent['termination'] == pytest.approx(4 * 0.021)
    # all have been placed at 435 ms, the last one is over at 501 ms
    assert used.spent['draining'] == pytest.approx(0.001 * (0 + 5 + 10 + 15) * 1, abs=0.12)
    assert sum(used.shares.values()) == pytest.approx(100)
    assert set(used.levels) == set(ACTIVITIES)
    assert all(level.min() >= 0 for level in used.levels.values())


def test_there_are_no_gpus(analysis: Analysis) -> None:
    used = analysis.utilisation(slots.GPU)
    assert used.available == 0
    assert set(used.shares.values()) == {0.0}
    with pytest.raises(ValueError, match="must be 'core' or 'GPU', it is 'disk'"):
        analysis.utilisation('disk')


def test_time_to_execution_and_overhead(analysis: Analysis) -> None:
    # from the scheduler at 313 ms until the last program stops at 495 ms
    assert analysis.ttx == pytest.approx(0.182)
    # programs run from 330 until 395 and from 430 until 495 ms, of the 4921 ms that the pilot was there
    assert analysis.overhead == pytest.approx(4.921 - 0.065 - 0.065)


def test_of_a_task_that_was_placed_again_the_last_run_counts(tmp_path: Path) -> None:
    """Its first nodes were lost while it ran there, for 30 ms."""
    events = events_of(8)
    mine = [event for event in events if event.uid == uid_of(7)]
    begin = next(event.time for event in mine if event.state == 'AGENT_SCHEDULING')
    runs = next(event.time for event in mine if event.event == 'rank_start')
    freed = [Event('agent_scheduling.0000', runs + 30, f'unschedule_{what}', uid_of(7)) for what in ('start', 'stop')]
    again = [event._replace(time=event.time + 500) for event in mine if event.time >= begin]
    lost = [event for event in mine if event.time <= runs]
    others = [event for event in events if event.uid != uid_of(7)]
    analysis = Analysis(read_trace(write_session(tmp_path, [*others, *lost, *freed, *again])))
    used, whole = (each.utilisation().spent for each in (analysis, Analysis(read_trace(write_session(
        tmp_path / 'whole', events)))))
    assert used['exec cmd'] == pytest.approx(whole['exec cmd'])
    assert used['prepare exec'] == pytest.approx(whole['prepare exec'] + 0.010 + 0.030)


@pytest.mark.parametrize('last', ['task_run_start', 'launch_submit'])
def test_a_task_that_was_ended_before_it_ran_has_not_run(last: str, tmp_path: Path) -> None:
    """It waited for its launcher, or that was killed."""
    events = events_of(8)
    ranks = ('exec_start', 'exec_pre', 'rank_start', 'rank_stop', 'exec_post', 'exec_stop')
    steps = [event.event for event in events if event.uid == uid_of(7) and event.file == 'agent_executing.0000']
    missing = set(ranks) if last == 'launch_submit' else set(steps[steps.index(last) + 1:-1])
    cut = [event for event in events if event.uid != uid_of(7) or event.event not in missing]
    stop = next(event.time for event in events if event.uid == uid_of(7) and event.event == 'task_run_stop')
    if last == 'launch_submit':
        cut += [Event('agent_executing.0000', stop + after, f'task_run_cancel_{what}', uid_of(7))
                for after, what in ((-1, 'start'), (0, 'stop'))]
    used, whole = (Analysis(read_trace(write_session(tmp_path / name, each))).utilisation().spent
                   for name, each in (('cut', cut), ('whole', events)))
    assert used['exec cmd'] == pytest.approx(whole['exec cmd'] - 0.050)


def test_sessions_of_older_versions_are_analysed_by_their_description(tmp_path: Path) -> None:
    events = [event._replace(msg='') for event in events_of(8) if event.event != 'resources']
    session = write_session(tmp_path, events)
    for name, key in (('tmgr', 'tasks'), ('pmgr', 'pilots')):
        items = {uid_of(n): {'uid': uid_of(n), 'description': {'ranks': 2, 'cores_per_rank': 1}} for n in range(8)}
        if name == 'pmgr':
            items = {'pilot.0000': {'uid': 'pilot.0000', 'resource_details': {
                'cores_per_node': 8, 'gpus_per_node': 1, 'node_list': [1]}}}
        (session / f'{name}.0000.json').write_text(json.dumps({key: items}))
    (session / 'broken.json').write_text('{')
    description = read_description(session)
    used = Analysis(read_trace(session), description).utilisation()
    assert used.most == 8
    assert used.spent['exec cmd'] == pytest.approx(8 * 2 * 0.05)
    # without it, each task had one core, and the pilot as many as were used at once
    assert Analysis(read_trace(session), Description()).utilisation().most == CORES


def test_a_session_without_tasks_has_figures_as_well(tmp_path: Path) -> None:
    analysis = Analysis(read_trace(write_session(tmp_path, events_of(0))))
    assert analysis.ttx == 0
    assert analysis.overhead == pytest.approx(4.921)
    assert analysis.utilisation().shares['idle'] > 95
    assert all_pictures(analysis)


@pytest.mark.parametrize('text', ['0:0-3+8:1=0.5', '0:5: 0:7:', '1:0:0+1', ''])
def test_the_short_form_of_slots_can_be_read(text: str) -> None:
    shares = slots.parse(text)
    nodes = sorted({share.node for share in shares})
    if len(text.split()) == 1:
        back = slots.short_form([{
            'node_index': node,
            **{name: [{'index': share.device, 'occupation': share.amount} for share in shares if share.kind == kind]
               for name, kind in (('cores', slots.CORE), ('gpus', slots.GPU))},
        } for node in nodes])
        assert slots.parse(back) == shares
    assert all(0 < share.amount <= 1 for share in shares)


@pytest.mark.parametrize('text', ['0:1', 'a:b:c', '0:1-x:'])
def test_other_texts_are_no_slots(text: str) -> None:
    with pytest.raises(ValueError, match=r'^'):
        slots.parse(text)


@pytest.mark.timeout(180)   # the first picture has matplotlib look for all fonts
@pytest.mark.parametrize('form', ['png', 'svg'])
def test_pictures_are_drawn_into_files(form: str, analysis: Analysis, tmp_path: Path) -> None:
    pictures = all_pictures(analysis)
    assert [picture.name for picture in pictures] == ['core-utilisation', 'concurrency', 'rates', 'lifelines', 'states']
    files = save(pictures, tmp_path / 'plots', form)
    start = {'png': b'\x89PNG', 'svg': b'<?xml'}[form]
    assert all(path.read_bytes().startswith(start) and path.stat().st_size > 5000 for path in files)
    with pytest.raises(ValueError, match="not 'gif'"):
        save(pictures, tmp_path, 'gif')


def test_a_long_line_keeps_its_extremes() -> None:
    x = np.arange(100_000, dtype=float)
    y = np.sin(x / 3000)
    y[51_234] = 17
    short_x, short_y = thinned(x, y)
    assert len(short_x) <= 6000
    assert short_y.max() == 17
    assert (short_x[0], short_x[-1]) == (0, 99_999)


def test_a_trace_viewer_gets_each_task_on_each_of_its_cores(analysis: Analysis, tmp_path: Path) -> None:
    count = write_chrome(analysis, tmp_path / 'trace.json')
    events = json.loads((tmp_path / 'trace.json').read_text())['traceEvents']
    assert len(events) == count
    tasks = [event for event in events if event.get('cat') == 'task']
    assert len(tasks) == 8
    assert tasks[0]['dur'] == pytest.approx(66_000)
    threads = {event['tid']: event['args']['name'] for event in events if event['name'] == 'thread_name'}
    assert sorted(threads.values()) == [f'node 0 core {index}' for index in range(CORES)]
    assert {event['tid'] for event in tasks} == set(threads)


def test_all_events_can_be_had_as_one_table(analysis: Analysis, tmp_path: Path) -> None:
    count = write_csv(analysis, tmp_path / f'{SESSION}.csv')
    assert count == len(analysis.trace)
    rows = read_profile(tmp_path / f'{SESSION}.csv')
    assert len(rows) == count
    assert [row.time for row in rows] == sorted(row.time for row in rows)

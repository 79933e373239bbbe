"""Less detail and compression: what users ask for, what is in the files then, and that readers get along with it."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from traced_session import Event, events_of, reduced, write_session

from rp_profiling.analyse.durations import PILOT, TASK, durations, rate, table
from rp_profiling.analyse.utilisation import Analysis
from rp_profiling.catalogue import LEFT_OUT
from rp_profiling.check import check_session
from rp_profiling.draw.pictures import all_pictures
from rp_profiling.draw.report import summary
from rp_profiling.levels import DEFAULT, FULL, OFF, STATES
from rp_profiling.read.files import text_of
from rp_profiling.read.profile import read_profile
from rp_profiling.read.session import read_trace
from rp_profiling.write.detail import USUAL, Detail, chosen, switches
from rp_profiling.write.tracer import HEADER, Tracer

LESS = Detail(STATES)
PACKED = Detail(DEFAULT, True)

# the choice


@pytest.mark.parametrize(('choice', 'detail'), [
    ('default', USUAL),
    ('full', Detail(FULL)),
    ('full states', LESS),
    ('TRUE', USUAL),
    ('anything', USUAL),
    ('states', LESS),
    ('gzip', PACKED),
    (' States, GZIP,', Detail(STATES, True)),
    ('gzip states', Detail(STATES, True)),
    ('off', Detail(OFF)),
    ('off,gzip', Detail(OFF)),
    ('', Detail(OFF)),
    (True, USUAL),
    (False, Detail(OFF)),
])
def test_choices(choice: str | bool, detail: Detail) -> None:
    assert Detail.parse(choice) == detail
    assert Detail.parse(str(detail)) == detail


@pytest.mark.parametrize(('environ', 'detail'), [
    ({}, USUAL),
    ({'RADICAL_DEFAULT_PROFILE': 'False'}, Detail(OFF)),
    ({'RADICAL_DEFAULT_PROFILE': 'False', 'RADICAL_PROFILE': 'TRUE'}, USUAL),
    ({'RADICAL_PROFILE': '0'}, Detail(OFF)),
    ({'RADICAL_PROFILE': '1', 'RADICAL_PILOT_PROFILE': 'off'}, Detail(OFF)),
    ({'RADICAL_PROFILE': 'no', 'RADICAL_PILOT_PROFILE': 'states'}, LESS),
    ({'RADICAL_PROFILE': 'gzip', 'RADICAL_PILOT_PROFILE': ''}, PACKED),
])
def test_the_most_specific_variable_that_is_set_decides(environ: dict[str, str], detail: Detail) -> None:
    assert chosen(environ) == detail


def test_a_component_has_a_switch_of_its_own() -> None:
    environ = {'RADICAL_PILOT_AGENT_EXECUTING_PROFILE': 'off', 'RADICAL_PILOT_TMGR_PROFILE': 'states',
               'RADICAL_PILOT_PMGR_PROFILE': ''}
    assert switches(environ) == {'agent_executing': 'off', 'tmgr': 'states'}
    assert not chosen(environ, 'agent_executing.0003').on
    assert chosen(environ, 'agent_scheduling.0000') == chosen(environ) == USUAL
    assert chosen(environ, 'tmgr.0000') == LESS
    assert not chosen(environ | {'RADICAL_PROFILE': 'no'}, 'tmgr.0000').on, 'all are off'
    assert chosen(environ | {'RADICAL_PROFILE': 'gzip'}, 'tmgr.0000') == Detail(STATES, True)


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_PROFILE', 'false')
    assert not chosen().on


def test_events_of_less_detail() -> None:
    assert LESS.records('advance')
    assert LESS.records('an event of an application')
    assert not LESS.records('launch_start')
    assert USUAL.records('launch_start')
    assert not Detail(OFF).records('advance')


def test_a_tracer_knows_whether_single_steps_are_wanted(tmp_path: Path) -> None:
    found = [Tracer(tmp_path / 'x.prof', 'x', detail=Detail(level)).full_detail for level in (FULL, DEFAULT, STATES)]
    assert found == [True, False, False]
    assert not Tracer(None, 'x', detail=Detail(FULL)).full_detail


# less events


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'agent_executing.0000.prof'


def test_events_that_are_left_out_are_not_in_the_file(path: Path) -> None:
    tracer = Tracer(path, 'agent_executing.0000', detail=LESS)
    tracer.record('advance', 'task.0', 'AGENT_EXECUTING', 'kept')
    tracer.record('task_start', 'task.0')
    tracer.record_many('task.0', ('task_start', 'task_run_start', 'launch_start', 'rank_start'), 'of the first')
    tracer.record_many('task.0', ('rank_stop', 'exec_stop'), 'of the first')
    tracer.record_many('task.0', ('exec_post', 'exec_stop'))
    tracer.record_bulk('schedule_try', ['task.0', 'task.1'])
    tracer.record_bulk('unschedule_stop', ['task.0', 'task.1'])
    tracer.record_each('schedule_ok', [('task.0', '0:0:')])
    tracer.record_each('get', [('task.0', '')])
    tracer.record('my own event', 'task.0')
    tracer.close()

    assert [(row.event, row.uid, row.msg) for row in read_profile(path)][1:-1] == [
        ('trace_detail', '', 'states'), ('advance', 'task.0', 'kept'), ('task_run_start', 'task.0', ''),
        ('rank_start', 'task.0', ''), ('rank_stop', 'task.0', 'of the first'), ('unschedule_stop', 'task.0', ''),
        ('unschedule_stop', 'task.1', ''), ('schedule_ok', 'task.0', '0:0:'), ('my own event', 'task.0', '')]


def test_what_is_left_out_leaves_nothing_to_write(path: Path) -> None:
    tracer = Tracer(path, 'agent_executing.0000', detail=LESS)
    for name in sorted(LEFT_OUT):
        tracer.record(name, 'task.0')
        tracer.record_bulk(name, ['task.0'] * 5000)
        tracer.record_each(name, [('task.0', '')] * 5000)
        tracer.record_many('task.0', (name, name))
    tracer.flush()
    assert not path.exists()


def test_a_profile_with_all_events_says_nothing_of_its_detail(path: Path) -> None:
    tracer = Tracer(path, 'agent_executing.0000', detail=USUAL)
    tracer.record('task_start')
    tracer.close()
    assert [row.event for row in read_profile(path)] == ['sync_abs', 'task_start', 'END']


def test_without_detail_nothing_is_written(path: Path) -> None:
    tracer = Tracer(path, 'agent_executing.0000', detail=Detail(OFF))
    tracer.record('advance')
    tracer.close()
    assert not path.exists()


# compression


def packed(path: Path) -> Path:
    return path.with_name(f'{path.name}.gz')


def record(path: Path, *uids: str) -> None:
    tracer = Tracer(path, 'agent_0', detail=PACKED)
    tracer.record_bulk('get', uids)
    tracer.close()


def test_a_compressed_profile_is_a_gzip_file(path: Path) -> None:
    uids = [f'task.{number:06}' for number in range(10_000)]
    record(path, *uids)
    assert not path.exists()
    lines = gzip.decompress(packed(path).read_bytes()).decode().splitlines()
    assert lines[0] == HEADER
    assert [line.split(',')[4] for line in lines[2:-1]] == uids
    assert packed(path).stat().st_size < sum(map(len, lines)) / 5
    assert [row.uid for row in read_profile(packed(path))][1:-1] == uids


def test_it_can_be_read_while_it_is_written(path: Path) -> None:
    tracer = Tracer(path, 'agent_0', detail=PACKED)
    for number in range(3):
        tracer.record('get', f'task.{number}')
        tracer.flush()
        assert len(gzip.decompress(packed(path).read_bytes()).splitlines()) == number + 3
        assert len(read_profile(packed(path))) == number + 2
    tracer.break_off()


def test_another_writer_extends_it(path: Path) -> None:
    record(path, 'task.0')
    record(path, 'task.1')
    assert [row.event for row in read_profile(packed(path))] == ['sync_abs', 'get', 'END'] * 2
    assert gzip.decompress(packed(path).read_bytes()).count(b'#') == 1


@pytest.mark.parametrize('lost', [1, 9, 40, 200, 2000])
def test_what_a_full_disk_has_cut_off_harms_nothing_else(path: Path, lost: int) -> None:
    """Whether the file ends there, or another writer goes on."""
    uids = [f'task.{number}.{number * number}' for number in range(3000)]
    record(path, *uids)
    whole = packed(path).read_bytes()
    record(path, 'another')
    more = packed(path).read_bytes()[len(whole):]
    cut = whole[:-lost]
    packed(path).write_bytes(cut)
    alone = read_profile(packed(path))
    packed(path).write_bytes(cut + more)
    both = read_profile(packed(path))
    assert [row.uid for row in alone][1:] == [*uids, ''][:len(alone) - 1]
    assert len(alone) > 1000
    assert both[:len(alone)] == alone
    assert [(row.event, row.uid) for row in both[len(alone):]] == [('sync_abs', ''), ('get', 'another'), ('END', '')]


def test_what_is_no_gzip_is_passed_over(path: Path) -> None:
    record(path, 'task.0')
    packed(path).write_bytes(b'what is this?' * 10_000 + packed(path).read_bytes())
    assert [row.event for row in read_profile(packed(path))] == ['sync_abs', 'get', 'END']


def test_large_profiles_are_read_in_parts(path: Path) -> None:
    for _ in range(40):
        record(path, *(os.urandom(8).hex() for _ in range(6000)))
    sizes = [len(block) for block in text_of(packed(path))]
    assert max(sizes) < sum(sizes) / 20
    assert len(read_profile(packed(path))) == 40 * 6002


def test_a_writer_that_is_killed_loses_what_it_has_not_written(path: Path) -> None:
    writer = subprocess.Popen([sys.executable, '-c', f'''
from rp_profiling.write.detail import Detail
from rp_profiling.write.tracer import Tracer
tracer = Tracer({str(path)!r}, 'agent_0', detail=Detail('default', True))
tracer.record_bulk('get', [str(number) for number in range(10_000)])
tracer.flush()
tracer.record('get', 'lost')
print('ready', flush=True)
input()
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == 'ready\n'
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=30)
    assert [row.uid for row in read_profile(packed(path))][1:] == [str(number) for number in range(10_000)]


# what readers make of it


def less(directory: Path, events: list[Event], *files: str) -> Path:
    """A session whose profiles, or only those of `files`, have less detail."""
    return write_session(directory, reduced(events, *files))


def test_a_session_of_less_detail_is_in_order(tmp_path: Path) -> None:
    findings = check_session(less(tmp_path, events_of(20)))
    assert not findings, str(findings)
    assert 'events were left out' in str(findings)


def test_what_no_profile_says_to_be_left_out_is_missed(tmp_path: Path) -> None:
    events = [event for event in events_of() if event.event not in LEFT_OUT]
    assert 'expected' in str(check_session(write_session(tmp_path, events)))


@pytest.mark.parametrize('name', ['schedule_ok', 'rank_start', 'rank_stop', 'task_run_stop', 'unschedule_stop'])
def test_what_is_recorded_with_less_detail_is_missed(name: str, tmp_path: Path) -> None:
    assert check_session(less(tmp_path, [event for event in events_of() if event.event != name]))


def test_the_order_of_less_detail_is_checked(tmp_path: Path) -> None:
    events = [event._replace(event={'rank_start': 'rank_stop', 'rank_stop': 'rank_start'}.get(event.event, event.event))
              for event in events_of()]
    assert 'rank_stop comes where' in str(check_session(less(tmp_path, events)))


def test_the_other_components_are_held_against_all_events(tmp_path: Path) -> None:
    events = events_of()
    assert not check_session(less(tmp_path / 'fine', events, 'agent_executing.0000'))
    tried = [event for event in events if event.event != 'schedule_try']
    findings = check_session(less(tmp_path / 'not', tried, 'agent_executing.0000'))
    assert 'schedule_ok comes where schedule_try' in str(findings)


def test_the_analysis_of_less_detail_is_the_same(tmp_path: Path) -> None:
    full = Analysis(read_trace(write_session(tmp_path / 'full', events_of(20))))
    some = Analysis(read_trace(less(tmp_path / 'less', events_of(20))))
    assert (some.ttx, some.overhead, some.utilisation().spent) == (full.ttx, full.overhead, full.utilisation().spent)
    assert table(some.trace).equals(table(full.trace))
    assert table(some.trace, 'pilot').equals(table(full.trace, 'pilot'))
    different = ('events',)
    assert {name: value for name, value in summary(some).items() if name not in different} == {
        name: value for name, value in summary(full).items() if name not in different}
    assert [picture.name for picture in all_pictures(some)] == [picture.name for picture in all_pictures(full)]


def test_all_stretches_of_lives_are_in_traces_of_less_detail() -> None:
    moments = {moment.removeprefix('last ') for pairs in (TASK, PILOT) for pair in pairs.values() for moment in pair}
    assert not moments & LEFT_OUT


def test_an_event_that_was_left_out_is_asked_for_in_vain(tmp_path: Path) -> None:
    trace = read_trace(less(tmp_path, events_of()))
    for ask in (lambda: durations(trace, 'launch_start', 'rank_start'), lambda: rate(trace, 'last exec_stop', 1.0)):
        with pytest.raises(ValueError, match=r'not in this trace, .*RADICAL_PILOT_PROFILE=default'):
            ask()
    assert len(durations(trace, 'app_start', 'app_stop')) == 0


@pytest.mark.parametrize('with_tasks', [False, True])
def test_a_compressed_session_is_read_as_any_other(with_tasks: bool, tmp_path: Path) -> None:
    """Those that a tracer has written, and those that a user has compressed."""
    events = [*events_of(20), Event('task.000003', 350, 'app_start', 'task.000003')]
    plain, session = (write_session(tmp_path / name, events) for name in ('plain', 'packed'))
    inside = session / 'pilot.0000' / 'task.000003'
    inside.mkdir()
    (session / 'pilot.0000' / 'task.000003.prof').rename(inside / 'task.000003.prof')
    for profile in session.rglob('*.prof'):
        if with_tasks or profile.parent != inside:
            subprocess.run(['gzip', profile], check=True)
    one, other = read_trace(plain), read_trace(session)
    assert list(one.rows()) == list(other.rows())
    assert (one.remarks, other.remarks) == ([], [])
    assert not check_session(session)
    task = other.columns.uids.find('task.000003')
    place = other.place_of_source[other.columns.source[other.first_row('app_start')[task]]]
    assert other.places[place] == 'pilot.0000'

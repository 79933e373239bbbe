"""Reading whole sessions: columns, places, clocks, and profiles of all epochs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced_session import HEADER, SESSION, START, events_of, uid_of, write_session

from rp_profiling.check import check_trace
from rp_profiling.read import align
from rp_profiling.read.columns import TICKS, Columns
from rp_profiling.read.match import group
from rp_profiling.read.names import Names
from rp_profiling.read.session import read_trace
from rp_profiling.read.trace import NEVER


def read(text: str) -> Columns:
    columns = Columns(len(text))
    columns.begin()
    columns.add(text.encode())
    return columns


def test_rows_become_columns() -> None:
    columns = read(f'{HEADER}\n12.5,advance,comp.0,main,task.0,NEW,a,b\n\n13.0000001,END,comp.0,main,,,\r\n')
    assert columns.time.tolist() == [125_000_000, 130_000_001]
    assert [columns.events[number] for number in columns.event] == ['advance', 'END']
    assert columns.sources == [(0, 0, 'comp.0', 'main')]
    assert [columns.uids[number] for number in columns.uid] == ['task.0', '']
    assert columns.messages[columns.message[0]] == 'a,b'


@pytest.mark.parametrize('torn', ['12.5,advance,comp.0', 'now,advance,comp,main,task,NEW,', '1,2,3,4,5,6', '-1,a,,,,,',
                                  '99999999999999999999,a,,,,,'])
def test_torn_rows_are_counted_and_left_out(torn: str) -> None:
    columns = read(f'1.0,a,c,t,u,s,m\n{torn}\n2.0,b,c,t,u,s,m')
    assert (columns.count, columns.torn) == (2, 1)


def test_each_writer_of_a_profile_is_known() -> None:
    columns = read('1.0,sync_abs,c,t,,,\n2.0,END,c,t,,,\n3.0,sync_abs,c,t,,,\n4.0,x,c,t,,,\n')
    assert columns.sources == [(0, 0, 'c', 't'), (0, 1, 'c', 't')]
    assert columns.source.tolist() == [0, 0, 1, 1]


def test_columns_grow() -> None:
    columns = Columns(0)
    columns.begin()
    for number in range(5):
        columns.add(''.join(f'{number}.0,e,c,t,u.{index},,\n' for index in range(1000)).encode())
    assert columns.count == 5000
    assert columns.time[-1] == 4 * TICKS


@given(st.lists(st.text(max_size=40)))
def test_names_are_numbered_once(texts: list[str]) -> None:
    names = Names()
    numbers = [names.add(text) for text in texts]
    assert [names[number] for number in numbers] == texts
    assert len(names) == len({*texts, ''})
    assert [names.find(text) for text in texts] == numbers
    with pytest.raises(IndexError):
        names[len(names)]


def test_ten_thousand_names_are_told_apart() -> None:
    names = Names()
    assert [names.add(f'task.{number:06}') for number in range(10_000)] == list(range(1, 10_001))
    assert names.find('task.009999') == 10_000
    assert names.find('task.010000') == -1


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=200))
def test_rows_are_grouped_by_key_and_sorted_by_time(pairs: list[tuple[int, int]]) -> None:
    keys = np.array([key for key, _ in pairs], np.uint32)
    times = np.array([time for _, time in pairs], np.int64)
    rows, starts = group(keys, 6, times)
    for key in range(6):
        wanted = sorted((index for index, pair in enumerate(pairs) if pair[0] == key), key=lambda row: pairs[row][1])
        assert rows[starts[key]:starts[key + 1]].tolist() == wanted


def test_a_session_is_read_from_the_application_and_its_pilots(tmp_path: Path) -> None:
    trace = read_trace(write_session(tmp_path, events_of(3)))
    assert trace.places == ['', 'pilot.0000']
    assert [trace.columns.uids[int(task)] for task in trace.entities('task')] == [uid_of(n) for n in range(3)]
    assert [trace.columns.uids[int(pilot)] for pilot in trace.entities('pilot')] == ['pilot.0000']
    history = trace.history(uid_of(1))
    assert [row.time for row in history] == sorted(row.time for row in history)
    assert history[-1].state == 'DONE'
    assert trace.history('nobody') == []
    assert trace.entered('DONE')[trace.columns.uids.find(uid_of(0))] == (START + 300 + 93) * TICKS // 1000
    assert trace.first('no such event')[0] == NEVER
    assert trace.ended.all()


def test_the_sandbox_of_a_pilot_is_read_instead_of_what_was_fetched(tmp_path: Path) -> None:
    session = write_session(tmp_path, events_of(3))
    size = len(read_trace(session))
    sandbox = tmp_path / 'elsewhere' / 'pilot.0000'
    sandbox.parent.mkdir()
    (session / 'pilot.0000').rename(sandbox)
    (sandbox / uid_of(0)).mkdir()
    (sandbox / uid_of(0) / f'{uid_of(0)}.prof').write_text(f'{START / 1000},app_step,,MainThread,{uid_of(0)},,\n')
    assert read_trace(session).places == ['']
    trace = read_trace(session, [sandbox])
    assert len(trace) == size + 1
    assert trace.places == ['', 'pilot.0000']
    # the launcher has recorded where it is
    (session / 'pmgr_launching.0000.prof').write_text(
        f'{START / 1000},submission_start,pmgr_launching.0000,MainThread,pilot.0000,,{sandbox}\n')
    assert read_trace(session).places == ['', 'pilot.0000']


def test_what_a_task_has_written_is_where_its_executor_is(tmp_path: Path) -> None:
    """Partitions have profiles of their own, and the sandboxes of their tasks in that of the pilot."""
    session = write_session(tmp_path, events_of(1))
    pilot = session / 'pilot.0000'
    partition = pilot / 'pilot.0000.0001'
    partition.mkdir()
    for profile in pilot.glob('agent_*.prof'):
        profile.rename(partition / profile.name)
    (pilot / 'bootstrap_0.prof').write_text(f'{START / 1000},bootstrap_0_start,,MainThread,pilot.0000,,\n')
    (pilot / uid_of(0)).mkdir()
    (pilot / uid_of(0) / f'{uid_of(0)}.prof').write_text(f'{START / 1000},app_step,,MainThread,{uid_of(0)},,\n')
    trace = read_trace(session)
    (row,) = trace.rows_of('app_step')
    assert trace.places[trace.place_of_source[trace.columns.source[row]]] == 'pilot.0000.0001'


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match='it is not a directory'):
        read_trace(tmp_path / 'none')
    with pytest.raises(FileNotFoundError, match='no profiles'):
        read_trace(tmp_path)


SECOND = """#time,name,uid,state,event,msg
10.0,umgr.0000:MainThread,,,sync abs,host:1.2.3.4:10.0:9.0:ntp
11.0,umgr.0000:MainThread,unit.000000,UMGR_SCHEDULING,advance,
12.0,agent_executing.0000.child:MainThread,unit.000000,AGENT_EXECUTING,advance,
"""
FIRST = '0.1000,MainThread,pilot.0,start,\n0.2500,Executor-0,unit.000001,started,with, a comma\n0.3,t,unit.1,stop,\n'


def test_profiles_until_0_46_are_read(tmp_path: Path) -> None:
    (tmp_path / 'agent.prof').write_text(SECOND)
    trace = read_trace(tmp_path)
    rows = list(trace.rows())
    assert [row.event for row in rows] == ['sync_abs', 'advance', 'advance']
    assert rows[1].comp == 'tmgr.0000'
    assert rows[1].state == 'TMGR_SCHEDULING'
    assert rows[1].time == pytest.approx(10.0)   # the clock was one second ahead
    assert len(trace.entities('task')) == 1


def test_profiles_until_0_35_are_read(tmp_path: Path) -> None:
    (tmp_path / 'agent.prof').write_text(FIRST)
    rows = list(read_trace(tmp_path).rows())
    assert rows[1][:5] == (0.25, 'started', '', 'Executor-0', 'unit.000001')
    assert rows[1].msg == 'with, a comma'


def test_states_of_2015_have_their_names_of_today(tmp_path: Path) -> None:
    (tmp_path / 'a.prof').write_text(
        '#time,name,uid,state,event,msg\n1.0,c:t,unit.0,PendingInputStaging,advance,\n2.0,c:t,unit.0,Executing,advance,\n')
    assert [row.state for row in read_trace(tmp_path).rows()] == ['TMGR_STAGING_INPUT_PENDING', 'AGENT_EXECUTING']


def test_profiles_without_absolute_time_get_it_from_a_moment_in_common(tmp_path: Path) -> None:
    (tmp_path / 'a.prof').write_text('100.0,sync_abs,a,t,,,h:1:100.0:100.0:ntp\n101.0,sync_rel,a,t,,,moment\n')
    (tmp_path / 'b.prof').write_text('1.0,x,b,t,u,,\n2.0,sync_rel,b,t,,,moment\n')
    assert {row.event: row.time for row in read_trace(tmp_path).rows()}['x'] == pytest.approx(100.0)


def test_clocks_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    for name, absolute in (('a', 10), ('b', 5)):
        (tmp_path / f'{name}.prof').write_text(f'10.0,sync_abs,{name},t,,,h:1:10.0:{absolute}.0:ntp\n')
    remark, = read_trace(tmp_path).remarks
    assert remark == 'profiles of the host h state that its clock is ahead by 0.000 s and by 5.000 s'


@pytest.mark.parametrize('wrong', [-3000, 3000])
def test_a_pilot_with_a_wrong_clock_is_brought_into_order(wrong: int, tmp_path: Path) -> None:
    events = [event._replace(time=event.time + wrong) if event.file.startswith('agent_') else event
              for event in events_of(4)]
    trace = read_trace(write_session(tmp_path, events))
    remark, = trace.remarks
    assert remark.startswith('the clock of pilot.0000 was moved by ')
    assert not check_trace(trace)


def test_a_clock_is_moved_only_as_far_as_needed() -> None:
    assert align.shift(1.0, 2.0) == 0
    assert align.shift(-1.0, 5.0) == 1.0
    assert align.shift(5.0, -2.0) == -2.0
    assert align.shift(None, None) == 0


def test_the_session_is_named_like_its_directory(tmp_path: Path) -> None:
    assert write_session(tmp_path, events_of(1)).name == SESSION

"""Clocks of hosts: what a profile says of its own, and how those of a session are put on one."""

from __future__ import annotations

from pathlib import Path

import pytest
from traced_session import START, events_of, uid_of, write_session

from rp_profiling.check import check_trace
from rp_profiling.read.align import parse_sync
from rp_profiling.read.profile import read_profile
from rp_profiling.read.session import read_trace
from rp_profiling.write import host_clock
from rp_profiling.write.host_clock import SAME, HostClock, Reading
from rp_profiling.write.tracer import Tracer

MS = 1_000_000
"""Nanoseconds."""


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> int:
    """The time, which stands still."""
    monkeypatch.setattr(host_clock, 'time_ns', lambda: 1_700_000_000 * 1000 * MS)
    return 1_700_000_000 * 1000 * MS


def test_a_clock_that_nobody_has_compared_is_taken_as_it_is(now: int) -> None:
    clock = HostClock()
    sync = parse_sync(clock.statement(now))
    assert sync is not None
    assert (sync.here, sync.ahead, sync.mode) == (1_700_000_000, 0, 'sys')
    assert clock.reference() is None
    assert clock.here(now) is None


def test_that_of_the_reference_itself_is_known_to_be_right(now: int) -> None:
    clock = HostClock()
    assert clock.read(SAME) is None
    assert clock.reference() == now == clock.here(now)
    assert clock.statement(now).endswith(':sys')


def test_a_difference_is_said(now: int) -> None:
    clock = HostClock()
    moment = clock.read(Reading(2500 * MS, MS))
    assert moment == (clock.statement(now), now, now - 2500 * MS)
    sync = parse_sync(moment.message)
    assert sync is not None
    assert (sync.here, sync.ahead, sync.mode) == (1_700_000_000, 2.5, 'ntp')
    assert clock.reference() == now - 2500 * MS
    assert clock.here(now - 2500 * MS) == now


def test_what_cannot_be_told_from_the_error_is_no_difference_and_no_news(now: int) -> None:
    clock = HostClock()
    assert clock.read(Reading(MS, MS)) is None
    assert clock.reference() == now
    assert clock.read(Reading(10 * MS, MS)) is not None
    assert clock.read(Reading(11 * MS, MS)) is None
    assert clock.read(Reading(0, MS)) is not None, 'somebody has set the clock'
    assert clock.statement(now).endswith(':ntp')


def test_a_profile_says_what_is_known_when_it_is_opened(tmp_path: Path, now: int) -> None:
    clock = HostClock()
    early, late = (Tracer(tmp_path / f'{name}.prof', name, clock=clock) for name in ('early', 'late'))
    early.record('x')
    early.flush()
    moment = clock.read(Reading(2500 * MS, MS))
    assert moment
    early.relate(moment.message, moment.here, 'pilot.0000')
    late.close()
    early.close()
    assert [(row.event, row.msg.rpartition(':')[2]) for row in read_profile(tmp_path / 'late.prof')] == [
        ('sync_abs', 'ntp'), ('END', '')]
    assert [(row.event, row.uid, row.msg) for row in read_profile(tmp_path / 'early.prof')][2:] == [
        ('sync_rel', 'pilot.0000', moment.message), ('END', '', '')]


def ahead_of(path: Path, ahead: float, host: str = 'far', mode: str = 'ntp',
             then: tuple[float, float] = (0, 0)) -> None:
    """Write a profile of a host whose clock is ahead by these seconds, and `then` (when, by how many) by others."""
    absolute = 100.0 if mode == 'ntp' else 100.0 + ahead
    rows = [f'{100 + ahead},sync_abs,{path.stem},t,,,{host}:1.2.3.4:{100 + ahead}:{absolute}:{mode}',
            f'{101 + ahead},x,{path.stem},t,u.{path.stem},,']
    if then[0]:
        when, more = then
        rows += [f'{when + more},sync_rel,{path.stem},t,,,{host}:1.2.3.4:{when + more}:{when}:ntp',
                 f'{(when + 100) / 2 + (more + ahead) / 2},y,{path.stem},t,u.{path.stem},,']
    path.parent.mkdir(exist_ok=True)
    path.write_text('\n'.join(rows) + '\n')


def times(directory: Path, event: str = 'x') -> dict[str, object]:
    return {row.comp: pytest.approx(row.time, abs=1e-5) for row in read_trace(directory).rows() if row.event == event}


def test_what_one_profile_of_a_host_says_holds_for_all_of_them(tmp_path: Path) -> None:
    ahead_of(tmp_path / 'a.prof', 5.0)
    ahead_of(tmp_path / 'b.prof', 5.0, mode='sys')
    ahead_of(tmp_path / 'c.prof', 0.0, host='near', mode='sys')
    assert times(tmp_path) == {'a': 101.0, 'b': 101.0, 'c': 101.0}


def test_a_clock_drifts_evenly_between_two_statements(tmp_path: Path) -> None:
    ahead_of(tmp_path / 'a.prof', 5.0, then=(200.0, 6.0))
    assert times(tmp_path, 'y') == {'a': 150.0}


def test_what_shells_write_is_by_the_clock_beside_them(tmp_path: Path) -> None:
    pilot = tmp_path / 'pilot.0000'
    ahead_of(pilot / 'agent_0.prof', 5.0)
    ahead_of(pilot / 'agent_executing.0001.prof', 7.0, host='node')
    with (pilot / 'agent_executing.0001.prof').open('a') as file:
        file.write('108.0,task_run_start,agent_executing.0001,t,task.000001,,\n')
    (pilot / 'task.000001.prof').write_text('109.0,x,,t,task.000001,,\n')
    (pilot / 'bootstrap_0.prof').write_text('98.0,sync_abs,bootstrap_0,t,pilot.0000,,98.0\n99.0,x,bootstrap_0,t,,,\n')
    assert times(tmp_path) == {'agent_0': 101.0, 'agent_executing.0001': 101.0, '': 102.0, 'bootstrap_0': 94.0}


@pytest.mark.parametrize('ahead', [-7, 3])
def test_a_session_over_hosts_is_in_order(ahead: int, tmp_path: Path) -> None:
    """The agent has compared its clock: nothing has to be guessed."""
    events = [event._replace(time=event.time + 1000 * ahead) if event.file.startswith('agent_') else event
              for event in events_of(4)]
    said = f'node:1.2.3.4:{START / 1000 + ahead}:{START / 1000}:ntp'
    events = [event._replace(msg=said) if event.file == 'agent_0' and event.event == 'sync_abs' else
              event._replace(msg=event.msg.replace('host:127.0.0.1', 'node:1.2.3.4')) if event.file.startswith('agent_')
              else event for event in events]
    trace = read_trace(write_session(tmp_path, events))
    assert trace.remarks == []
    assert not check_trace(trace)
    assert trace.history(uid_of(0))[0].state == 'NEW'

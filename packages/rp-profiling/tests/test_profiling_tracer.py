"""The trace writer: what stands in the file, and that tracing never harms what is traced."""

from __future__ import annotations

import csv
import errno
import logging
import os
import subprocess
import sys
import threading
import time
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rp_profiling.read.profile import Row, read_profile
from rp_profiling.write import tracer as tracer_module
from rp_profiling.write.rows import timestamp
from rp_profiling.write.tracer import HEADER, LOGGER, Tracer

if TYPE_CHECKING:
    from typing_extensions import Buffer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'agent_0.prof'


def events(path: Path) -> list[str]:
    return [row.event for row in read_profile(path)]


def recorded(path: Path) -> list[Row]:
    """The rows between the synchronisation and the end."""
    rows = read_profile(path)
    assert [rows[0].event, rows[-1].event] == ['sync_abs', 'END']
    return rows[1:-1]


def test_a_row_comes_back_as_it_was_recorded(path: Path) -> None:
    tracer = Tracer(path, 'agent_0', thread='Loop')
    tracer.record('advance', uid='task.000000', state='AGENT_EXECUTING', msg='a message')
    tracer.close()

    (row,) = recorded(path)
    assert row[1:] == ('advance', 'agent_0', 'Loop', 'task.000000', 'AGENT_EXECUTING', 'a message')


def test_the_file_begins_with_the_header_and_the_synchronisation(path: Path) -> None:
    tracer = Tracer(path, 'agent_0')
    tracer.record('component_init')
    tracer.close()

    header, sync, *_ = path.read_text().splitlines()
    assert header == HEADER == '#time,event,comp,thread,uid,state,msg'
    when, event, comp, thread, uid, state, msg = sync.split(',')
    assert (event, comp, thread, uid, state) == ('sync_abs', 'agent_0', 'MainThread', '', '')
    host, address, system, absolute, mode = msg.split(':')
    assert host == os.uname().nodename
    assert len(address.split('.')) == 4
    assert when == system == absolute
    assert mode == 'sys'


def test_times_are_those_of_the_clock_and_no_row_is_older_than_the_first(path: Path) -> None:
    before = timestamp(time.time_ns())
    tracer = Tracer(path, 'agent_0')
    tracer.record('hostname')
    tracer.record_bulk('get', ['task.0'])
    tracer.record_many('task.0', ('exec_start', 'rank_start'))
    tracer.close()

    times = [line.partition(',')[0] for line in path.read_text().splitlines()[1:]]
    assert len(times) == 6
    in_order = [before, *times, timestamp(time.time_ns())]
    assert in_order == sorted(in_order)


def test_a_bulk_is_one_row_for_each_uid_with_one_time(path: Path) -> None:
    tracer = Tracer(path, 'agent_scheduling.0000')
    uids = ['task.0', 'task.1', 'task.2']
    tracer.record_bulk('advance', uids, state='AGENT_SCHEDULING')
    uids.clear()  # what the caller does with its list afterwards does not matter
    tracer.record_bulk('advance', [])
    tracer.close()

    rows = recorded(path)
    assert [row.uid for row in rows] == ['task.0', 'task.1', 'task.2']
    assert len({row.time for row in rows}) == 1
    assert {row.state for row in rows} == {'AGENT_SCHEDULING'}


def test_several_events_of_one_uid_keep_their_order_and_have_one_time(path: Path) -> None:
    tracer = Tracer(path, 'agent_executing.0000')
    tracer.record_many('task.0', ('exec_stop', 'exec_start', 'exec_stop'))
    tracer.record_many('task.1', ())
    tracer.close()

    rows = recorded(path)
    assert [row[1:] for row in rows] == [
        (event, 'agent_executing.0000', 'MainThread', 'task.0', '', '')
        for event in ('exec_stop', 'exec_start', 'exec_stop')
    ]
    assert len({row.time for row in rows}) == 1


@pytest.mark.parametrize(
    ('text', 'stored'),
    [
        ('a,b,', 'a;b;'),
        ('one\ntwo\r\nthree', 'one two  three'),
        ('say "no"', "say 'no'"),
        ('nul\0 and \u2028 line', 'nul  and   line'),
        ('lone \udcff surrogate', 'lone   surrogate'),
        ('größe 任务', 'größe 任务'),
    ],
)
def test_whatever_a_field_holds_a_row_stays_one_row_of_seven_fields(
    path: Path, text: str, stored: str
) -> None:
    tracer = Tracer(path, comp=text, thread=text)
    tracer.record(text, uid=text, state=text, msg=text)
    tracer.record_bulk(text, [text], text, text)
    tracer.record_many(text, (text,))
    tracer.close()

    assert [row[1:] for row in recorded(path)] == [(stored,) * 6] * 2 + [(*(stored,) * 4, '', '')]
    with open(path, newline='', encoding='utf-8') as file:
        assert [len(row) for row in csv.reader(file)] == [7] * 6


def test_a_field_that_is_not_text_does_not_stop_the_trace(path: Path) -> None:
    tracer = Tracer(path, 'agent_0')
    tracer.record('app_value', uid=None, msg=17)  # type: ignore[arg-type]
    tracer.close()

    assert [(row.uid, row.msg) for row in recorded(path)] == [('None', '17')]


def test_nothing_is_written_before_the_first_flush_which_makes_the_directory(tmp_path: Path) -> None:
    path = tmp_path / 'session' / 'pilot' / 'agent_0.prof'
    tracer = Tracer(path, 'agent_0')
    tracer.flush()
    tracer.record('component_init')
    assert not path.parent.exists()

    tracer.flush()
    assert events(path) == ['sync_abs', 'component_init']
    tracer.record('component_final')
    tracer.close()
    assert events(path) == ['sync_abs', 'component_init', 'component_final', 'END']


def test_thousands_of_events_are_written_without_a_flush(path: Path) -> None:
    tracer = Tracer(path, 'agent_0')
    for index in range(10_000):
        tracer.record('get', uid=str(index))
    assert len(events(path)) >= 5_000
    tracer.close()
    assert [row.uid for row in recorded(path)] == [str(index) for index in range(10_000)]


def test_large_bulks_are_written_without_a_flush(path: Path) -> None:
    tracer = Tracer(path, 'agent_0')
    uids = [f'task.{index}' for index in range(1000)]
    for _ in range(10):
        tracer.record_bulk('get', uids)
    assert len(events(path)) >= 5_000
    tracer.close()
    assert [row.uid for row in recorded(path)] == uids * 10


def test_a_bulk_is_given_up_with_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracer = Tracer(tmp_path, 'agent_0')  # a directory
    tracer.record_bulk('get', ['task.0'] * 50_000)
    assert not tracer.enabled
    assert len(caplog.records) == 1
    assert tracer._take() == b''


def test_close_twice_writes_one_end_and_later_events_are_not_kept(path: Path) -> None:
    tracer = Tracer(path, 'agent_0')
    tracer.record('component_init')
    tracer.close()
    assert not tracer.enabled
    tracer.record('get')
    tracer.record_bulk('get', ['task.0'])
    tracer.flush()
    tracer.close()

    assert events(path) == ['sync_abs', 'component_init', 'END']


def test_a_profile_that_is_broken_off_has_no_end(path: Path) -> None:
    tracer = Tracer(path, 'agent_0')
    tracer.record('component_init')
    tracer.break_off()
    tracer.record('get')
    tracer.close()
    assert events(path) == ['sync_abs', 'component_init']


def test_a_second_tracer_extends_the_file_with_no_second_header(path: Path) -> None:
    for _ in range(2):
        tracer = Tracer(path, 'agent_0')
        tracer.record('component_init')
        tracer.close()

    assert events(path) == ['sync_abs', 'component_init', 'END'] * 2
    assert path.read_text().count('#') == 1


def test_the_torn_row_of_a_dead_writer_stays_on_a_line_of_its_own(path: Path) -> None:
    path.write_text(f'{HEADER}\n1700000000.0000000,get,agent_0,MainTh')
    tracer = Tracer(path, 'agent_0')
    tracer.record('component_init')
    tracer.close()

    assert path.read_text().splitlines()[1] == '1700000000.0000000,get,agent_0,MainTh'
    assert events(path) == ['sync_abs', 'component_init', 'END']


def test_no_row_is_lost_or_doubled_when_threads_record_and_flush(path: Path) -> None:
    tracer = Tracer(path, 'agent_0')
    start = threading.Barrier(5)

    def work(name: str) -> None:
        start.wait()
        for index in range(3000):
            tracer.record('get', uid=f'{name}.{index}')
            if index % 100 == 0:
                tracer.record_bulk('put', [f'{name}.{index}', f'{name}.{index}.bulk'])
                tracer.record_many(f'{name}.größe', ('exec_start', 'exec_stop'))
                tracer.flush()

    threads = [threading.Thread(target=work, args=(name,)) for name in 'abcd']
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join()
    tracer.close()

    rows = recorded(path)
    for name in 'abcd':
        own = [row.uid for row in rows if row.event == 'get' and row.uid.startswith(name)]
        assert own == [f'{name}.{index}' for index in range(3000)]
    assert sum(row.event == 'put' for row in rows) == 4 * 30 * 2
    assert sum(row.uid.endswith('größe') for row in rows) == 4 * 30 * 2


def test_without_a_path_nothing_is_recorded() -> None:
    tracer = Tracer(None, 'agent_0')
    assert not tracer.enabled
    tracer.record('component_init')
    tracer.record_bulk('get', ['task.0'])
    tracer.flush()
    tracer.close()
    assert not tracer.enabled


def assert_gives_up(tracer: Tracer, path: Path | str, caplog: pytest.LogCaptureFixture) -> None:
    """Each call that may write is made, and there is exactly one warning, which names the file."""
    caplog.set_level(logging.WARNING, LOGGER)
    tracer.record('component_init')
    tracer.flush()
    assert not tracer.enabled
    for _ in range(5000):
        tracer.record('get', uid='task.0')
    tracer.record_bulk('get', ['task.0'] * 5000)
    tracer.record_many('task.0', ('get',) * 5000)
    tracer.flush()
    tracer.close()
    (record,) = caplog.records
    assert (record.name, record.levelno) == (LOGGER, logging.WARNING)
    assert str(path) in record.getMessage()


def test_a_path_below_a_file_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / 'file').write_text('')
    path = tmp_path / 'file' / 'agent_0.prof'
    assert_gives_up(Tracer(path, 'agent_0'), path, caplog)


def test_a_path_that_no_file_can_have_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    assert_gives_up(Tracer('bad\0name', 'agent_0'), 'bad', caplog)


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='this system has no /dev/full')
def test_a_full_disk_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    assert_gives_up(Tracer('/dev/full', 'agent_0'), '/dev/full', caplog)


class SlowDisk(FileIO):
    """Takes a few bytes with each write."""

    def write(self, data: Buffer, /) -> int:
        return super().write(bytes(data)[:7])


def test_a_disk_that_takes_rows_in_parts_gets_them_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer_module, '_open', lambda name: SlowDisk(name, 'a+'))
    tracer = Tracer(path, 'agent_0')
    tracer.record_bulk('get', ['task.0', 'task.1'])
    tracer.close()
    assert [row.uid for row in recorded(path)] == ['task.0', 'task.1']


class LateDisk(FileIO):
    """Reports only when it is closed that nothing was stored."""

    def close(self) -> None:
        was_open = not self.closed
        super().close()
        if was_open:
            raise OSError('disk quota exceeded')


def test_a_failure_that_shows_at_close_is_warned_of_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracer_module, '_open', lambda name: LateDisk(name, 'a+'))
    tracer = Tracer(path, 'agent_0')
    tracer.close()
    tracer.close()
    assert caplog.messages == [f'profile {path} ends here, it cannot be written: disk quota exceeded']


class Descriptors:
    """Opens files as soon as there are descriptors."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.free = False
        self._open = tracer_module._open
        patch.setattr(tracer_module, '_open', self.open)

    def open(self, path: str) -> FileIO:
        if not self.free:
            raise OSError(errno.EMFILE, 'Too many open files')
        return self._open(path)


def test_rows_wait_for_a_descriptor(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = Descriptors(monkeypatch)
    tracer = Tracer(path, 'agent_0')
    tracer.record('get', 'task.0')
    tracer.flush()
    tracer.record_bulk('get', ['task.1'] * 20_000)
    assert not path.exists()
    descriptors.free = True
    tracer.flush()
    assert [row.uid for row in read_profile(path)] == ['', 'task.0', *['task.1'] * 20_000]
    tracer.close()
    assert len(recorded(path)) == 20_001


@pytest.mark.parametrize('closing', [False, True])
def test_they_do_not_wait_without_end(path: Path, closing: bool, monkeypatch: pytest.MonkeyPatch,
                                      caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(tracer_module, 'WAITING', 100_000)
    Descriptors(monkeypatch)
    tracer = Tracer(path, 'agent_0')
    tracer.record_bulk('get', ['task.0'] * (1 if closing else 20_000))
    if closing:
        tracer.close()
    assert not tracer.enabled
    assert len(caplog.records) == 1


def test_a_directory_in_place_of_the_file_is_warned_of_once_at_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracer = Tracer(tmp_path, 'agent_0')
    tracer.record('component_init')
    tracer.close()
    assert [record.name for record in caplog.records] == [LOGGER]


def test_importing_the_tracer_does_not_load_what_it_seldom_needs() -> None:
    code = (
        'import sys; before = set(sys.modules); import rp_profiling.write.tracer;'
        'print(*sorted(set(sys.modules) - before))'
    )
    result = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert 'rp_profiling.write.tracer' in loaded
    assert not loaded & {'socket', 'logging', 'dataclasses', 'rp_profiling.catalogue'}

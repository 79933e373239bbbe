"""Profiles of a virtual clock are profiles as any other."""

from __future__ import annotations

from pathlib import Path

from rp_profiling.read.profile import Row, read_profile
from rp_profiling.write.virtual import EPOCH, VirtualTracer


class Clock:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rows_have_the_times_of_the_clock(tmp_path: Path) -> None:
    clock = Clock()
    tracer = VirtualTracer(tmp_path / 'a' / 'comp.prof', 'comp', clock)
    tracer.record('hello', 'task.0', 'NEW', 'one, two')
    clock.now = 1.5
    tracer.record_many('task.1', ('first', 'second'), 'a, b')
    tracer.record_bulk('advance', ['task.2', 'task.3'], 'DONE')
    clock.now = 2000.25
    tracer.record_each('schedule_ok', [('task.2', '0:1:'), ('task.3', '0:2:')])
    tracer.close()

    def row(time: float, event: str, uid: str = '', state: str = '', msg: str = '') -> Row:
        return Row(EPOCH + time, event, 'comp', 'MainThread', uid, state, msg)

    stamp = f'{EPOCH}.0000000'
    assert read_profile(tmp_path / 'a' / 'comp.prof') == [
        row(0, 'sync_abs', msg=f'simulated:127.0.0.1:{stamp}:{stamp}:sys'),
        row(0, 'hello', 'task.0', 'NEW', 'one; two'),
        row(1.5, 'first', 'task.1', msg='a; b'), row(1.5, 'second', 'task.1'),
        row(1.5, 'advance', 'task.2', 'DONE'), row(1.5, 'advance', 'task.3', 'DONE'),
        row(2000.25, 'schedule_ok', 'task.2', '', '0:1:'), row(2000.25, 'schedule_ok', 'task.3', '', '0:2:'),
        row(2000.25, 'END')]


def test_many_rows_are_all_there_and_in_order(tmp_path: Path) -> None:
    clock = Clock()
    tracer = VirtualTracer(tmp_path / 'comp.prof', 'comp', clock)
    for number in range(10_000):
        clock.now = number / 8
        tracer.record('tick', f'task.{number}')
    tracer.close()
    rows = read_profile(tmp_path / 'comp.prof')[1:-1]
    assert [row.uid for row in rows] == [f'task.{number}' for number in range(10_000)]
    assert rows[-1].time == EPOCH + 9_999 / 8


def test_without_a_path_nothing_is_kept(tmp_path: Path) -> None:
    tracer = VirtualTracer(None, 'comp', Clock())
    tracer.record('tick')
    tracer.record_many('task', ('tick',))
    tracer.record_bulk('tick', ['task'])
    tracer.record_each('tick', [('task', '')])
    tracer.close()
    assert list(tmp_path.iterdir()) == []

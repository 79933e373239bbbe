"""Records of function calls: written, read, checked, and made into figures and pictures."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Sequence
from pathlib import Path
from time import time_ns

import numpy as np
import pytest

from rp_profiling.calls import Calls, concurrency, durations, figures, rate, read_calls, use
from rp_profiling.check import check_trace
from rp_profiling.draw.pictures import call_pictures
from rp_profiling.read.calls import read_file
from rp_profiling.read.session import read_trace
from rp_profiling.write.calls import ASYNC, DONE, END, FAILED, HEAD, INTERRUPTED, MAGIC, PART, TASK, CallFile
from rp_profiling.write.tracer import Tracer

WORKER = 'raptor.0000.0000'
SECOND = 1_000_000_000

Record = tuple[float, float, int]
"""Start and end in seconds, and what it was."""


def packed(records: Sequence[Record], zero: int) -> bytes:
    return b''.join(struct.pack('<qq', zero + round(start * SECOND), round((stop - start) * SECOND) << 8 | what)
                    for start, stop, what in records)


def written(directory: Path, records: Sequence[Record], rank: int = 0, closed: bool = True, ended: bool = True) -> Path:
    """The file of a rank that has begun at second 0 and ended with its last record.

    It and the profile of the rank have no end if they were not `closed`, or the rank was not `ended`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tracer = Tracer(directory / f'{WORKER}.{rank}.prof', f'raptor_worker.{WORKER}.{rank}')
    tracer.open()
    if ended:
        tracer.close()
    else:
        tracer.break_off()
    before = set(directory.glob('*.calls'))
    file = CallFile(str(directory), WORKER, rank)
    path, = set(directory.glob('*.calls')) - before
    begun = read_file(path)
    zero = begun.begun - offset_of(path)
    last = max((stop for _, stop, _ in records), default=0.0)
    file.write(packed([*records, *([(last, last, END)] if closed and ended else [])], zero))
    file.close()
    return path


def offset_of(path: Path) -> int:
    data = path.read_bytes()
    _, _, size = HEAD.unpack(data[:HEAD.size])
    return int(json.loads(data[HEAD.size:HEAD.size + size])['offset'])


def calls_of(directory: Path) -> Calls:
    return read_calls(read_trace(directory))


SOME: list[Record] = [(0.0, 1.0, DONE), (1.0, 1.5, TASK | FAILED), (2.0, 4.0, INTERRUPTED)]


def test_records_come_back(tmp_path: Path) -> None:
    before = time_ns()
    content = read_file(written(tmp_path, SOME))
    assert (content.worker, content.rank, content.closed, content.torn) == (WORKER, 0, True, 0)
    assert before <= content.begun <= time_ns()
    assert ((content.start - content.begun) / SECOND).tolist() == [0, 1, 2, 4]
    assert ((content.stop - content.start) / SECOND).tolist() == [1, 0.5, 2, 0]
    assert content.what.tolist() == [DONE, TASK | FAILED, INTERRUPTED, END]
    assert (HEAD.size + len(written(tmp_path / 'more', []).read_bytes())) % 16 == 0


def test_a_session_has_the_calls_of_all_ranks(tmp_path: Path) -> None:
    written(tmp_path / 'pilot' / 'worker', SOME)
    written(tmp_path / 'pilot' / 'worker', SOME[:1], rank=1, ended=False)
    calls = calls_of(tmp_path)
    assert [(rank.worker, rank.rank, rank.closed) for rank in calls.ranks] == [(WORKER, 0, True), (WORKER, 1, False)]
    assert calls.rank.tolist() == [0, 0, 0, 1]
    assert calls.outcome.tolist() == [DONE, FAILED, INTERRUPTED, DONE]
    assert calls.described.tolist() == [False, True, False, False]
    assert durations(calls).tolist() == [1, 0.5, 2, 1]
    assert calls.remarks == []
    assert not check_trace(read_trace(tmp_path))


def test_a_rank_that_was_started_again_has_another_file(tmp_path: Path) -> None:
    paths = [written(tmp_path, SOME, ended=number > 0) for number in range(2)]
    assert [path.name for path in paths] == [f'{WORKER}.0.calls', f'{WORKER}.0.1.calls']
    assert len(calls_of(tmp_path)) == 2 * len(SOME)


def test_an_incomplete_record_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, SOME, closed=False)
    path.write_bytes(path.read_bytes()[:-5])
    calls = calls_of(tmp_path)
    assert len(calls) == len(SOME) - 1
    assert calls.remarks == [f'{path}: the last record is incomplete']


@pytest.mark.parametrize(('change', 'said'), [
    (lambda data: MAGIC + struct.pack('<I', 2) + data[12:], 'version 2 of their format, but .* version 1'),
    (lambda data: b'anything' + data[8:], 'has no records of calls'),
    (lambda data: data[:10], 'has no records of calls'),
    (lambda data: data[:20], 'broken header'),
    (lambda data: data.replace(b'"rank"', b'"knar"'), 'broken header'),
])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, change: object, said: str) -> None:
    path = written(tmp_path, SOME)
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ValueError, match=said):
        read_file(path)
    calls = calls_of(tmp_path)
    assert len(calls) == 0
    assert len(calls.remarks) == 1
    assert str(path) in calls.remarks[0]


def test_a_failed_write_ends_the_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        file = CallFile(str(tmp_path / 'missing'), WORKER, 0)
        file.write(b'x' * 16)
        file.close()
    assert not file.ok
    assert len(caplog.records) == 1
    assert 'end here, they cannot be written' in caplog.text


def test_figures_and_curves(tmp_path: Path) -> None:
    written(tmp_path, [(0.0, 1.0, DONE), (1.0, 2.0, DONE), (3.0, 4.0, FAILED)])
    written(tmp_path, [(0.0, 4.0, DONE)], rank=1)
    calls = calls_of(tmp_path)
    # both ranks have begun within a moment of each other
    found = figures(calls)
    assert (found.calls, found.failed, found.ranks, found.longest) == (4, 1, 2, 4)
    assert found.mean == pytest.approx(7 / 4)
    assert found.use == pytest.approx(7 / 8, rel=0.05)
    _, busy = concurrency(calls, 4)
    assert busy == pytest.approx([2, 2, 1, 2], abs=0.2)
    times, rates = rate(calls, 4)
    assert rates.sum() * (times[1] - times[0]) == pytest.approx(4)
    used = use(calls, 4)
    assert used.there == pytest.approx([2, 2, 2, 2], abs=0.2)
    assert used.busy == pytest.approx(busy)


def test_asynchronous_calls_share_their_rank(tmp_path: Path) -> None:
    written(tmp_path, [(0.0, 4.0, ASYNC)] * 10)
    calls = calls_of(tmp_path)
    assert concurrency(calls, 4)[1] == pytest.approx([10] * 4, rel=0.01)
    assert use(calls, 4).busy == pytest.approx([1] * 4, rel=0.01)
    assert not check_trace(read_trace(tmp_path))


def test_a_call_of_several_ranks_counts_once(tmp_path: Path) -> None:
    for rank in range(3):
        written(tmp_path, [(0.0, 1.0, PART if rank else DONE)], rank=rank)
    calls = calls_of(tmp_path)
    assert figures(calls).calls == 1
    assert use(calls, 1).busy == pytest.approx([3], rel=0.1)


def test_means_are_exact_over_long_times(tmp_path: Path) -> None:
    """As many calls as intervals, each a thousandth of its interval, for ten days."""
    length = 864.0
    written(tmp_path, [(number * length, (number + 0.001) * length, DONE) for number in range(1000)]
            + [(1000 * length, 1000 * length, DONE)])
    _, busy = concurrency(calls_of(tmp_path))
    assert busy == pytest.approx(np.full(1000, 0.001), rel=1e-3)


def test_without_calls_there_are_no_pictures(tmp_path: Path) -> None:
    written(tmp_path, [])
    calls = calls_of(tmp_path)
    assert call_pictures(calls) == []
    assert figures(calls).calls == 0
    (tmp_path / f'{WORKER}.0.calls').unlink()
    assert figures(calls_of(tmp_path)).calls == 0


def test_the_pictures_have_all_calls(tmp_path: Path) -> None:
    written(tmp_path, SOME)
    pictures = {picture.name: picture for picture in call_pictures(calls_of(tmp_path))}
    assert list(pictures) == ['call-concurrency', 'call-rate', 'rank-utilisation', 'call-durations']
    assert pictures['call-durations'].layers[0].y.sum() == len(SOME)
    assert pictures['call-durations'].is_log


def test_a_table_for_polars(tmp_path: Path) -> None:
    pytest.importorskip('polars')
    written(tmp_path, SOME)
    table = calls_of(tmp_path).polars_table()
    assert table['outcome'].to_list() == ['done', 'failed', 'interrupted']
    assert table['kind'].to_list() == ['function', 'task', 'function']
    assert (table['stop'] - table['start']).to_list() == pytest.approx([1, 0.5, 2])


@pytest.mark.parametrize(('records', 'closed', 'said'), [
    ([(0.0, 1.0, DONE), (0.5, 2.0, DONE)], True, 'begins before the one before it has ended'),
    ([(1.0, 0.5, DONE)], True, 'begins before the one before it has ended'),
    (SOME, False, 'has closed its profile, but not its records'),
])
def test_the_check_finds_faults(tmp_path: Path, records: list[Record], closed: bool, said: str) -> None:
    written(tmp_path, records, closed=closed)
    findings = check_trace(read_trace(tmp_path))
    assert said in str(findings)
    assert findings.counts.total() == 1


def test_the_check_misses_files_of_records(tmp_path: Path) -> None:
    written(tmp_path, SOME).unlink()
    assert 'has 1 parts of its profile, but 0 files of records' in str(check_trace(read_trace(tmp_path)))

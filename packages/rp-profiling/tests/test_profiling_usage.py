"""Requested against used, by kind of task, with suggestions; failed tasks by cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traced_session import SESSION, events_of, write_session

from rp_profiling.analyse.usage import usage_of
from rp_profiling.cli import trace

GB = 1 << 30
NOTHING = dict.fromkeys(('cause', 'reason', 'requested_memory', 'timeout', 'duration', 'cpu', 'memory', 'gpu'))


def row(**values: Any) -> dict[str, Any]:
    return NOTHING | {'uid': 'task.000000', 'program': 'sim', 'state': 'DONE', 'cached': False, 'ranks': 1, 'cores': 1,
                      'gpus': 0.0} | values


def suggestions(*rows: dict[str, Any]) -> list[str]:
    kind, = usage_of(rows).kinds
    return kind.suggestions()


@pytest.mark.parametrize(('values', 'expected'), [
    ({'cores': 4, 'duration': 10.0, 'cpu': 11.0},
     'asks for 4 cores, uses 1.1: request 1, or have it use more threads (OMP_NUM_THREADS)'),
    ({'cores': 16, 'ranks': 2, 'duration': 10.0, 'cpu': 62.0},
     'asks for 8 cores per rank, uses 3.1: request 3, or have it use more threads (OMP_NUM_THREADS)'),
    ({'duration': 10.0, 'cpu': 38.0},
     'asks for 1 core, uses 3.8: request 4, or limit its threads (OMP_NUM_THREADS)'),
    ({'requested_memory': 8 * GB, 'duration': 10.0, 'memory': 2 * GB},
     'asks for 8.0 GB of memory, uses 2.0 GB: request 2.5 GB'),
    ({'ranks': 2, 'cores': 2, 'requested_memory': 2 * GB, 'duration': 10.0, 'memory': 3 * GB},
     'asks for 1.0 GB of memory per rank, uses 1.5 GB: request 1.9 GB'),
    ({'timeout': 10.0, 'duration': 9.5}, 'the longest took 95 % of the time limit: set a longer one'),
    ({'gpus': 2.0, 'duration': 10.0, 'gpu': 0.04},
     'uses 4 % of its GPUs: request fewer, or a share of one (gpus_per_rank below 1)'),
])
def test_suggestions(values: dict[str, Any], expected: str) -> None:
    assert suggestions(row(**values)) == [expected]


@pytest.mark.parametrize('values', [
    {'cores': 4, 'duration': 10.0, 'cpu': 31.0}, {'cores': 4, 'duration': 0.01, 'cpu': 0.001},
    {'cores': 4}, {'cores': 4, 'duration': 10.0}, {'cores': 4, 'duration': 10.0, 'cpu': 0.1, 'cached': True},
    {'cores': 4, 'duration': 10.0, 'cpu': 0.1, 'state': 'CANCELED'},
    {'requested_memory': 2 * GB, 'duration': 10.0, 'memory': 1.5 * GB}, {'requested_memory': 2 * GB, 'duration': 1.0},
    {'timeout': 3600.0, 'duration': 1.0}, {'gpus': 1.0, 'duration': 1.0}, {'gpus': 1.0, 'duration': 1.0, 'gpu': 0.8}])
def test_no_suggestions(values: dict[str, Any]) -> None:
    assert suggestions(row(**values)) == []


def test_suggestions_from_failures() -> None:
    late, large = row(state='FAILED', cause='failed.timeout', timeout=10.0), row(state='FAILED', cause='failed.memory')
    assert suggestions(late, large) == [
        '1 needed more memory than they may have: request more (mem_per_rank)',
        '1 reached the time limit of 10 s: set a longer one']


def rows() -> Iterator[dict[str, Any]]:
    yield row(cores=4, duration=10.0, cpu=11.0, memory=3 * GB)
    yield row(cores=4, duration=20.0, cpu=22.0, memory=GB)
    yield row(uid='task.000002', program='<post>', state='FAILED', cause='failed.exit', reason='exit code: 1\nbecause')
    yield row(uid='task.000003', program='<post>', state='FAILED', cause='failed.exit', reason='exit code: 2')


def test_kinds_and_failures() -> None:
    found = usage_of(rows())
    assert [(str(kind), kind.tasks, kind.causes.total(), kind.longest) for kind in found.kinds] == [
        ('sim, 4 cores', 2, 0, 20.0), ('<post>, 1 core', 2, 2, 0.0)]
    assert found.kinds[0].mean('cpu') == pytest.approx(1.1)
    assert found.kinds[0].peak == 3 * GB
    assert list(map(str, found.failures)) == ['2 x failed.exit in <post>, such as task.000002: exit code: 1 because']


def test_the_command_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    directory = write_session(tmp_path, events_of(8))
    asked: list[Path] = []

    def tasks_of(where: Path) -> Iterator[dict[str, Any]]:
        asked.append(where)
        return rows()
    assert trace([SESSION, 'stats'], tasks_of) == 0
    text = capsys.readouterr().out
    assert '  sim, 4 cores: tasks 2, cores 4, used 1.10, peak 3.0 GB, longest [s] 20\n    asks for 4 cores, ' in text
    assert '2 x failed.exit in <post>, such as task.000002: exit code: 1 because' in text
    assert trace([SESSION, 'report', '-o', 'r.html'], tasks_of) == 0
    page = Path('r.html').read_text()
    assert 'asks for 4 cores, uses 1.1: request 1' in page
    assert '<td>&lt;post&gt;</td><td>task.000002</td><td>exit code: 1 because</td>' in page
    assert '<post>' not in page
    assert [each.resolve() for each in asked] == [directory.resolve()] * 2
    assert trace([SESSION, 'report', '-o', 'without.html']) == 0
    assert 'Requested and used' not in Path('without.html').read_text()

"""Tables of tasks: columns from records, data frames and files of them."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest

from rp_api import states
from rp_api.batch import Chunk
from rp_api.description.partitions import WHOLE
from rp_api.errors import PilotError
from rp_client.flow.parameters import Parameters
from rp_client.inspect import table as tables
from rp_client.inspect.frames import frame
from rp_client.inspect.rows import COLUMNS, FLAG, INTEGER, NUMBER, TEXT, row_of
from rp_client.inspect.table import parameter_kinds, table
from rp_client.inspect.table_files import write_csv, write_parquet

START = 1_790_000_000.123456
KINDS = {'temp': NUMBER, 'state': TEXT}


def record(number: int = 0, **more: Any) -> dict[str, Any]:
    """The record of a task that is done."""
    return {'uid': f'task.{number:06d}', 'tmgr': 'tmgr.0000', 'pilot': 'pilot.0000', 'attempts': 1,
            'state': states.DONE, 'exit_code': 0, 'submitted': START, 'times': [START + 1, START + 2, START + 5],
            'description': {'executable': '/opt/bin/sim', 'ranks': 2, 'cores_per_rank': 3, 'mem_per_rank': 10},
            'usage': {'cpu': 1.5, 'memory': 1 << 40}, 'parameters': {'temp': 280.5, 'state': 'solid'}, **more}


def failed(number: int) -> dict[str, Any]:
    """That of one that has failed twice, and of which nothing else is known."""
    return {'uid': f'task.{number:06d}', 'tmgr': 'tmgr.0000', 'pilot': 'pilot.0000', 'attempts': 1, 'exit_code': 3,
            'state': states.FAILED, 'description': {'function': 'f', 'mode': 'task.function'},
            'error': {'kind': 'exit', 'sentence': 'it ended with 3'}, 'history': [{'attempt': 1}],
            'slots': [{'node_name': 'a'}, {'node_name': 'b'}, {'node_name': 'a'}]}


class Session:
    """A session with one pilot, which has two partitions, and nothing that it knows of its tasks."""

    now = START + 100

    def task(self, uid: str) -> None:
        return None

    def pilots(self) -> list[dict[str, Any]]:
        pilot = {'uid': 'pilot.0000', 'state': states.PMGR_ACTIVE}
        return [{**pilot, 'record': {'sandboxes': {'pilot': '/box/pilot.0000'}}},
                {**pilot, 'uid': 'pilot.0000.0001', 'record': {WHOLE: 'pilot.0000'}}]

    def peers(self, task: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [record(number, times=[START, START, START + 5]) for number in range(50, 60)]

    def note(self, key: str) -> None:
        return None


SESSION = Session()


def row(task: Mapping[str, Any]) -> dict[str, Any]:
    return row_of(task, SESSION)


def records(count: int) -> Iterator[dict[str, Any]]:
    return (failed(number) if number % 3 == 1 else record(number) for number in range(count))


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, 'PAGE_ROWS', 4)


def test_values() -> None:
    found = row(record())
    assert list(found) == list(COLUMNS)
    known = {name: value for name, value in found.items() if value is not None}
    assert known == {
        'uid': 'task.000000', 'program': 'sim', 'state': 'DONE', 'exit_code': 0, 'cached': False, 'submitted': START,
        'placed': START + 1, 'started': START + 2, 'ended': START + 5, 'duration': 3.0, 'waiting': 2.0, 'cpu': 1.5,
        'memory': 1 << 40, 'ranks': 2, 'cores': 6, 'gpus': 0.0, 'requested_memory': 20 << 20, 'pilot': 'pilot.0000',
        'attempts': 1, 'tmgr': 'tmgr.0000', 'sandbox': '/box/pilot.0000/task.000000'}


def test_values_of_a_failure() -> None:
    found = row(failed(1))
    assert (found['cause'], found['reason'], found['exit_code']) == (
        'failed.exit', 'it ended with 3', 3)
    assert (found['program'], found['node'], found['attempts']) == ('f', 'a,b', 2)
    assert {found[name] for name in ('submitted', 'started', 'duration', 'waiting', 'cpu', 'memory')} == {None}


def test_values_of_a_task_that_waits() -> None:
    found = row({'uid': 't', 'tmgr': 'tmgr.0000', 'pilot': 'pilot.0000.0001', 'attempts': 1, 'submitted': START,
                 'state': states.AGENT_SCHEDULING, 'description': {'executable': 'a', 'sandbox': '../own'}})
    assert (found['cause'], found['pilot'], found['sandbox']) == ('waiting.place', 'pilot.0000', '/box/own')
    assert (found['duration'], found['waiting'], found['attempts']) == (None, None, 1)


def test_values_of_a_task_that_runs() -> None:
    found = row(record(state=states.AGENT_EXECUTING, times=[START + 1, START + 2, None], usage=None, exit_code=None,
                       slots=[{'node_name': 'n1', 'node_index': 1}]))
    assert (found['node'], found['duration'], found['waiting'], found['cause']) == ('n1', 98.0, 2.0, 'slow')
    assert 'runs for 98 s on n1, ' in found['reason']


def test_kinds_of_parameters() -> None:
    rows = [{'n': 1, 'x': 1, 'mixed': 'a', 'flag': True, 'large': 1 << 63},
            {'n': -2, 'x': 0.5, 'mixed': 1, 'flag': False, 'large': 0}]
    parameters = Parameters(rows)
    chunks = [Chunk('sweep.0000', 0, size, {}, columns, parameters.labels) for size, columns in parameters.chunks()]
    assert parameter_kinds(chunks) == {'n': INTEGER, 'x': NUMBER, 'mixed': TEXT, 'flag': FLAG, 'large': TEXT}
    assert chunks[0].parameters_of(1) == rows[1]
    assert Parameters([(1, 'a')]).labels == ['1', '2']
    assert Parameters(range(3)).labels == ['1']


@pytest.mark.usefixtures('small_pages')
def test_a_frame_of_pandas() -> None:
    found = frame(table(records(10), SESSION, KINDS))
    assert isinstance(found, pandas.DataFrame)
    assert list(found)[:3] == ['temp', 'state_', 'uid']
    assert list(found['uid']) == [f'task.{number:06d}' for number in range(10)]
    assert str(found['started'].dtype) == 'datetime64[ns, UTC]'
    assert found['started'][0] == pandas.Timestamp('2026-09-21 14:13:22.123456+0000')
    assert found['started'][1] is pandas.NaT
    assert found['memory'].max() == 1 << 40
    assert found['duration'].sum() == pytest.approx(21.0)
    assert found['duration'].dtype == np.float64
    assert found[found['state'] == 'FAILED']['reason'].unique().tolist() == ['it ended with 3']
    assert found.groupby('state_')['temp'].mean().to_dict() == {'solid': 280.5}


@pytest.mark.usefixtures('small_pages')
def test_a_frame_of_polars() -> None:
    found = frame(table(records(10), SESSION, KINDS), 'polars')
    assert isinstance(found, polars.DataFrame)
    assert found.shape == (10, len(COLUMNS) + 2)
    assert found['ended'].dtype == polars.Datetime('ns', 'UTC')
    assert found['cpu'].null_count() == 3
    pandas.testing.assert_frame_equal(found.to_pandas(), frame(table(records(10), SESSION, KINDS)), check_dtype=False)


@pytest.mark.parametrize('library', ['pandas', 'polars'])
def test_a_frame_without_tasks(library: str) -> None:
    found = frame(table([], SESSION, {'x': INTEGER}), library)
    assert found.shape == (0, len(COLUMNS) + 1)
    assert str(found['started'].dtype).lower().startswith('datetime')


def test_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="library is 'numpy': allowed are 'pandas' and 'polars'"):
        frame(table([], SESSION, {}), 'numpy')
    monkeypatch.setitem(sys.modules, 'pandas', None)   # as if it were not installed
    assert isinstance(frame(table([], SESSION, {})), polars.DataFrame)
    with pytest.raises(ImportError, match=r'pandas is not installed: pip install pandas$'):
        frame(table([], SESSION, {}), 'pandas')
    monkeypatch.setitem(sys.modules, 'polars', None)
    with pytest.raises(ImportError, match='pip install pandas, or pip install polars'):
        frame(table([], SESSION, {}))


@pytest.mark.usefixtures('small_pages')
def test_csv() -> None:
    file = io.StringIO(newline='')
    write_csv(table([*records(10), record(10, name='with "quotes",\nand lines', description={'name': 'a,"b"\nc'})],
                    SESSION, KINDS), file)
    file.seek(0)
    rows = list(csv.DictReader(file))
    assert len(rows) == 11
    assert rows[0]['started'] == '2026-09-21T14:13:22.123456+00:00'
    assert (rows[0]['temp'], rows[0]['state_'], rows[0]['cause'], rows[1]['started']) == ('280.5', 'solid', '', '')
    assert rows[10]['name'] == 'a,"b"\nc'


@pytest.mark.usefixtures('small_pages')
@pytest.mark.parametrize('writer', ['pyarrow', 'polars'])
def test_parquet(tmp_path: Path, writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / 'tasks.parquet'
    with monkeypatch.context() as without:
        if writer == 'polars':
            without.setattr('rp_client.inspect.table_files.find_spec', lambda name: name == 'polars' or None)
        write_parquet(table(records(10), SESSION, KINDS), path)
    assert list(tmp_path.iterdir()) == [path]
    found = polars.read_parquet(path)
    assert found.equals(frame(table(records(10), SESSION, KINDS), 'polars'))
    assert found.schema == frame(table(records(0), SESSION, KINDS), 'polars').schema
    with pytest.raises(FileExistsError):
        write_parquet(table([], SESSION, {}), path)


def test_parquet_without_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('rp_client.inspect.table_files.find_spec', lambda name: None)
    with pytest.raises(PilotError, match='pip install pyarrow, or pip install polars'):
        write_parquet(table([], SESSION, {}), tmp_path / 'tasks.parquet')
    assert list(tmp_path.iterdir()) == []

"""Tables of the tasks of real sessions: data frames, exported files, and the report of `rp trace`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest
from conftest import pilot_description, processes_with, wait_until

import radical.pilot as rp

BUSY = 'import time; end = time.monotonic() + 3\nwhile time.monotonic() < end: pass'
LEAVER = Path(__file__).with_name('leaver.py')


def command(*arguments: str, code: int = 0) -> str:
    """Run `rp`, and return its output, or its errors if it fails."""
    done = subprocess.run([sys.executable, '-m', 'rp_client.cli', *arguments], capture_output=True, text=True,
                          timeout=50)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def program(text: str, **more: Any) -> rp.TaskDescription:
    return rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', text]} | more)


def exported(uid: str, form: str) -> Any:
    """The table of a session as it is exported in a form."""
    if form == 'csv':
        text = command('session', 'export', uid, '--format', form)
        return polars.read_csv(text.encode(), infer_schema_length=None, try_parse_dates=True).to_pandas()
    command('session', 'export', uid, '--format', form, '-o', f'{uid}.parquet')
    return pandas.read_parquet(f'{uid}.parquet')


def shown(table: Any) -> dict[str, list[str]]:
    """The values of a table as text, in an order of uids: files have no types for what is missing.

    The submission is not among them: the client and the hub have each its own time for it.
    """
    table = table.drop(columns=['submitted', 'waiting'])
    numbers = table.select_dtypes('number').columns
    times = table.select_dtypes('datetimetz').columns
    plain = table.astype({**dict.fromkeys(numbers, 'float64'), **dict.fromkeys(times, 'datetime64[us, UTC]')})
    return {name: ['' if pandas.isna(value) else str(value) for value in column]
            for name, column in plain.sort_values('uid').astype(object).items()}


@pytest.fixture
def session(base: Path) -> rp.Session:
    """A session that is over, with its tables while it ran: failed, cancelled and cached rows of sweeps, and a task."""
    with rp.Session(uid='done') as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
        tmgr.submit_tasks(rp.TaskDescription({
            'executable': sys.executable, 'arguments': ['-c', BUSY], 'name': 'busy', 'cores_per_rank': 2,
            'mem_per_rank': 2000}))
        rows = [{'seed': seed, 'temp': 280 + seed / 2, 'state': 'solid'} for seed in range(1500)]
        sweep = tmgr.submit_sweep(program('[ {seed} != 7 ] || {{ echo bad >&2; exit 3; }}', sandbox='runs/{seed}'),
                                  rows)
        cut = tmgr.submit_sweep(program('sleep {}'), [0, 1000])
        cut[0].wait(timeout=100)
        cut.cancel()
        for _ in range(2):
            kept = tmgr.submit_sweep(program('echo {x}', cache=True), {'x': [1, 2]})
            assert kept.wait(100) == {rp.DONE: 2}
        assert sweep.wait(100) == {rp.DONE: 1499, rp.FAILED: 1}
        tmgr.wait_tasks(timeout=100)
        pandas_frames(sweep, cut, kept)
        tmgr.to_frame().to_pickle('live')
        pandas.testing.assert_frame_equal(tmgr.to_frame('polars').to_pandas(), tmgr.to_frame(), check_dtype=False)
    return session


def pandas_frames(sweep: rp.Sweep, cut: rp.Sweep, kept: rp.Sweep) -> None:
    """Check the tables of sweeps."""
    table = sweep.to_frame('pandas')
    assert list(table['seed']) == list(range(1500))
    assert list(table)[:4] == ['seed', 'temp', 'state_', 'uid']
    assert table['temp'].mean() == pytest.approx(280 + 1499 / 4)
    bad = table[table['state'] == 'FAILED'].iloc[0]
    assert (bad['seed'], bad['cause'], bad['exit_code'], bad['attempts']) == (7, 'failed.exit', 3, 1)
    assert bad['reason'] == getattr(sweep[7].error, 'sentence', '')
    assert bad['sandbox'] == sweep[7].sandbox
    assert bad['pilot'] == 'pilot.0000'
    assert set(table['node']) == {'localhost'}
    assert (table['submitted'] < table['placed']).all()
    assert (table['placed'] <= table['started']).all()
    assert ((table['ended'] - table['started']).dt.total_seconds() - table['duration']).abs().max() < 1e-5   # rounded
    assert (table['cpu'] > 0).all()
    found = cut.to_frame('polars')
    assert found['1'].to_list() == [0, 1000]
    assert found['state'].to_list() == ['DONE', 'CANCELED']
    assert found['cause'].to_list() == [None, 'canceled']
    again = kept.to_frame('polars')
    assert again.select('x', 'cached', 'state').rows() == [(1, True, 'DONE'), (2, True, 'DONE')]
    assert again['pilot'].null_count() == again['started'].null_count() == again['cpu'].null_count() == 2


@pytest.mark.parametrize('form', ['csv', 'parquet'])
def test_exported_tables_are_those_of_the_session(session: rp.Session, form: str) -> None:
    live, found = pandas.read_pickle('live'), exported('done', form)
    assert list(found) == list(live)
    assert len(found) == 1 + 1500 + 2 + 4
    assert shown(found) == shown(live)
    assert found['submitted'].notna().all()
    busy = found[found['name'] == 'busy'].iloc[0]
    assert (busy['cores'], busy['requested_memory'], busy['state']) == (2, 2000 << 20, 'DONE')
    assert busy['cpu'] <= 2 * busy['duration']
    assert 1 << 20 < busy['memory'] < 2000 << 20
    if form == 'parquet':
        command('session', 'export', 'done', '--format', form, '-o', 'done.parquet', code=1)   # it is there
        assert 'name a file' in command('session', 'export', 'done', '--format', form, code=2)
        assert polars.read_parquet('done.parquet')['started'].dtype == polars.Datetime('ns', 'UTC')
    else:
        page = command('trace', 'done', 'stats')
        assert '  sh, 1 core: tasks 1506, failed 1, cores 1, used ' in page
        assert f'  {Path(sys.executable).name}, 2 cores: tasks 1, cores 2, used ' in page
        assert '    asks for 2 cores, uses ' in page
        assert '    asks for 2.0 GB of memory, uses ' in page
        assert f'1 x failed.exit in sh, such as {live[live["state"] == "FAILED"]["uid"].iloc[0]}: ' in page


@pytest.mark.parametrize('form', ['csv', 'parquet'])
def test_export_of_a_dead_session(base: Path, form: str) -> None:
    subprocess.run([sys.executable, LEAVER, 'session', 'running'], stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, timeout=50)
    hub, = (pid for pid, line in processes_with(str(base)).items() if 'coordination.hub' in line)
    os.kill(hub, signal.SIGKILL)
    wait_until(lambda: 'crashed' in command('session', 'list'))
    found = exported('session', form)
    assert list(found['uid']) == [f'task.{number:06d}' for number in range(6)]
    assert set(found['program']) == {'sh'}
    assert 'AGENT_EXECUTING' in set(found['state'])
    runs, waits = (found[found['state'] == state] for state in ('AGENT_EXECUTING', 'AGENT_SCHEDULING'))
    assert set(runs['node']) == {'localhost'}
    assert runs['cause'].isna().all()
    assert set(waits['cause']) == {'waiting.place'}
    assert Path(found['sandbox'][0]).name == 'task.000000'
    (base / 'go').touch()
    command('session', 'attach', 'session')
    command('session', 'attach', 'session', '--cancel')

"""`rp session` on sessions in a MongoDB."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import pilot_description
from leaver import COUNT
from mongo_servers import Server, running
from watching import as_json

import radical.pilot as rp

APPLICATION = Path(__file__).with_name('leaver.py')


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running('nx-27017', tmp_path_factory.mktemp('mongodb')) as server:
        yield server


def command(*arguments: str, code: int = 0) -> str:
    """What `rp session` says."""
    done = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'session', *arguments], capture_output=True,
                          text=True, timeout=50)
    assert done.returncode == code, done.stderr
    assert 'Traceback' not in done.stderr
    return done.stdout + done.stderr if code else done.stdout


@pytest.mark.long
def test_from_the_first_look_to_the_last(server: Server, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_DBURL', server.url)
    session = rp.Session(uid='one')
    tmgr = rp.TaskManager(session)
    tmgr.add_pilots(rp.PilotManager(session).submit_pilots(pilot_description(base)))
    tmgr.submit_tasks([rp.TaskDescription({'executable': 'true'}), rp.TaskDescription({'executable': 'false'})])
    assert Counter(tmgr.wait_tasks(timeout=40)) == {rp.DONE: 1, rp.FAILED: 1}
    assert [row['state'] for row in as_json('task', 'list')] == ['DONE', 'FAILED']
    assert as_json('why', 'task.000001')['reason']['kind'] == 'failed.exit'
    assert as_json('pilot', 'list')[0]['tasks'] == 2
    assert as_json('task', 'retry', 'task.000001')['did'] == ['task.000001.retry1']
    assert Counter(tmgr.wait_tasks(timeout=40)) == {rp.DONE: 1, rp.FAILED: 2}
    assert [row['uid'] for row in as_json('task', 'list', '--failed', '--limit', '1')] == ['task.000001']
    assert as_json('top')['counts'] == as_json('task', 'list', '--count') == {'DONE': 1, 'FAILED': 2}
    assert 'one is in use and stays: an application has it' in subprocess.run(
        [sys.executable, '-m', 'rp_client.cli', 'clean', '--base', '.', '--only', 'session', '--yes'],
        capture_output=True, text=True, timeout=50, check=True).stderr
    assert 'one is in use: open' in command('purge', 'one', code=3)
    session.close()
    (found,) = json.loads(command('list', '--json'))
    assert (found['uid'], found['state'], found['tasks']) == ('one', 'closed', {rp.DONE: 1, rp.FAILED: 2})
    assert command('list').splitlines()[1].split()[3:] == ['closed', '1', '3', '1', '2', '0', '-']
    assert command('list', '--base', str(base)) == ''
    text = command('show', 'one', '--tasks', '--dburl', server.url)
    assert 'tasks    1 DONE, 2 FAILED' in text
    assert 'pilot.0000  CANCELED' in text
    kinds = Counter(json.loads(line).get('type') for line in command('export', 'one').splitlines())
    assert (kinds['session'], kinds['pilot'], kinds['task']) == (1, 1, 3)
    rows = list(csv.DictReader(command('export', 'one', '--format', 'csv').splitlines()))
    assert [(row['program'], row['cause'], row['exit_code'], Path(row['sandbox']).name) for row in rows] == [
        ('true', '', '0', 'task.000000'), ('false', 'failed.exit', '1', 'task.000001'),
        ('false', 'failed.exit', '1', 'task.000001.retry1')]
    assert all(float(row['duration']) > 0 and float(row['waiting']) > 0 for row in rows)
    text = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'trace', 'one', 'stats'], capture_output=True,
                          text=True, timeout=50, check=True).stdout
    assert '  false, 1 core: tasks 2, failed 2, ' in text
    assert command('purge', 'one') == 'one is removed\n' * 2   # with the directory of the application
    assert not (base / 'one').exists()
    assert json.loads(command('list', '--json')) == []


def test_attach(server: Server, base: Path) -> None:
    (base / 'go').touch()
    subprocess.run([sys.executable, APPLICATION, 'one', 'left'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   env=os.environ | {'RADICAL_PILOT_DBURL': server.url}, timeout=50, check=True)
    assert f'tasks: {COUNT} DONE' in command('attach', 'one', '--dburl', server.url, '--wait')
    command('attach', 'one', '--dburl', server.url, '--cancel')
    assert json.loads(command('list', '--json', '--dburl', server.url))[0]['state'] == 'closed'

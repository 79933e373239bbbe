"""`rp task`, `rp pilot` and `rp why` on sessions whose application is attached, has died, and has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import processes_with, wait_until
from watching import as_json, close, kill, rp_command, start, states


@pytest.fixture
def application(base: Path) -> Iterator[subprocess.Popen[str]]:
    """The application; what is left of its session is ended after the test."""
    process = start()
    yield process
    (base / 'go').touch()
    if process.poll() is None:
        close(process)
    elif 'open' not in rp_command('session', 'list') and 'closed' not in rp_command('session', 'list'):
        rp_command('session', 'attach', 'watched', '--cancel')
    wait_until(lambda: not processes_with(str(base)))


def test_tasks_are_listed_while_the_application_runs(application: subprocess.Popen[str], base: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    (base / 'elsewhere').mkdir()
    monkeypatch.chdir(base / 'elsewhere')   # it is found by the index, and is the latest one
    lines = rp_command('task', 'list').splitlines()
    assert lines[0].split() == ['UID', 'NAME', 'ARGUMENTS', 'STATE', 'REASON', 'NODE', 'START', 'ELAPSED', 'CPU',
                                'MEMORY']
    assert len(lines) == 51
    rows = as_json('task', 'list', '--session', 'watched', '--limit', '0')
    assert [row['uid'] for row in rows] == [f'task.{number:06d}' for number in range(66)]
    bad = rows[2]
    assert (bad['name'], bad['state'], bad['exit_code'], bad['executable']) == ('bad', 'FAILED', 3, '/bin/sh')
    assert bad['kind'].startswith('failed.')
    assert '3' in bad['reason']
    assert rows[0]['node'] == 'localhost'
    assert rows[0]['submitted'] <= rows[0]['start'] <= rows[0]['end']
    assert rows[0]['cpu'] > 0
    assert rows[4]['state'] == 'AGENT_EXECUTING'
    assert rows[4]['elapsed'] is None or rows[4]['elapsed'] > 0   # the start is told with a later report
    assert rows[10]['kind'] == 'waiting.place'
    (pilot,) = as_json('pilot', 'list')
    assert (pilot['uid'], pilot['state'], pilot['cores'], pilot['tasks']) == ('pilot.0000', 'PMGR_ACTIVE', 2, 66)
    assert as_json('task', 'list', '--count')['FAILED'] == 2
    close(application)   # nothing has taken the session over
    assert as_json('task', 'list', '--count')['DONE'] == 2


def test_tasks_are_chosen(application: subprocess.Popen[str]) -> None:
    def chosen(*options: str) -> list[str]:
        return [row['uid'] for row in as_json('task', 'list', *options)]

    assert chosen('--failed') == ['task.000002', 'task.000003']
    assert chosen('--state', 'failed,done', '--limit', '3') == ['task.000000', 'task.000001', 'task.000002']
    assert chosen('--state', 'running') == ['task.000004', 'task.000005']
    assert chosen('--name', 'fit-*') == ['task.000000', 'task.000001']
    assert chosen('--name', 'fit-*', '--node', 'nowhere') == []
    assert chosen('--where', 'exit_code in (3, 4) and name == "bad"') == ['task.000002']
    assert chosen('--where', 'kind == "waiting.place"', '--after', 'task.000063') == ['task.000064', 'task.000065']
    assert chosen('--slow') == []
    for option in (('--where', '().__class__'), ('--where', 'nope > 1'), ('--where', 'name > 1'), ('--state', 'nope')):
        assert 'Traceback' not in rp_command('task', 'list', *option, code=2)
    shown = subprocess.run([sys.executable, '-m', 'rp_client.cli', 'task', 'list', '--limit', '2'],
                           capture_output=True, text=True, check=True, timeout=50)
    assert 'has 66 tasks' in shown.stderr
    assert '--after task.000001' in shown.stderr


def test_what_a_task_has_written(application: subprocess.Popen[str], base: Path) -> None:
    assert rp_command('task', 'cat', 'task.000001') == 'line 1\n'
    assert rp_command('task', 'cat', 'task.000002', '--stderr') == 'wrong\n'
    assert rp_command('task', 'cat', 'task.000002', 'task.000002.err') == 'wrong\n'
    assert 'has no file' in rp_command('task', 'cat', 'task.000002', 'nope', code=1)
    assert 'there is no task nope' in rp_command('task', 'info', 'nope', code=1)
    info = as_json('task', 'info', 'task.000002')
    assert Path(info['stderr']).read_text() == 'wrong\n'
    assert info['description']['arguments'][1] == 'echo wrong >&2; exit 3'
    assert 'exit_code   3' in rp_command('task', 'info', 'task.000002')
    follower = subprocess.Popen([sys.executable, '-m', 'rp_client.cli', 'task', 'tail', '-f', 'task.000004'],
                                stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    assert follower.stdout.readline() == 'begins\n'
    (base / 'go').touch()
    assert follower.communicate(timeout=50)[0] == 'over\n'
    assert follower.returncode == 0


def test_why(application: subprocess.Popen[str]) -> None:
    text = rp_command('why', 'task.000002')
    assert text.startswith('task.000002 is FAILED: ')
    assert 'what to do: ' in text
    found = as_json('why', 'task.000030')
    assert (found['state'], found['reason']['kind']) == ('AGENT_SCHEDULING', 'waiting.place')
    assert rp_command('why', 'pilot.0000').startswith('pilot.0000 is PMGR_ACTIVE')
    assert as_json('why', 'task.000000')['reason'] is None
    assert 'there is no task or pilot nope' in rp_command('why', 'nope', code=1)


def test_the_application_cancels_and_repeats(application: subprocess.Popen[str], base: Path) -> None:
    assert 'task.000020' in rp_command('task', 'cancel', 'task.000020', 'task.000021')
    wait_until(lambda: states()['task.000020'] == states()['task.000021'] == 'CANCELED')
    refused = as_json_of_refused('task', 'cancel', 'task.000020')
    assert 'is CANCELED already' in refused
    assert as_json('task', 'retry', '--failed')['did'] == [   # not those that were cancelled
        'task.000002.retry1', 'task.000003.retry1']
    assert 'is AGENT_SCHEDULING' in as_json_of_refused('task', 'retry', 'task.000030')
    assert 'name tasks' in rp_command('task', 'cancel', code=2)
    assert len(as_json('task', 'cancel', '--name', 'later-*')['did']) == 58
    (base / 'go').touch()
    wait_until(lambda: states().get('task.000002.retry1') == 'FAILED')
    assert as_json('task', 'retry', 'task.000002.retry1')['did'] == ['task.000002.retry2']
    assert 'pilot.0000' in rp_command('pilot', 'stop', 'pilot.0000')
    wait_until(lambda: as_json('pilot', 'info', 'pilot.0000')['state'] == 'CANCELED')
    assert 'is CANCELED already' in as_json_of_refused('pilot', 'stop', 'pilot.0000')
    close(application)
    assert 'watched is closed' in rp_command('task', 'retry', 'task.000002', code=3)


def as_json_of_refused(*arguments: str) -> str:
    return rp_command(*arguments, code=3)


def test_a_session_without_application_gets_an_owner(application: subprocess.Popen[str], base: Path) -> None:
    kill(application)
    wait_until(lambda: 'orphaned' in rp_command('session', 'list'))
    assert rp_command('why', 'task.000002').startswith('task.000002 is FAILED: ')
    assert as_json('task', 'retry', 'task.000002')['did'] == ['task.000002.retry1']
    assert [line for line in processes_with(str(base)).values() if 'session serve watched' in line.replace('\0', ' ')]
    assert len(as_json('task', 'cancel', '--state', 'waiting')['did']) == 61
    (base / 'go').touch()
    wait_until(lambda: states()['task.000005'] == 'DONE')
    rp_command('session', 'attach', 'watched', '--cancel')   # takes the session over from the server
    assert states()['task.000020'] == 'CANCELED'
    assert not [line for line in processes_with(str(base)).values() if 'serve' in line]


def test_the_records_of_a_dead_session_are_read(application: subprocess.Popen[str], base: Path) -> None:
    kill(application)
    for pid, line in processes_with(str(base)).items():
        if 'hub' in line:
            os.kill(pid, 9)
    wait_until(lambda: 'crashed' in rp_command('session', 'list'))
    assert rp_command('why', 'task.000003').startswith('task.000003 is FAILED: ')
    assert states()['task.000001'] == 'DONE'
    assert 'crashed' in rp_command('session', 'show')   # still as it was: reading has started nothing

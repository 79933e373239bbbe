"""`rp clean` after real sessions: nothing of ours is left, and everything of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import processes_with, wait_until
from watching import close, kill, rp_command, start

import radical.pilot as rp
from rp_client.cli.leftovers import RESOURCE

PLAIN = '''
import os
import radical.pilot as rp
with rp.Session(uid='chosen') as session:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription(resource='local.exact', cores=2, runtime=10,
                                                           sandbox=os.getcwd())))
    tmgr.submit_tasks([rp.TaskDescription(executable='echo', arguments=[n], cache=True) for n in range(3)])
    tmgr.submit_sweep(rp.TaskDescription(executable='echo', arguments=['{x}'], cache=True), {'x': range(5)})
    tmgr.wait_tasks()
    session.dump('name')
    session.close(download=True)
'''

RAPTOR = '''
import os
import radical.pilot as rp
def square(x):
    return x * x
if __name__ == '__main__':
    os.environ['HOME'] = os.getcwd()
    with rp.Executor(cores=2) as executor:
        assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]
        assert executor.options(cache=True).submit(square, 3).result() == 9
'''


def entries(base: Path) -> set[str]:
    return {str(path.relative_to(base)) for path in base.rglob('*')}


@pytest.mark.long
def test_nothing_of_ours_is_left(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))
    others = [base / 'results.txt', base / 'chosen' / 'notes.txt', base / RESOURCE / 'mine' / 'data', base / 'x.log']
    for name, text in (('plain.py', PLAIN), ('raptor.py', RAPTOR)):
        (base / name).write_text(text)
        subprocess.run([sys.executable, name], check=True, timeout=100, stdout=subprocess.DEVNULL)
    rp_command('run', '--cores', '1', '--', 'echo', '{}', ':::', 'a', 'b')
    rp_command('bundle', '--help')
    for path in others:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text('mine')
    before = entries(base)
    listed = json.loads(rp_command('clean', '--everywhere', '--json'))
    assert {item['kind'] for item in listed} == {'session', 'sandbox', 'cache', 'journal'}
    assert not any(item['removed'] for item in listed)
    assert entries(base) == before   # a list removes nothing
    assert 'nothing to remove' in rp_error('clean', '--older-than', '1h', '--yes')
    assert 'nothing to remove' in rp_error('clean', '--larger-than', '1GB', '--yes')
    assert entries(base) == before
    text = rp_command('clean', '--everywhere', '--yes')
    assert f'chosen is removed, except foreign files: {base}/chosen/notes.txt' in text
    left = {path for path in entries(base) if (base / path).is_file()}
    expected = {str(path.relative_to(base)) for path in others} | {'plain.py', 'raptor.py'}
    assert {path for path in left if not path.startswith('.radical/')} == expected
    assert not list(base.glob(f'{RESOURCE}/rp.session*'))
    assert list(Path(os.environ['XDG_STATE_HOME'], 'radical.pilot', 'run').iterdir()) == []


def rp_error(*arguments: str) -> str:
    return subprocess.run([sys.executable, '-m', 'rp_client.cli', *arguments], capture_output=True, text=True,
                          check=True, timeout=50).stderr


def test_what_is_in_use_stays(base: Path) -> None:
    application = start()
    before = entries(base)
    for end in (close, None):
        assert 'watched is in use and stays: ' in rp_error('clean', '--yes')
        assert {path for path in before if '/' not in path} <= entries(base)
        assert 'watched is in use: ' in rp_command('clean', 'watched', '--yes', code=3)
        if end is close:
            kill(application)
            wait_until(lambda: 'orphaned' in rp_command('session', 'list'))
    for pid, line in processes_with(str(base)).items():
        if 'hub' in line:
            os.kill(pid, 9)   # the agent runs on for a while, and has the sandbox
    wait_until(lambda: 'crashed' in rp_command('session', 'list'))
    assert 'its pilot pilot.0000 may run on local.exact' in rp_error('clean', '--yes')
    (base / 'go').touch()
    rp_command('session', 'attach', 'watched', '--cancel')
    wait_until(lambda: not processes_with(str(base)))
    rp_command('clean', '--yes')
    assert {path for path in entries(base) if not path.startswith('.radical')} == {'go'}


def test_kept_environments_and_sandboxes_without_session(base: Path) -> None:
    resource = base / RESOURCE
    environment = resource / f'env.{os.getuid()}' / 'abc'
    for directory in (environment, resource / 'gone' / 'pilot.0000', resource / 'young' / 'pilot.0000'):
        directory.mkdir(parents=True)
        (directory / 'agent_0.log').touch()
    (environment / '.rp.complete').touch()
    for path in (resource / 'gone').rglob('*'):
        os.utime(path, (1, 1))
    os.utime(resource / 'gone', (1, 1))
    kinds = {item['path']: item['in_use'] for item in json.loads(rp_command('clean', '--json'))}
    assert kinds == {str(environment): '', str(resource / 'gone'): '',
                     str(resource / 'young'): 'it has changed in the last hour'}
    rp_command('clean', '--yes', '--only', 'environment')
    assert (resource / 'gone').exists()
    assert not environment.exists()
    rp_command('clean', '--yes')
    assert [path.name for path in resource.iterdir()] == ['young']


def test_a_cache_with_claims_stays(base: Path) -> None:
    from rp_client.cache.claims import Claims
    from rp_client.cache.store import NAME, ResultStore

    store = ResultStore(base / NAME)
    claims = Claims(store.directory)
    assert 'uses it' in rp_error('clean', '--yes')
    assert store.directory.exists()
    claims.close(leave=False)
    store.close()
    rp_command('clean', '--yes')
    assert not store.directory.exists()


def test_a_session_of_a_user_is_found_by_its_uid(base: Path) -> None:
    with rp.Session(uid='one'), rp.Session(uid='two'):
        pass
    rp_command('clean', 'one', '--yes')
    assert {path.name for path in base.iterdir()} >= {'two'}
    assert not (base / 'one').exists()
    assert 'there is no session one' in rp_command('clean', 'one', code=1)

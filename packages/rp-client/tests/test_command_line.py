"""The program `rp` itself: which commands there are, what it says, how it ends; what they do is tested elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rp_api.coordination.hub.store import Store
from rp_api.errors import PilotError
from rp_client.cli import commands, program, stores
from rp_client.cli.session import _counts, _state
from rp_client.cli.tables import shown_size

PLUGIN = '''
def greet(arguments):
    """Say hello.

    More about it.
    """
    print('hello', *arguments)
    return 3

class NotAFunction:
    pass

thing = NotAFunction()
'''


def rp(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """What the program does with these arguments."""
    return subprocess.run([sys.executable, '-m', 'rp_client.cli', *arguments], capture_output=True, text=True, cwd=cwd,
                          env=os.environ | environ, timeout=50)


@pytest.fixture
def plugins(tmp_path: Path) -> str:
    """A PYTHONPATH with a distribution that adds commands, some of them broken."""
    (tmp_path / 'greeting.py').write_text(PLUGIN)
    (tmp_path / 'broken.py').write_text('raise RuntimeError("it is\\nbroken")')
    metadata = tmp_path / 'greeting-1.0.dist-info'
    metadata.mkdir()
    (metadata / 'METADATA').write_text('Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n')
    (metadata / 'entry_points.txt').write_text('[radical_pilot.commands]\ngreet = greeting:greet\nbroken = broken:run\n'
                                               'thing = greeting:thing\nsession = greeting:greet\n')
    return os.pathsep.join([str(tmp_path), *filter(None, sys.path)])


def test_help_lists_all_commands(tmp_path: Path, plugins: str) -> None:
    done = rp('--help', cwd=tmp_path, PYTHONPATH=plugins)
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith('  ')}
    assert (done.returncode, done.stderr) == (0, '')
    assert list(lines) == ['broken', 'bundle', 'cache', 'calls', 'clean', 'completion', 'greet', 'hub', 'pilot',
                           'platforms', 'run', 'session', 'simulate', 'task', 'thing', 'top', 'trace', 'why',
                           '--version']
    assert lines['greet'].endswith('Say hello.')
    assert "the command 'broken' of greeting (broken:run) is broken: RuntimeError: it is broken" in lines['broken']
    assert 'List, show' in lines['session']   # what this distribution brings cannot be replaced


def test_a_bare_rp_lists_the_commands(tmp_path: Path) -> None:
    done = rp(cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout == rp('--help', cwd=tmp_path).stdout == rp('help', cwd=tmp_path).stdout
    assert rp('help', 'why', cwd=tmp_path).stdout == rp('why', '--help', cwd=tmp_path).stdout


def test_lines_of_the_help_are_those_of_the_commands() -> None:
    for command in commands.all_commands():
        if command.origin == commands.OWN:
            assert (command.load().__doc__ or '').split('\n\n')[0].split() == command.summary().split()


def test_commands_of_others(tmp_path: Path, plugins: str) -> None:
    done = rp('greet', 'you', cwd=tmp_path, PYTHONPATH=plugins)
    assert (done.returncode, done.stdout, done.stderr) == (3, 'hello you\n', '')
    for name in ('broken', 'thing'):
        done = rp(name, cwd=tmp_path, PYTHONPATH=plugins)
        assert (done.returncode, done.stdout) == (1, '')
        assert done.stderr.startswith(f"rp {name}: the command '{name}' of greeting")
        assert 'Traceback' not in done.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    for arguments, says in ((('nope',), "there is no command 'nope'; there are: "),
                            (('session',), 'usage: rp session'), (('hub', 'start', '--ports', '9-1'), 'FROM-TO'),
                            (('hub', 'start', '--listen', 'ipc://x'), 'tcp://HOST'),
                            (('hub', 'start', '--listen', 'tcp://no.such.host.invalid'), 'neither an interface'),
                            (('session', 'purge'), 'name sessions'),
                            (('session', 'purge', 'x', '--all-closed'), 'name sessions')):
        done = rp(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert says in done.stderr


def test_errors_are_one_sentence(tmp_path: Path) -> None:
    for arguments, says in ((('session', 'show', 'nope'), 'there is no session nope'),
                            (('session', 'list', '--base', 'nope'), 'nope is not a directory'),
                            (('hub', 'status'), 'there is no hub'),
                            (('hub', 'stop', 'tcp://a:1'), 'no access to a hub')):
        done = rp(*arguments, cwd=tmp_path, RADICAL_BASE=str(tmp_path))
        assert (done.returncode, done.stdout) == (1, '')
        assert done.stderr.startswith(f'rp {arguments[0]}: {says}')
        assert len(done.stderr.splitlines()) == 1


def test_versions(tmp_path: Path) -> None:
    done = rp('--version', cwd=tmp_path)
    assert done.returncode == 0
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {'rp-api', 'rp-client', 'rp-profiling', 'Python'}


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, '-m', 'rp_client.cli', '--help'], stdout=writer, stderr=subprocess.PIPE,
                          cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b'')


def test_help_imports_nothing_large(tmp_path: Path) -> None:
    code = ('import sys; from rp_client.cli.program import main; main(["--help"]); '
            'print(*sorted(set(sys.modules) & {"zmq", "sqlite3", "pymongo", "rich", "asyncio", "radical.pilot"}))')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == ''


def test_exit_codes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(error: BaseException) -> commands.Run:
        def run(_: list[str]) -> int:
            raise error
        return run

    for error, code in ((PilotError('it failed'), 1), (FileNotFoundError('gone'), 1), (KeyboardInterrupt(), 130)):
        monkeypatch.setattr(commands.Command, 'load', lambda self, error=error: raising(error))
        assert program.main(['session']) == code
    assert capsys.readouterr().err == 'rp session: it failed\nrp session: gone\n'


# how things look


def test_sizes() -> None:
    assert [shown_size(size) for size in (None, 0, 999, 1000, 1_500_000, 2e9, 5e12)] == [
        '-', '0 B', '999 B', '1 KB', '2 MB', '2.0 GB', '5000.0 GB']


def test_counts_begin_with_what_has_ended() -> None:
    assert _counts({'AGENT_EXECUTING': 1, 'FAILED': 2, 'DONE': 3}) == '3 DONE, 2 FAILED, 1 AGENT_EXECUTING'
    assert _counts({}) == 'none'


def test_states() -> None:
    assert _state({'state': 'open', 'application': {'pid': 1, 'host': 'h'}}) == 'open (pid 1 on h)'
    assert _state({'state': 'closed', 'application': None}) == 'closed'


def test_of_several_sessions_the_one_that_was_created_last_counts(tmp_path: Path) -> None:
    """Also if another one has changed later."""
    for changed, (name, created) in enumerate((('new', 3.0), ('old', 1.0))):
        (tmp_path / name).mkdir(mode=0o700)
        store = Store(tmp_path / name / 'hub.db')
        store.set_meta([('created', created), ('session', name)])
        store.close()
        for path in (tmp_path / name / 'hub.db', tmp_path / name):
            os.utime(path, (10 + changed, 10 + changed))
    assert stores.choose(tmp_path, None, None).uid == 'new'
    assert stores.choose(tmp_path, None, 'ol').uid == 'old'
    assert stores.choose(tmp_path / 'old', None, str(tmp_path / 'old')).where == str(tmp_path / 'old')
    with pytest.raises(PilotError, match='no session nope'):
        stores.choose(tmp_path, None, 'nope')
    (tmp_path / 'newer').mkdir()
    (tmp_path / 'newer' / 'hub.db').touch()
    with pytest.raises(PilotError, match='a part of the uids of 2 sessions: new, newer'):
        stores.choose(tmp_path, None, 'ne')


def test_what_a_database_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stores._uniform({'uid': 's', 'collection': 'c', 'state': 'closed', 'created': 5.0, 'pid': 1, 'host': 'h',
                            'pilots': {'DONE': 2}, 'tasks': {}}) == {
        'uid': 's', 'where': 'c', 'created': 5.0, 'closed': 5.0, 'state': 'closed',
        'application': {'pid': 1, 'host': 'h'}, 'pilots': {'DONE': 2}, 'tasks': {}, 'size': None}

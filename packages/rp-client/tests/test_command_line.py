"""The program `rp` itself: which commands there are, what it says, how it ends; what they do is tested elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert list(lines) == ['broken', 'bundle', 'cache', 'greet', 'hub', 'platforms', 'run', 'session', 'simulate',
                           'thing', 'trace', '--version']
    assert lines['greet'].endswith('Say hello.')
    assert "the command 'broken' of greeting (broken:run) is broken: RuntimeError: it is broken" in lines['broken']
    assert 'List, show' in lines['session']   # what this distribution brings cannot be replaced


def test_commands_of_others(tmp_path: Path, plugins: str) -> None:
    done = rp('greet', 'you', cwd=tmp_path, PYTHONPATH=plugins)
    assert (done.returncode, done.stdout, done.stderr) == (3, 'hello you\n', '')
    for name in ('broken', 'thing'):
        done = rp(name, cwd=tmp_path, PYTHONPATH=plugins)
        assert (done.returncode, done.stdout) == (1, '')
        assert done.stderr.startswith(f"rp {name}: the command '{name}' of greeting")
        assert 'Traceback' not in done.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    for arguments, says in (((), 'usage: rp COMMAND'), (('nope',), "there is no command 'nope'; there are: "),
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


def test_of_several_sessions_of_one_uid_the_last_one_counts() -> None:
    class Fixed(stores.Directories):
        def sessions(self) -> list[stores.Description]:
            return [{'uid': 's', 'where': str(number), 'created': number} for number in (1, 3, 2)]

    place = Fixed([])
    assert stores.find([place], 's')[1]['where'] == '3'
    assert stores.find([place], '1')[1]['where'] == '1'


def test_what_a_database_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stores._uniform({'uid': 's', 'collection': 'c', 'state': 'closed', 'created': 5.0, 'pid': 1, 'host': 'h',
                            'pilots': {'DONE': 2}, 'tasks': {}}) == {
        'uid': 's', 'where': 'c', 'created': 5.0, 'closed': 5.0, 'state': 'closed',
        'application': {'pid': 1, 'host': 'h'}, 'pilots': {'DONE': 2}, 'tasks': {}, 'size': None}

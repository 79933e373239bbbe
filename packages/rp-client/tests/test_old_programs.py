"""The programs `radical-pilot-*`: which there are, and what each calls."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rp_api import __version__
from rp_client import recorded
from rp_client.cli import program
from rp_client.cli.programs import PROGRAMS, main

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / 'docs/reference/command-line.md').read_text()

UPSTREAM = """
    agent-statepush agent_0 agent_n bridge command component control create-static-ve deploy-ompi.sh dragon-executor.py
    hello.sh http-balancer limits.py prte2prof proxy-server raptor-master raptor-worker resources run-session
    service-wrapper stats stats.plot test-slurm ve version
    close-session cleanup inspect fetch-db fetch-json fetch-profiles fetch-logfiles bson2json"""
"""The programs of RADICAL-Pilot 1.103, and those that it had before version 1.41."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of `rp` that programs run."""
    found: list[list[str]] = []

    def run(words: list[str]) -> int:
        found.append(words)
        return len(found) - 1

    monkeypatch.setattr(program, 'run', run)
    return found


def scripts(distribution: str) -> dict[str, str]:
    """The scripts that a pyproject.toml declares."""
    text = (ROOT / 'packages' / distribution / 'pyproject.toml').read_text().partition('[project.scripts]\n')[2]
    lines = text.partition('\n\n')[0].splitlines()
    return {name: where.strip('"') for name, where in (line.split(' = ') for line in lines)}


def test_each_program_is_installed() -> None:
    declared = {name: where for name, where in scripts('rp-client').items() if name.startswith('radical-pilot-')}
    assert set(declared) == set(PROGRAMS)
    module, _, function = set(declared.values()).pop().partition(':')
    assert getattr(importlib.import_module(module), function) is main
    assert len(set(declared.values())) == 1


def test_the_document_names_each_program_of_version_1() -> None:
    ours = {*PROGRAMS, *scripts('rp-raptor'), 'radical-pilot-hello.sh'}
    rows = [line for line in DOCUMENT.splitlines() if line.startswith('| `radical-pilot-')]
    left = {f'radical-pilot-{name}' for name in UPSTREAM.split()} - ours
    assert [name for name in ours if not any(f'`{name}`' in row for row in rows)] == []
    assert [name for name in left if not any(f'`{name}`' in row for row in rows)] == []


@pytest.mark.parametrize('name', PROGRAMS)
def test_each_program_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f'/usr/bin/{name}', '--help'])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f'usage: {name} ')
    assert str(PROGRAMS[name].__doc__) in ' '.join(said.split())


def test_version(capsys: pytest.CaptureFixture[str], ran: list[list[str]]) -> None:
    assert main(['radical-pilot-version']) == 0
    assert capsys.readouterr().out == f'{__version__}\n'
    main(['radical-pilot-version', '-v'])
    assert ran == [['--version']]


def test_resources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['radical-pilot-resources']) == 0
    assert {'local.localhost', 'ornl.frontier'} <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize(('options', 'expected'), [
    ([], ['list']),
    (['-s', 'sid'], ['show', 'sid']),
    (['-d', 'mongodb://host/'], ['list', '--dburl', 'mongodb://host/']),
    (['-m', 'export', '-s', 'sid'], ['export', 'sid', '-o', 'sid.json']),
    (['-m', 'dump', '-s', 'sid'], ['export', 'sid']),
    (['-m', 'purge', '-s', 'sid'], ['purge', 'sid']),
    (['-m', 'purge'], ['purge', '--all-closed']),
    (['-m', 'purge', '-a', '3'], ['purge', '--all-closed', '--older-than', '3.0']),
    (['-m', 'purge', '-a', '12h'], ['purge', '--all-closed', '--older-than', '0.5']),
])
def test_close_session(options: list[str], expected: list[str], ran: list[list[str]]) -> None:
    assert main(['radical-pilot-close-session', *options]) == 0
    assert ran == [['session', *expected]]


@pytest.mark.parametrize(('program_name', 'options', 'message'), [
    ('close-session', ['-m', 'dump'], 'the mode dump needs -s SESSION'),
    ('close-session', ['-m', 'purge', '-a', 'old'], "'old' is not a number with one of the suffixes m, h, d"),
    ('close-session', ['-a', '3d'], '-a is only allowed with -m purge, and without -s'),
    ('stats', ['-s', 'sid', '-m', 'prof'], "mode 'prof' is unknown, allowed are: tree, dump, stat, plot"),
])
def test_wrong_usage(program_name: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f'radical-pilot-{program_name}', *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_stats(ran: list[list[str]]) -> None:
    assert main(['radical-pilot-stats', '-s', 'a,b', '-m', 'tree,stat']) == 3
    assert ran == [['session', 'show', 'a', '--tasks'], ['session', 'show', 'b', '--tasks'], ['trace', 'a', 'stats'],
                   ['trace', 'b', 'stats']]


def test_fetch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Any] = []

    def fetch(*arguments: Any, **options: Any) -> list[str]:
        calls.append((arguments, options))
        return ['/a', '/b']

    monkeypatch.setattr(recorded, 'fetch_profiles', fetch)
    assert main(['radical-pilot-fetch-profiles', 'sid', '-c', 'src', '-t', 'tgt', '-a', 'sftp://h/', '-s']) == 0
    assert calls == [(('sid', 'src', 'tgt', 'sftp://h/', True), {'fetch_client': True})]
    assert capsys.readouterr().out == '/a\n/b\n'


def test_errors_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(['radical-pilot-fetch-logfiles', 'sid']) == 1
    assert capsys.readouterr().err.startswith("radical-pilot-fetch-logfiles: there is no session 'sid' in")
    assert main(['radical-pilot-fetch-json', 'sid']) == 1
    assert capsys.readouterr().err.startswith("radical-pilot-fetch-json: there is no session 'sid'")


def test_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> SimpleNamespace:
        calls.append(command)
        return SimpleNamespace(returncode=4)

    monkeypatch.setattr(subprocess, 'run', run)
    assert main(['radical-pilot-ve', 'dir']) == 4
    assert calls.pop() == [sys.executable, '-m', 'venv', 'dir']
    assert main(['radical-pilot-create-static-ve', '-p', '/a b', '-P', 'module load x', '-m', 'numpy,scipy>1', '-d',
                 '-T', '/dump']) == 4
    assert calls.pop() == ['bash', '-c', '\n'.join([
        'set -e', 'module load x', f'{sys.executable} -m venv \'/a b\'', ". '/a b'/bin/activate",
        f"python -m pip install rp-agent=={__version__} rp-raptor=={__version__} numpy 'scipy>1'",
        'env | sort > /dump'])]
    assert main(['radical-pilot-create-static-ve', '-p', '/c', '-t', 'conda', '-v', '3.12']) == 4
    assert calls.pop()[2].splitlines()[1:] == [
        'conda create -y -p /c python=3.12', 'eval "$(conda shell.bash hook)"', 'conda activate /c']

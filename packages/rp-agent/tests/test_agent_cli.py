"""The program `rp-agent`: what it refuses, with which words, and how it ends."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rp_agent import cli
from rp_api import distributions
from rp_api.errors import CoordinationError, PilotError
from rp_api.loop.event_loop import Loop
from rp_api.system import private
from rp_profiling.read.profile import read_profile


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a configuration that is good enough for an agent that is not run."""
    monkeypatch.setattr(distributions, 'check_upstream', lambda: None)
    path = tmp_path / 'agent_0.cfg'
    private.write_file(path, json.dumps({'pilot_sandbox': str(tmp_path)}).encode())
    return str(path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The configurations of agents that would have been run."""
    configs: list[dict[str, Any]] = []
    monkeypatch.setattr(cli, '_run', configs.append)
    return configs


class Program:
    """Calls `main` in a process whose log nobody has set up yet; `level` is what it was set to.

    `directory` is where it went.
    """

    level = 0
    directory = ''

    def __call__(self, *arguments: str) -> int:
        root = logging.RootLogger(logging.WARNING)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir('.')   # it goes elsewhere
            patch.setattr(logging, 'root', root)
            patch.setattr(cli, '_log', root)
            try:
                return cli.main(arguments)
            finally:
                self.level = root.level
                self.directory = os.getcwd()
                for handler in root.handlers:
                    handler.close()


@pytest.fixture
def main() -> Program:
    return Program()


@pytest.mark.parametrize('arguments', [[], ['a', 'b'], ['a', '-v', 'c']])
def test_wrong_number_of_arguments(main: Program, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(*arguments) == 2
    assert capsys.readouterr().err.startswith('usage: rp-agent CONFIG')


def test_arguments_of_the_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, 'argv', ['rp-agent'])
    assert cli.main() == 2
    assert 'usage' in capsys.readouterr().err


@pytest.mark.parametrize(('content', 'words'), [
    (None, 'No such file'), (b'', 'Expecting value'), (b'{"pilot_sandbox": ', 'Expecting value'),
    (b'\xff\xfe', 'decode'), (b'[]', 'not the configuration of an agent'), (b'{}', 'pilot_sandbox'),
    (b'{"pilot_sandbox": 7}', 'pilot_sandbox'), (b'{"pilot_sandbox": "/no/such/directory"}', '/no/such/directory'),
    (b'{"pilot_sandbox": "a\\u0000b"}', 'null')])
def test_configuration_that_cannot_be_used(main: Program, tmp_path: Path, content: bytes | None, words: str,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'agent_0.cfg'
    if content is not None:
        private.write_file(path, content)
    assert main(str(path)) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f'rp-agent: cannot use {path}: ')
    assert words in sentence


def test_configuration_is_a_directory(main: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(str(tmp_path)) == 2
    assert 'it is not a file' in capsys.readouterr().err


def test_configuration_that_others_can_read(main: Program, config: str, capsys: pytest.CaptureFixture[str],
                                            started: list[dict[str, Any]]) -> None:
    """It holds keys."""
    os.chmod(config, 0o640)
    assert main(config) == 2
    assert f'{config} is not ours alone: others may use it (mode 0640' in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize('link', [False, True])
def test_sandbox_that_others_can_change(main: Program, tmp_path: Path, link: bool, started: list[dict[str, Any]],
                                        capsys: pytest.CaptureFixture[str]) -> None:
    sandbox, path = tmp_path / 'sandbox', tmp_path / 'agent_0.cfg'
    sandbox.symlink_to(tmp_path) if link else sandbox.mkdir()
    if not link:
        sandbox.chmod(0o770)
    private.write_file(path, json.dumps({'pilot_sandbox': str(sandbox)}).encode())
    assert main(str(path)) == 2
    assert f'{sandbox} is not ours alone: ' in capsys.readouterr().err
    assert started == []
    assert main.directory != str(sandbox)


def test_agent_gets_its_configuration(main: Program, config: str, tmp_path: Path,
                                      started: list[dict[str, Any]]) -> None:
    assert main(config) == 0
    assert started == [{'pilot_sandbox': str(tmp_path), 'agent_uid': 'agent_0'}]
    assert main.directory == str(tmp_path)


def test_files_of_another_agent_of_the_pilot(main: Program, config: str, tmp_path: Path,
                                             started: list[dict[str, Any]]) -> None:
    Path(config).write_text(json.dumps({'pilot_sandbox': str(tmp_path), 'agent_uid': 'agent_1'}))
    assert main(config) == 0
    assert started[0]['agent_uid'] == 'agent_1'
    assert (tmp_path / 'agent_1.log').exists()


def test_other_radical_pilot_is_installed(main: Program, config: str, started: list[dict[str, Any]], tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise PilotError('radical.pilot 1.103 is installed')

    monkeypatch.setattr(distributions, 'check_upstream', refuse)
    assert main(config) == 1
    assert capsys.readouterr().err == 'rp-agent: radical.pilot 1.103 is installed\n'
    assert started == []
    assert 'radical.pilot 1.103 is installed' in (tmp_path / 'agent_0.log').read_text()


def test_agent_that_cannot_go_on(main: Program, config: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    """The client shows the sentence; the trace is for the log."""
    def run(_: dict[str, Any]) -> None:
        raise CoordinationError('the hub speaks another protocol')

    monkeypatch.setattr(cli, '_run', run)
    assert main(config) == 1
    assert capsys.readouterr().err == 'rp-agent: the hub speaks another protocol\n'
    assert 'Traceback' in (tmp_path / 'agent_0.log').read_text()


def test_mistake_in_the_agent_is_loud(main: Program, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: dict[str, Any]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, '_run', run)
    with pytest.raises(ZeroDivisionError):
        main(config)


# an agent that another process on this host launches, and makes a note of

LAUNCHER = '''
import json, os, socket, subprocess, sys
from rp_api.system.agent_process import AgentProcess
from rp_api.system.host import python_program

sandbox, who = sys.argv[1:3]
with open(f'{sandbox}/agent_0.cfg', 'w') as file:
    json.dump({'pilot': 'pilot.0000', 'pilot_sandbox': sandbox, 'profile': sys.argv[3], 'launcher': os.getpid()}, file)
os.chmod(f'{sandbox}/agent_0.cfg', 0o600)
ours, theirs = socket.socketpair()
program = python_program('rp_agent.cli')
program[-1] = 'import rp_agent.cli as c; c._run = lambda config: print("runs", *config, flush=True); ' + program[-1]
agent = subprocess.Popen([*program, f'{sandbox}/agent_0.cfg'], stdin=theirs.fileno())
if who == 'dies':
    os._exit(0)
pid = {'agent': agent.pid, 'another': os.getpid()}[who]
AgentProcess.of(pid).note(sandbox)
if who == 'another':   # which is to be the agent
    os._exit(0)
ours.shutdown(socket.SHUT_RDWR)
agent.wait()
'''


def launched(sandbox: Path, who: str, profile: str = '') -> tuple[str, str]:
    """What an agent writes whose launcher has made a note of it, or of another process, or has died before."""
    done = subprocess.run([sys.executable, '-c', LAUNCHER, str(sandbox), who, profile], capture_output=True, text=True,
                          timeout=60)   # which ends when the agent does, too: it has the pipes
    return done.stdout, done.stderr


def test_agent_runs_when_its_launcher_has_noted_it(tmp_path: Path) -> None:
    """Nothing of that is in its configuration any more, which agents of partitions get as well."""
    assert launched(tmp_path, 'agent') == ('runs agent_uid pilot pilot_sandbox profile\n', '')
    assert not (tmp_path / 'bootstrap_0.prof').exists()


def test_agent_records_its_bootstrap_when_there_is_no_stage_0(tmp_path: Path) -> None:
    assert launched(tmp_path, 'agent', 'full,gzip')[1] == ''
    rows = read_profile(tmp_path / 'bootstrap_0.prof')
    assert [(row.event, row.uid) for row in rows] == [
        ('sync_abs', ''), ('bootstrap_0_start', 'pilot.0000'), ('bootstrap_0_ok', 'pilot.0000'),
        ('bootstrap_0_stop', 'pilot.0000'), ('END', '')]
    assert rows[1].msg == os.uname().nodename


@pytest.mark.parametrize('who', ['dies', 'another'])
def test_agent_that_was_not_noted_ends(tmp_path: Path, who: str) -> None:
    """The next application would not find it, and start another one."""
    stdout, stderr = launched(tmp_path, who)
    assert stdout == ''
    assert stderr.endswith('ends: another process is the agent of this pilot\n')
    assert not (tmp_path / 'agent_0.log').exists()


@pytest.mark.parametrize(('name', 'level'), [
    (None, logging.INFO), ('', logging.INFO), ('DEBUG', logging.DEBUG), ('debug', logging.DEBUG),
    ('DEBUG_9', logging.DEBUG), ('Warning', logging.WARNING), ('ERROR', logging.ERROR), ('REPORT', logging.INFO),
    ('17', logging.INFO)])
def test_log_level(main: Program, config: str, started: list[dict[str, Any]], name: str | None, level: int,
                   monkeypatch: pytest.MonkeyPatch) -> None:
    """No name in the environment keeps an agent from running."""
    monkeypatch.delenv('RADICAL_PILOT_LOG_LVL', raising=False)
    if name is not None:
        monkeypatch.setenv('RADICAL_PILOT_LOG_LVL', name)
    assert main(config) == 0
    assert main.level == level


def test_agent_is_closed_when_its_loop_fails(main: Program, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Agent:
        def __init__(self, config: dict[str, Any], loop: Loop) -> None:
            loop.call_soon(self.fail)

        def fail(self) -> None:
            raise CoordinationError('no')

        def told_to_end(self) -> None:
            """Not called."""

        def close(self) -> None:
            closed.append('agent')

    monkeypatch.setattr('rp_agent.agent.Agent', Agent)
    monkeypatch.setattr(cli, 'belongs', dict)
    monkeypatch.setattr('rp_agent.node_copies.place.directory', lambda *_: '')
    monkeypatch.setattr('rp_agent.nodes.guard.start', lambda *_: None)
    monkeypatch.setattr(cli, 'become_subreaper', lambda: None)
    monkeypatch.setattr(cli, '_on_signal', lambda *_: None)
    assert main(config) == 1
    assert closed == ['agent']


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signal_is_handled_in_the_loop(number: signal.Signals) -> None:
    """Not where it comes: there something may be half done."""
    program = '''
import os, signal, sys
from rp_agent.cli import _on_signal
from rp_api.loop.event_loop import Loop

loop = Loop()

class InCharge:
    def told_to_end(self):
        print('told')
        loop.stop()

_on_signal({'platform': {}}, loop, InCharge())

def work():
    os.kill(os.getpid(), int(sys.argv[1]))
    print('went on')

loop.call_soon(work)
loop.call_later(20, os._exit, 9)
loop.run()
'''
    done = subprocess.run([sys.executable, '-c', program, str(int(number))], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, 'went on\ntold\n', '')


def test_module_is_the_program(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, '-m', 'rp_agent', str(tmp_path / 'none')], capture_output=True, text=True,
                          timeout=30)
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr.startswith('rp-agent: cannot use')
    assert 'Traceback' not in done.stderr

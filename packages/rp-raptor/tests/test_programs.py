"""Programs and shell commands that calls run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from leftovers import must_end

from rp_raptor.errors import CallTimeout
from rp_raptor.rank.programs import run_command, run_program

LEAVES = 'sleep 1000 & echo $! >pid; echo said'


@pytest.mark.parametrize('mode', ['proc', 'shell'])
def test_what_a_program_leaves_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Its output, which that holds, is complete nevertheless."""
    monkeypatch.chdir(tmp_path)
    Path('leaves.sh').write_text(LEAVES)
    outcome = run_command(LEAVES, '', '') if mode == 'shell' else run_program('/bin/sh', ['leaves.sh'], '', '')
    assert (outcome.stdout, outcome.exit_code) == ('said\n', 0)
    must_end([int(Path('pid').read_text())])


@pytest.mark.skipif('CI' not in os.environ and shutil.which('bash') is None, reason='there is no bash')
def test_commands_are_those_of_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path('setup.sh').write_text('words=(one two)')
    command = 'source setup.sh && [[ ${words[1]} == t* ]] && echo "$0 ${words[1]}"'
    assert run_command(command, '', '').stdout == f'{shutil.which("bash")} two\n'
    arguments = ['-c', 'import sys; print(sys.argv[1])', '$((1 + 1))${BASH_VERSION:0:0}']
    told = run_program(sys.executable, arguments, '', '')
    assert told.stdout == '2\n'


@pytest.mark.parametrize('executable', ['/usr/bin/printf', './$HOME a;b'])
def test_literal_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path('$HOME a;b').symlink_to('/usr/bin/printf')
    texts = ['$HOME', r'\$HOME', '$(date)', '`date`', "it's", '"', '$5', 'a\\']
    outcome = run_program(executable, ['%s|', *texts], '', '', literal=True)
    assert str(outcome.stdout).split('|')[:-1] == texts
    assert run_program(executable, ['%s', r'cost: $5\$5'], '', '').stdout == 'cost: $5'


def test_a_shell_that_does_not_find_the_output_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ['-c', '$(echo no-such-program)']
    outcome = run_program('sh', arguments, '', '')
    assert (outcome.exit_code, 'literal_arguments=True' in str(outcome.exception)) == (127, True)
    outcome = run_program('sh', arguments, '', '', literal=True)
    assert (outcome.exit_code, outcome.exception) == (127, (None, None))


def test_executables_that_are_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('HOME', str(tmp_path))
    (tmp_path / 'prog').symlink_to('/bin/echo')
    for executable, told in (('/bin/echo a &&  ~/prog', 'a\nb $5\n'), ('$HOME/prog', 'b $5\n'),
                             ('$(echo echo)', 'b $5\n')):
        assert run_program(executable, ['b', r'\$5'], '', '').stdout == told
        outcome = run_program(executable, ['b'], '', '', literal=True)
        assert f'cannot run {executable}: No such file' in str(outcome.exception)


def test_commands_are_those_of_sh_on_a_host_without_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    assert run_command('echo "$0"', '', '').stdout == '/bin/sh\n'


def test_the_platform_names_the_shell_of_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = tmp_path / 'mine'
    shell.write_text('#!/bin/sh\necho "mine $*"\n')
    shell.chmod(0o755)
    monkeypatch.setenv('RP_SHELL', str(shell))
    assert run_command('echo x', '', '').stdout == 'mine -c echo x\n'
    monkeypatch.setenv('RP_SHELL', 'none-such')
    outcome = run_command('echo x', '', '')
    assert outcome.exit_code == 1
    assert "the shell 'none-such' of the platform definition is not on" in str(outcome.exception[0])


def test_a_program_whose_start_is_interrupted_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The signal comes before its process id is known."""
    def interrupt(*_: Any) -> None:
        raise CallTimeout('the call took too long')

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.SIGUSR1)

    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, 'Popen', Interrupted)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(CallTimeout):
            run_command('sleep 60', '', '')
        assert signal.getsignal(signal.SIGUSR1) is interrupt
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [process.poll() for process in started] == [-signal.SIGKILL]

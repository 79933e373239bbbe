"""Completion in real shells: commands, actions, options and uids."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rp_api.coordination.hub.store import Store
from rp_api.wire import codec
from rp_client.cli.completion import completion, words


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with one session, and a program `rp`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'state'))
    (tmp_path / 'ours').mkdir(mode=0o700)
    store = Store(tmp_path / 'ours' / 'hub.db')
    store.set_meta([('session', 'ours'), ('created', 1.0)])
    store.insert_pilots('pmgr.0000', [('pilot.0000', codec.pack({'description': {}}))])
    store.tasks.insert('', 'tmgr.0000', codec.pack({}), [(f'task.00000{n}', codec.NOTHING) for n in range(3)])
    store.close()
    program = tmp_path / 'bin' / 'rp'
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rp_client.cli "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv('PATH', f'{program.parent}:{os.environ["PATH"]}')
    return tmp_path


def offered(line: str) -> list[str]:
    found = line.split(' ')
    return words(len(found) - 1, found)


def test_what_is_offered(base: Path) -> None:
    assert offered('rp ta') == ['task']
    assert set(offered('rp task ')) == {'list', 'info', 'cat', 'tail', 'cancel', 'retry', '-h', '--help'}
    assert offered('rp task list --fa') == ['--failed']
    assert offered('rp task list --state fa') == ['failed']
    assert offered('rp why task') == ['task.000000', 'task.000001', 'task.000002']
    assert offered('rp task info --session ours pilot') == ['pilot.0000']
    assert offered('rp task list --session ') == offered('rp session show ') == offered('rp clean ') == ['ours']
    assert offered('rp completion b') == ['bash']
    assert offered('rp nope ') == offered('rp task list --session nope --after ') == []


def test_a_wrong_call_says_nothing(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion(['words', 'x']) == completion(['words', '3', 'rp', 'task', 'info']) == 0
    assert capsys.readouterr().err == ''


@pytest.mark.parametrize('shell', ['bash', 'zsh'])
def test_in_the_shell(base: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f'{shell} is not installed')
    script = subprocess.run(['rp', 'completion', shell], capture_output=True, text=True, check=True).stdout
    use = {'bash': f'{script}\nCOMP_WORDS=(rp why task); COMP_CWORD=2; _rp; echo "${{COMPREPLY[@]}}"',
           'zsh': f'compdef() {{ : }}; compadd() {{ shift; echo "$@" }}; {script}\n'
                  'words=(rp why task); CURRENT=3; _rp'}[shell]
    done = subprocess.run([shell, '-c', use], capture_output=True, text=True)
    assert done.stdout == 'task.000000 task.000001 task.000002\n', done.stderr

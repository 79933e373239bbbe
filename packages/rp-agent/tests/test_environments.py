"""Environments that are really built: once, in parallel, with a reason for a failure, although processes are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from environment_support import Pilot, lines, waits, wheel

from rp_agent.environments.environments import MARK
from rp_api.description.environment import normal_form
from rp_api.errors import DescriptionError
from rp_api.system import processes

UV_OR_VENV = 'uv' if shutil.which('uv') else 'venv'
"""The type that installs packages faster."""


@pytest.fixture
def pilot(tmp_path: Path) -> Iterator[Pilot]:
    made = Pilot(tmp_path)
    yield made
    made.close()


def builders(pilot: Pilot) -> list[int]:
    """The processes that build environments."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir('/proc'))) if processes.variable(pid, MARK)
            and processes.variable(pid, 'RP_SESSION_ID') == pilot.belongs['RP_SESSION_ID']]


def slow_venv(started: Path, goes: Path) -> dict[str, Any]:
    """A specification whose tool makes a part of the environment, and then waits."""
    tool = f'python3() {{ mkdir "$4"; touch "$4/half"; {waits(started, goes)}; rm -r "$4"; command python3 "$@"; }}'
    return {'pre_exec': [tool]}


# what is built

@pytest.mark.long
def test_a_venv_with_a_package(pilot: Pilot, tmp_path: Path) -> None:
    assert pilot.built('e', setup=[*wheel(tmp_path / 'wheels'), 'tiny']) == ''
    assert pilot.run('e', 'python -c "import tiny; print(tiny.answer)"') == '42'
    assert pilot.run('e', 'echo $VIRTUAL_ENV', '/bin/bash') == pilot.files('e').directory
    assert f'VIRTUAL_ENV={pilot.files("e").directory}' in Path(pilot.files('e').variables).read_text().splitlines()
    assert 'RP_' not in Path(pilot.files('e').script).read_text()
    assert os.stat(pilot.files('e').script).st_mode & 0o077 == 0


@pytest.mark.skipif(not shutil.which('uv') and 'CI' not in os.environ, reason='uv is not installed')
def test_uv_with_the_dependencies_of_a_project(pilot: Pilot, tmp_path: Path) -> None:
    (pilot.sandbox / 'pyproject.toml').write_text('[project]\nname="mine"\nversion="1"\ndependencies=["tiny>0.5"]\n')
    assert pilot.built('e', type='uv', setup=[*wheel(tmp_path / 'wheels'), 'pyproject.toml']) == ''
    assert pilot.run('e', 'python -c "import tiny; print(tiny.answer)"') == '42'


@pytest.mark.skipif(not shutil.which('virtualenv') and 'CI' not in os.environ, reason='virtualenv is not installed')
def test_virtualenv(pilot: Pilot) -> None:
    version = '{}.{}'.format(*sys.version_info)
    assert pilot.built('e', type='virtualenv', version=version) == ''
    assert pilot.run('e', 'python -c "import sys; print(sys.prefix)"') == pilot.files('e').directory


def test_a_shell_environment(pilot: Pilot) -> None:
    assert pilot.built('e', type='shell', pre_exec=['export GREETING="it\'s me"  # a comment', 'PATH=$PATH:/x']) == ''
    assert pilot.run('e', 'echo $GREETING; echo ${PATH##*:}') == "it's me\n/x"


def test_an_environment_that_exists_is_used(pilot: Pilot, tmp_path: Path) -> None:
    path = tmp_path / 'mine'
    (path / 'bin').mkdir(parents=True)
    (path / 'bin' / 'activate').write_text('export MINE=1\n')
    assert pilot.built('e', path=str(path)) == ''
    assert pilot.run('e', 'echo $MINE') == '1'
    assert os.path.realpath(pilot.files('e').directory) == str(path)
    assert not os.path.exists(f'{path}.lock')


def test_an_environment_at_a_path_is_shared_if_it_has_the_same_specification(pilot: Pilot, tmp_path: Path) -> None:
    path = str(tmp_path / 'new' / 'e')
    assert pilot.built('a', path=path) == ''
    assert pilot.built('b', path=path) == ''
    assert '-m venv' in pilot.log('a')
    assert '-m venv' not in pilot.log('b')
    reason = pilot.built('c', path=path, pre_exec=['true'])
    assert 'another specification describes' in reason
    assert path in reason


@pytest.mark.long
def test_changed_files_make_another_environment(pilot: Pilot, tmp_path: Path) -> None:
    """Tasks that run go on in the one that they have entered."""
    setup = [*wheel(tmp_path / 'wheels'), *wheel(tmp_path / 'wheels', 'small')[1:], '-r all.txt']
    (pilot.sandbox / 'all.txt').write_text('-r more.txt\n')
    for name, other in (('tiny', 'small'), ('small', 'tiny')):
        (pilot.sandbox / 'more.txt').write_text(f'{name}\n')
        assert pilot.built('e', type=UV_OR_VENV, setup=setup) == ''
        assert pilot.run('e', f'python -c "import {name}; print({name}.answer)"') == '42'
        assert pilot.run('e', f'python -c "import {other}" 2> /dev/null || echo none') == 'none'
    assert Path(pilot.files('e').directory, 'bin', 'python').exists()
    built = pilot.log('e').count('+ python3 -m venv') + pilot.log('e').count('+ uv venv')
    assert pilot.built('e', type=UV_OR_VENV, setup=setup) == ''
    assert pilot.log('e').count('+ python3 -m venv') + pilot.log('e').count('+ uv venv') == built == 2


def test_calls_that_come_while_files_are_read_wait_for_another_look(pilot: Pilot, tmp_path: Path) -> None:
    started, goes = tmp_path / 'started', tmp_path / 'goes'
    (pilot.sandbox / 'r.txt').write_text('tiny\n')
    spec: dict[str, Any] = {'type': UV_OR_VENV, 'setup': [*wheel(tmp_path / 'wheels'), '-r r.txt'],
                            'pre_exec': [waits(started, goes)]}
    pilot.prepare('e', **spec)
    pilot.until(lambda: lines(started))
    wheel(tmp_path / 'wheels', 'small')
    (pilot.sandbox / 'r.txt').write_text('small\n')
    calls: list[str] = []
    pilot.environments.prepare('e', normal_form('e', spec), lambda: calls.append(''),
                               lambda reason, detail: calls.append(reason))
    goes.touch()
    pilot.until(lambda: calls)
    assert calls == ['']
    assert pilot.ended == {'e': ''}
    assert pilot.run('e', 'python -c "import small; print(small.answer)"') == '42'


def test_files_that_are_wrong_leave_the_environment_that_exists(pilot: Pilot, tmp_path: Path) -> None:
    path = str(tmp_path / 'there')
    (pilot.sandbox / 'r.txt').write_text('')
    for name, spec in {'e': {}, 'f': {'path': path}}.items():
        assert pilot.built(name, setup=['--no-index', '-r r.txt'], type=UV_OR_VENV, **spec) == ''
    (pilot.sandbox / 'r.txt').write_text('nowhere-to-be-found\n')
    assert 'exit code' in pilot.built('e', setup=['--no-index', '-r r.txt'], type=UV_OR_VENV)
    reason = pilot.built('f', setup=['--no-index', '-r r.txt'], type=UV_OR_VENV, path=path)
    assert f'{path} has an environment that another' in reason
    (pilot.sandbox / 'r.txt').write_text('')
    for name, spec in {'e': {}, 'f': {'path': path}}.items():
        assert pilot.run(name, 'python -c "print(1)"') == '1'
        assert pilot.built(name, setup=['--no-index', '-r r.txt'], type=UV_OR_VENV, **spec) == ''


# how often

def test_an_environment_is_built_once(pilot: Pilot, tmp_path: Path) -> None:
    started = tmp_path / 'started'
    spec = {'type': 'shell', 'pre_exec': [f'echo x >> {started}']}
    for _ in range(2):
        pilot.prepare('e', **spec)
    pilot.until(lambda: pilot.ended)
    assert pilot.built('e', **spec) == ''
    assert len(lines(started)) == 1
    with pytest.raises(DescriptionError, match="'e' exists with another specification"):
        pilot.prepare('e', type='shell')


def test_environments_are_built_in_parallel(tmp_path: Path) -> None:
    pilot = Pilot(tmp_path, most=2)
    a, b = tmp_path / 'a', tmp_path / 'b'
    pilot.prepare('a', type='shell', pre_exec=[waits(a, b)])
    pilot.prepare('b', type='shell', pre_exec=[waits(b, a)])
    pilot.until(lambda: len(pilot.ended) == 2)
    assert set(pilot.ended.values()) == {''}
    pilot.close()


def test_no_more_builders_run_than_are_allowed(tmp_path: Path) -> None:
    pilot = Pilot(tmp_path, most=1)
    order = tmp_path / 'order'
    for name in 'abc':
        pilot.prepare(name, type='shell', pre_exec=[f'echo {name} >> {order}; echo {name} >> {order}'])
    pilot.until(lambda: len(pilot.ended) == 3)
    assert ''.join(lines(order)) == 'aabbcc'
    pilot.close()


def test_pilots_share_a_kept_environment(tmp_path: Path) -> None:
    pilots = [Pilot(tmp_path, 'pilot.0000')]
    pilots.append(Pilot(tmp_path, 'pilot.0001', loop=pilots[0].loop))
    goes = tmp_path / 'goes'
    spec = {**slow_venv(tmp_path / 'started', goes), 'keep': True}
    for pilot in pilots:
        pilot.prepare('e', **spec)
    pilots[0].until(lambda: lines(tmp_path / 'started'))
    goes.touch()
    pilots[0].until(lambda: all(pilot.ended for pilot in pilots))
    assert [pilot.ended['e'] for pilot in pilots] == ['', '']
    assert len(lines(tmp_path / 'started')) == 1
    first, second = (pilot.run('e', 'echo $VIRTUAL_ENV') for pilot in pilots)
    assert first == second
    assert Path(first).parent == tmp_path / f'env.{os.getuid()}'
    assert json.loads(Path(pilots[1].files('e').record).read_text())['path'] == first
    for pilot in pilots:
        pilot.environments.close()
    pilots[0].loop.close()


# failures

@pytest.mark.parametrize(('spec', 'reason', 'detail'), [
    ({'type': 'shell', 'pre_exec': ['echo no compiler here; false']}, 'exit code 1 of: echo no compiler here; false',
     '\nno compiler here\n'),
    ({'type': 'shell', 'pre_exec': ['exit 7']}, 'exit code: 7', '+ exit 7'),
    ({'type': 'shell', 'pre_exec': ['rm -f env/*.log; false']}, 'its builder gave no reason', 'see '),
    ({'version': '3.999'}, 'python3.999 is not on PATH: load a module', 'see '),
    ({'type': 'conda', 'pre_exec': ['PATH=/nowhere']}, 'conda is not on PATH', 'see '),
    ({'setup': ['-r none.txt']}, "'none.txt', which \"setup\" names, cannot be read in", 'see '),
    ({'setup': ['none/pyproject.toml']}, 'none/pyproject.toml', 'see ')])
def test_a_failure_has_the_reason_and_the_last_lines(pilot: Pilot, spec: dict[str, Any], reason: str,
                                                     detail: str) -> None:
    told = pilot.built('e', **spec)
    assert told.partition('\n')[0].startswith("the environment 'e' cannot be built: ")
    assert reason in told.partition('\n')[0]
    assert detail in told
    assert not os.path.exists(pilot.files('e').script)


def test_after_a_failure_it_can_be_built(pilot: Pilot, tmp_path: Path) -> None:
    file = tmp_path / 'late'
    spec = {'pre_exec': [f'test -e {file}']}
    assert 'exit code 1' in pilot.built('e', **spec)
    file.touch()
    assert pilot.built('e', **spec) == ''
    assert pilot.built('e', **spec) == ''


def test_a_killed_builder_runs_again(pilot: Pilot, tmp_path: Path) -> None:
    started, goes = tmp_path / 'started', tmp_path / 'goes'
    pilot.prepare('e', **slow_venv(started, goes))
    pilot.until(lambda: lines(started))
    assert os.path.exists(f'{pilot.files("e").directory}/half')
    killed = _kill_builder(pilot)
    pilot.until(lambda: len(lines(started)) == 2)
    pilot.until(lambda: not killed & set(builders(pilot)))   # its tools do not go on
    goes.touch()
    pilot.until(lambda: pilot.ended)
    assert pilot.ended == {'e': ''}
    assert not os.path.exists(f'{pilot.files("e").directory}/half')


def test_a_builder_that_is_always_killed_is_a_failure(pilot: Pilot, tmp_path: Path) -> None:
    started, goes = tmp_path / 'started', tmp_path / 'goes'
    spec = slow_venv(started, goes)
    pilot.prepare('e', **spec)
    for number in (1, 2):
        pilot.until(lambda: len(lines(started)) == number)   # noqa: B023
        _kill_builder(pilot)
    pilot.until(lambda: pilot.ended)
    assert 'its builder was killed by signal 9' in pilot.ended.pop('e')
    goes.touch()
    assert pilot.built('e', **spec) == ''


def test_an_environment_that_another_pilot_has_half_built_is_built_again(tmp_path: Path) -> None:
    goes = tmp_path / 'goes'
    spec = {**slow_venv(tmp_path / 'started', goes), 'keep': True}
    first = Pilot(tmp_path, 'pilot.0000')
    first.prepare('e', **spec)
    first.until(lambda: lines(tmp_path / 'started'))
    first.environments.close()   # as when its agent dies
    first.until(lambda: not builders(first))   # a killed process takes a moment to end
    first.close()
    goes.touch()
    second = Pilot(tmp_path, 'pilot.0001')
    assert second.built('e', **spec) == ''
    assert len(lines(tmp_path / 'started')) == 2
    assert second.run('e', 'test -x $VIRTUAL_ENV/bin/python && test ! -e $VIRTUAL_ENV/half && echo whole') == 'whole'
    second.close()


@pytest.mark.parametrize('which', ['shell', 'tool', 'all but the last'])
def test_the_lock_is_held_while_a_process_of_the_build_writes(tmp_path: Path, which: str) -> None:
    """The last process has left its parents and closed all descriptors, as the tools of tools do."""
    goes, log = tmp_path / 'goes', tmp_path / 'log'
    writer = tmp_path / 'writer.py'
    writer.write_text(WRITER)
    spec: dict[str, Any] = {'keep': True, 'pre_exec': [
        f'python3() {{ test -e {goes} && command python3 "$@" || {sys.executable} {writer} {log} "$4"; }}']}
    first, second = Pilot(tmp_path, 'pilot.0000'), Pilot(tmp_path, 'pilot.0001')
    with closing(first), closing(second):
        _look_at_a_killed_build(first, second, spec, log, goes, which)


def _look_at_a_killed_build(first: Pilot, second: Pilot, spec: dict[str, Any], log: Path, goes: Path,
                            which: str) -> None:
    first.prepare('e', **spec)
    first.until(lambda: lines(log))
    second.prepare('e', **spec)
    second.until(lambda: builders(second))
    tool, last = map(int, lines(log)[:2])
    goes.touch()
    _kill(tool, which)
    second.until(lambda: second.ended)
    assert second.ended == {'e': ''}
    assert not processes.lives(last, None)
    assert second.run('e', 'test -x $VIRTUAL_ENV/bin/python && test ! -e $VIRTUAL_ENV/half && echo whole') == 'whole'


WRITER = """
import os, subprocess, sys, time
log, directory = sys.argv[1:3]
if len(sys.argv) == 3:
    os.makedirs(directory)
    last = subprocess.Popen([sys.executable, __file__, log, directory, 'last'], start_new_session=True)
    with open(log + '.new', 'w') as file:
        file.write(f'{os.getpid()} {last.pid}')
    os.rename(log + '.new', log)
    last.wait()
while True:
    os.makedirs(directory, exist_ok=True)
    open(directory + '/half', 'w').close()
    time.sleep(0.001)
"""


def _kill(tool: int, which: str) -> None:
    """Kill processes of a build: all that lead to its tool are the builder and its shell."""
    shell = _parent(tool)
    for pid in {'shell': [shell], 'tool': [tool], 'all but the last': [_parent(shell), shell, tool]}[which]:
        os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    process = processes.read_process(pid)
    assert process is not None
    return process.parent


def _kill_builder(pilot: Pilot) -> set[int]:
    """Kill the builder, and return its processes."""
    found = set(builders(pilot))
    children = {pid for pid in found if (process := processes.read_process(pid)) and process.parent == os.getpid()}
    assert len(children) == 1
    os.kill(children.pop(), signal.SIGKILL)
    return found

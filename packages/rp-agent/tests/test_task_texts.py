"""Executable, environment and arguments: one table of texts for all ways in which a task is started."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from backend_support import DragonHarness, FluxHarness
from executor_support import BASE_ENV, Harness
from launcher_support import launchers, program

from rp_agent.executor.shell import ShellExecutor
from rp_agent.task import AgentTask
from rp_api import states

TESTS = Path(__file__).parent


class Text(NamedTuple):
    """A text, and its meaning in `environment` and in `arguments` without `literal_arguments`."""

    text: str
    value: str | None = None
    argument: str | None = None

    def meanings(self) -> tuple[str, str]:
        value = self.text if self.value is None else self.value
        return value, value if self.argument is None else self.argument


TEXTS = [Text(''), Text(' two  words '), Text('"double" \'single\''), Text('p$5word', argument='pword'),
         Text('$(echo ran)', argument='ran'), Text('`echo ran`', argument='ran'), Text('$((1 + 1))', argument='2'),
         Text('two\nlines\n'), Text('back\\slash\\'), Text('\\\\'), Text('!bang! !!'), Text('* ? [a-z] {a,b}'),
         Text('~'), Text('~/x'), Text('#no'), Text('a;b&c|d<e>f(g)'), Text('100$'), Text('é\udcff'),
         Text('$OWN.${OWN}x', 'own.ownx'), Text('$UNSET.', '.'), Text(r'\$OWN', '$OWN'), Text(r'\`x', '`x'),
         Text(r'\$(x)', '$(x)'), Text('${OWN:-x}', argument='own'), Text('${UNSET:-$(echo x)}', argument='x')]

SHOWS = 'printf "%s\\0" "$@" >"$RP_TASK_SANDBOX/arguments"; exec /usr/bin/env -0'
NAMES = [f'VALUE_{number}' for number in range(len(TEXTS))]

Make = Callable[..., Any]


class Door(NamedTuple):
    """A way to start tasks: an executor, and attributes of the task."""

    make: Callable[[ExitStack, Path], Any]
    attributes: Mapping[str, Any] = MappingProxyType({})


def popen(stack: ExitStack, path: Path) -> Any:
    return _closing(stack, Harness(path))


def shell(stack: ExitStack, path: Path) -> Any:
    return _closing(stack, Harness(path, partial(ShellExecutor, grace=5.0)))


def launcher(stack: ExitStack, path: Path) -> Any:
    found = stack.enter_context(launchers(path))
    return _closing(stack, Harness(path, launchers=found))


def dragon(stack: ExitStack, path: Path) -> Any:
    return _closing(stack, DragonHarness(path))


def flux(stack: ExitStack, path: Path) -> Any:
    return _closing(stack, FluxHarness(path, stack.enter_context(tempfile.TemporaryDirectory())))


def _closing(stack: ExitStack, harness: Any) -> Any:
    stack.callback(harness.close)
    return harness


DOORS = {
    'POPEN': Door(popen), 'POPEN with script': Door(popen, {'pre_exec': ['true']}),
    'POPEN with launch script': Door(popen, {'pre_launch': ['true']}),
    'SHELL': Door(shell), 'SHELL with script': Door(shell, {'pre_exec': ['true']}),
    'launcher': Door(launcher, {'use_mpi': True}), 'launcher with script': Door(launcher, {
        'use_mpi': True, 'pre_exec': ['true']}),
    'container': Door(popen, {'container': {'tool': 'apptainer', 'image': '/'}}),
    'DRAGON': Door(dragon), 'FLUX': Door(flux)}


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Runs tasks through one door; returns them in order."""
    chosen = DOORS[request.param]
    with ExitStack() as stack:
        harness = chosen.make(stack, tmp_path)
        tool = program(tmp_path / 'bin' / 'apptainer', 'while ! test -d "$1"; do shift; done; shift; exec "$@"')
        harness.executor._environment.base['PATH'] = f'{tool.parent}:{BASE_ENV["PATH"]}'
        harness.executor._environment.search_path = f'{tool.parent}:{BASE_ENV["PATH"]}'

        def run(*descriptions: dict[str, Any]) -> list[AgentTask]:
            tasks = [harness.task(f'task.{number}', **chosen.attributes, **description)
                     for number, description in enumerate(descriptions)]
            harness.run(*tasks)
            return tasks

        yield run


def seen(task: AgentTask) -> tuple[list[str], dict[str, str]]:
    """The arguments and the variables of a program that shows them."""
    assert task.target_state == states.DONE, task.exception_detail
    words = Path(task.sandbox, 'arguments').read_bytes().split(b'\0')[:-1]
    block = Path(task.sandbox, f'{task.uid}.out').read_bytes().split(b'\0')
    variables = dict(entry.split(b'=', 1) for entry in block if b'=' in entry)
    return list(map(os.fsdecode, words)), {os.fsdecode(name): os.fsdecode(variables[name]) for name in variables}


@pytest.mark.parametrize('where', ['a program', 'of $HOME (1) `x`\'s; *'])
def test_texts(door: Make, tmp_path: Path, where: str) -> None:
    """An existing path is executed as such, whatever its name."""
    path = program(tmp_path / where / 'prog', SHOWS)
    arguments = [text.text for text in TEXTS]
    described = {'executable': str(path), 'arguments': arguments,
                 'environment': {'OWN': 'own', **dict(zip(NAMES, arguments, strict=True))}}
    literal, expanded = door({**described, 'literal_arguments': True}, described)
    words, variables = seen(literal)
    assert words == arguments
    assert [variables[name] for name in NAMES] == arguments
    words, variables = seen(expanded)
    assert [variables[name] for name in NAMES] == [text.meanings()[0] for text in TEXTS]
    assert words == [text.meanings()[1] for text in TEXTS]


COMMANDS = [('echo a', ['b  c', '$OWN'], 'a b  c own\n'), ('test -d / && echo yes', [], 'yes\n'),
            ('echo a | cat; echo', ['"'], 'a\n"\n'), ('"$DIRECTORY"/prog', ['x'], 'prog x\n'),
            ('$DIRECTORY/../bin/prog', [], 'prog\n'), ('~/prog', [], 'prog\n'), ('echo a # comment', ['b'], 'a\n'),
            ('cat <<END\n$OWN\nEND', [], 'own\n')]


def test_command_lines(door: Make, tmp_path: Path) -> None:
    """Other executables are lines of a shell, to which arguments are added; with `literal_arguments` they are paths."""
    program(tmp_path / 'bin' / 'prog', 'echo ${0##*/} "$@"')
    described = [{'executable': command, 'arguments': arguments, 'environment': {
        'HOME': f'{tmp_path}/bin', 'DIRECTORY': f'{tmp_path}/bin', 'OWN': 'own'}} for command, arguments, _ in COMMANDS]
    tasks = door(*described, *({**each, 'literal_arguments': True} for each in described))
    for task, (command, _, output) in zip(tasks, COMMANDS, strict=False):
        assert task.target_state == states.DONE, (command, task.exception_detail)
        assert Path(task.sandbox, f'{task.uid}.out').read_text() == output
    assert {task.target_state for task in tasks[len(COMMANDS):]} == {states.FAILED}


def test_a_failed_command_line_and_an_argument_that_was_a_command(door: Make) -> None:
    command, argument, other = door(
        {'executable': 'true && exit 7'},
        {'executable': 'sh', 'arguments': ['-c', '$(echo no-such-program)']},
        {'executable': 'sh', 'arguments': ['-c', '$(echo no-such-program)'], 'literal_arguments': True})
    assert command.exit_code == 7
    assert (argument.exit_code, other.exit_code) == (127, 127)
    assert 'literal_arguments=True' in str(argument.exception_detail)
    assert 'literal_arguments' not in str(other.exception_detail)

"""What only the default executor does: it knows why a program was not executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from executor_support import Harness, harnesses

from rp_agent.executor.popen.component import Executor
from rp_agent.task import AgentTask
from rp_api import states


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with harnesses(tmp_path, Executor) as make:
        yield make()


def in_turn(harness: Harness, first: AgentTask, second: AgentTask, between: Callable[[], object]) -> None:
    """Run one task, then do something, then run the other."""
    def go_on(tasks: list[AgentTask]) -> None:
        if tasks == [first]:
            between()
            harness.executor.put([second])

    harness.on_output = go_on
    harness.wanted = 2
    harness.executor.put([first])
    harness.wait()


def test_a_program_that_has_moved(harness: Harness, tmp_path: Path) -> None:
    """It was found in one directory of PATH, and is in another one when the next task wants it."""
    places = [tmp_path / 'one', tmp_path / 'two']
    for place in places:
        place.mkdir()
    program = places[0] / 'prog'
    program.write_text('#!/bin/sh\necho $0\n')
    program.chmod(0o755)
    search = {'PATH': f'{places[0]}:{places[1]}:/usr/bin:/bin'}
    first, second = (harness.task(f'task.{number}', executable='prog', environment=search) for number in range(2))
    in_turn(harness, first, second, lambda: program.rename(places[1] / 'prog'))
    assert [Path(task.sandbox, f'{task.uid}.out').read_text() for task in (first, second)] == [
        f'{place}/prog\n' for place in places]


def test_a_program_that_is_gone(harness: Harness, tmp_path: Path) -> None:
    program = tmp_path / 'prog'
    program.write_text('#!/bin/sh\n')
    program.chmod(0o755)
    first, second = (harness.task(f'task.{number}', executable=str(program)) for number in range(2))
    in_turn(harness, first, second, program.unlink)
    assert first.target_state == states.DONE
    assert (second.target_state, second.exception_detail) == (states.FAILED, f'executable not found: {program}')


def test_missing_interpreter(harness: Harness) -> None:
    script = harness.path / 'script'
    script.write_text('#!/no/such/interpreter\n')
    script.chmod(0o755)
    task = harness.run_one(executable=str(script))
    assert task.exception_detail == (f'cannot execute: No such file or directory ({script}): the interpreter that its '
                                     f'first line names, or its loader, does not exist')


def test_arguments_that_are_too_long(harness: Harness) -> None:
    task = harness.run_one(arguments=['x' * 3_000_000])
    assert (task.target_state, task.exit_code) == (states.FAILED, None)
    assert str(task.exception).startswith('OSError')
    assert str(task.exception_detail).startswith('cannot execute: Argument list too long (/bin/true): arguments and')

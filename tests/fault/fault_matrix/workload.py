"""The tasks of a run, and how each of them has to end. Both follow from the number of the task alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import radical.pilot as rp

REAL = 'POPEN'
"""The spawner whose tasks are processes; all others only keep accounts of them."""


class Ending(NamedTuple):
    """How a task has to end."""

    state: str
    exit_code: int
    stdout: str


def uid(number: int) -> str:
    return f'task.{number:06d}'


def restartable(number: int, config: Mapping[str, Any]) -> bool:
    """Whether a task may run on another pilot; a few may not, also where the others may."""
    return bool(config['restartable']) and number % 10 != 9


def ending(number: int, spawner: str) -> Ending:
    """Every tenth task prints something, every tenth one fails."""
    if number % 10 == 2:
        return Ending(rp.FAILED, 3 + number % 5, '')
    return Ending(rp.DONE, 0, f'{uid(number)} was here\n' if number % 10 == 1 and spawner == REAL else '')


def description(number: int, config: Mapping[str, Any]) -> rp.TaskDescription:
    """A task that, if it really runs, leaves one more line in its file below `marks`."""
    wanted = ending(number, config['spawner'])
    values: dict[str, Any] = {'uid': uid(number)}
    if config['spawner'] == REAL:
        script = f'echo >> {mark(config["marks"], uid(number))}; echo {wanted.stdout.strip()}; exit {wanted.exit_code}'
        if not wanted.stdout:
            script = script.replace(' echo ;', '')
        values |= {'executable': '/bin/sh', 'arguments': ['-c', script]}
    else:
        values |= {'executable': 'simulated', 'metadata': {'exit_code': wanted.exit_code}}
    if config['restartable']:
        values['restartable'] = restartable(number, config)
    return rp.TaskDescription(values)


def mark(directory: str, task: str) -> str:
    """The file that tells how often a task has run."""
    return f'{directory}/{task}'


def runs(directory: str, task: str) -> int:
    """How often a task has run."""
    try:
        return Path(mark(directory, task)).read_text().count('\n')
    except FileNotFoundError:
        return 0

"""The tasks of a run, and how each of them has to end. Both follow from the number of the task alone.

Tasks are of one kind: `plain`; `staged`, with a file that the client brings and one that it brings back; or `raptor`,
Python expressions that a worker evaluates.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import radical.pilot as rp

PLAIN, STAGED, RAPTOR = 'plain', 'staged', 'raptor'

MASTER, WORKER = 'master', 'worker'
"""The tasks that are there besides if tasks are calls of RAPTOR."""

FILE_SIZE = 2000
"""Bytes of a file that is staged."""

REAL = 'POPEN'
"""The spawner whose tasks are processes; all others only keep accounts of them."""


class Ending(NamedTuple):
    """How a task has to end."""

    state: str
    exit_code: int | None
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
    if config['kind'] == RAPTOR:
        values |= _call(mark(config['marks'], uid(number)), config['seconds'], wanted)
    elif config['spawner'] == REAL:
        steps = [f'echo >> {mark(config["marks"], uid(number))}']
        steps += [f'sleep {config["seconds"]}'] if config['seconds'] else []
        steps += [f'echo {wanted.stdout.strip()}'] if wanted.stdout else []
        script = '; '.join([*steps, f'exit {wanted.exit_code}'])
        values |= {'executable': '/bin/sh', 'arguments': ['-c', script]}
        if config['kind'] == STAGED:
            values |= _staging(script, config['input'], output(config['outputs'], uid(number)))
    else:
        values |= {'executable': 'simulated', 'metadata': {'exit_code': wanted.exit_code}}
    if config['restartable']:
        values['restartable'] = restartable(number, config)
    return rp.TaskDescription(values)


def _call(path: str, seconds: float, wanted: Ending) -> dict[str, Any]:
    """The attributes of a call that takes so long and ends like this."""
    steps = [f'open({path!r}, "a").write("\\n")', f'__import__("time").sleep({seconds})']
    if wanted.stdout:
        steps.append(f'print({wanted.stdout.strip()!r})')
    if wanted.exit_code:
        steps.append(f'exit({wanted.exit_code})')
    return {'mode': rp.TASK_EVAL, 'raptor_id': MASTER, 'code': f'[{", ".join(steps)}]'}


def _staging(script: str, source: str, target: str) -> dict[str, Any]:
    """The attributes of a task that copies what the client brings to what it brings back."""
    return {'arguments': ['-c', f'cat in.dat > out.dat; {script}'], 'stage_on_error': True,
            'input_staging': [{'source': f'file://{source}', 'target': 'task:///in.dat', 'action': rp.TRANSFER}],
            'output_staging': [{'source': 'task:///out.dat', 'target': f'file://{target}', 'action': rp.TRANSFER}]}


def output(directory: str, task: str) -> str:
    """The file that comes back of a task."""
    return f'{directory}/{task}'


def mark(directory: str, task: str) -> str:
    """The file that tells how often a task has run."""
    return f'{directory}/{task}'


def runs(directory: str, task: str) -> int:
    """How often a task has run."""
    try:
        return Path(mark(directory, task)).read_text().count('\n')
    except FileNotFoundError:
        return 0

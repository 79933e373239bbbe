"""The tasks of a run, and how each of them has to end. Both follow from the number of the task alone.

Tasks are of one kind: `plain`; `staged`, with a file that the client brings and one that it brings back; `raptor`,
Python expressions that a worker evaluates; `sweep`, rows of one sweep; `dependent`, chains of tasks, each after the one
before it; `service`, tasks that start when a service is ready; or `executor`, programs of an `rp.Executor` with a uid.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import radical.pilot as rp

PLAIN, STAGED, RAPTOR, SWEEP, DEPENDENT, SERVICE = 'plain', 'staged', 'raptor', 'sweep', 'dependent', 'service'
EXECUTOR = 'executor'

MASTER, WORKER = 'master', 'worker'
"""The tasks that are there besides if tasks are calls of RAPTOR."""

DATABASE = 'database'
"""The service that tasks of that kind need, and its uid."""

CHAIN = 10
"""Length of a chain of dependent tasks."""

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


def name(uid: str) -> str:
    """The uid of a task, or of a row of a sweep, as that of a task; empty for the tasks that are there besides."""
    number = uid.rpartition('.')[2]
    return f'task.{number}' if number.isdigit() else ''


def predecessor(number: int, config: Mapping[str, Any]) -> str | None:
    """The task that has to end before this one starts."""
    return uid(number - 1) if config['kind'] == DEPENDENT and number % CHAIN else None


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
        before = predecessor(number, config)
        steps = [f'echo >> {mark(config["marks"], uid(number))}']
        steps += [f'test -e {end(config["marks"], before)} || : > {early(config["marks"], uid(number))}'] * bool(before)
        steps += ['test -n "$RP_INFO_DATABASE" || exit 99'] * (config['kind'] == SERVICE)
        steps += [f'sleep {config["seconds"]}'] if config['seconds'] else []
        steps += [f'echo {wanted.stdout.strip()}'] if wanted.stdout else []
        steps += [f': > {end(config["marks"], uid(number))}'] * (config['kind'] == DEPENDENT)
        script = '; '.join([*steps, f'exit {wanted.exit_code}'])
        values |= {'executable': '/bin/sh', 'arguments': ['-c', script]}
        if before:
            values['after'] = {before: 'done' if ending(number - 1, REAL).state == rp.DONE else 'failed'}
        if config['kind'] == SERVICE:
            values['services'] = [DATABASE]
        if config['kind'] == STAGED:
            values |= _staging(script, config['input'], output(config['outputs'], uid(number)))
    else:
        values |= {'executable': 'simulated', 'metadata': {'exit_code': wanted.exit_code}}
    if config['restartable']:
        values['restartable'] = restartable(number, config)
    return rp.TaskDescription(values)


def sweep(config: Mapping[str, Any]) -> rp.TaskDescription:
    """The description of a sweep over the numbers of all tasks, whose tasks do what the plain ones do."""
    script = (f'n=$1; name=$(printf task.%06d "$n"); echo >> {config["marks"]}/"$name"; sleep {config["seconds"]}; '
              'test $((n % 10)) != 1 || echo "$name was here"; test $((n % 10)) != 2 || exit $((3 + n % 5))')
    return rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', script, 'sh', '{}'],
                               'literal_arguments': True, 'restartable': config['restartable']})


def service() -> rp.TaskDescription:
    """The service, which is started again however often it is killed."""
    return rp.TaskDescription({
        'uid': DATABASE, 'mode': rp.TASK_SERVICE,
        'executable': 'sh', 'arguments': ['-c', 'echo ready; exec sleep 1000'],
        'service': {'name': DATABASE, 'info': 'here', 'probe': {'pattern': 'stdout:ready'},
                    'restart': {'attempts': 1000}}})


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


def end(directory: str, task: str | None) -> str:
    """The file that tells that a task that others are after has come to its end."""
    return f'{directory}/{task}.end'


def early(directory: str, task: str) -> str:
    """The file that tells that a task has started before the end of the one that it is after."""
    return f'{directory}/{task}.early'


def runs(directory: str, task: str) -> int:
    """How often a task has run."""
    try:
        return Path(mark(directory, task)).read_text().count('\n')
    except FileNotFoundError:
        return 0

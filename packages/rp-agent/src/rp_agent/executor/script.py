"""The texts of a task's shell scripts, for any POSIX shell.

`<uid>.exec.sh` runs one rank; `<uid>.launch.sh`, which only tasks with pre_launch or post_launch have, runs all of
them. The order of their steps and events is the one of the RADICAL-Pilot event model.

Descriptors that a script may be given: START tells that the task runs, by a byte that is written to it. SYNC is the
write end of a pipe that all ranks share: a rank that is ready closes it and waits until the pipe ends, which it does
when all others have closed it too, be it because they ended. Commands of the user never see these descriptors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rp_agent.executor.expand import literal, shell_quote
from rp_agent.executor.lookup import LaunchRefused
from rp_agent.task import AgentTask

START = 3
SYNC = 4

_IDENTIFIER = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\Z')
_HIDDEN = f'{START}>&- {SYNC}>&-'

_FAILED = '''\
rp_failed() {
    printf '%s failed with exit code %s: %s\\n' "$1" "$2" "$3" >&2
    exit 1
}'''


def exec_script(task: AgentTask, told: Mapping[str, str], *, events: bool, sync: bool = False,
                signals_start: bool = False) -> str:
    """The script of one rank, which is told its number by RP_RANK; `told` are variables that it sets.

    Its exit code is the one of the executable, or 1 if a command before or after it fails.
    """
    description = task.description
    lines = [*_head(told), 'export RP_RANK="${RP_RANK:-0}"', 'export RP_EXEC_PID=$$', *_functions(events),
             'cd "$RP_TASK_SANDBOX" || exit 1']
    if signals_start:
        lines += [f'echo 1 >&{START}', f'exec {START}>&-']
    lines.append(_event('exec_start'))
    if description['named_env']:
        lines.append(f'. "$RP_PILOT_SANDBOX"/env/{literal("rp_named_env." + description["named_env"] + ".sh")}')
    lines += _assignments(description['environment'])
    lines += [_event('exec_pre'), *_commands('pre_exec', description['pre_exec'])]
    if sync:
        lines += [f'exec 5</proc/self/fd/{SYNC} {SYNC}>&-', 'read -r rp_all <&5', 'exec 5<&-']
    program = ' '.join(shell_quote(text) for text in (description['executable'], *description['arguments']))
    lines += [
        _event('rank_start'),
        f'{program} {_HIDDEN} &',
        'export RP_RANK_PID=$!',
        'wait "$RP_RANK_PID"',
        'export RP_RET=$?',
        _event('rank_stop', '"RP_EXEC_PID=$RP_EXEC_PID:RP_RANK_PID=$RP_RANK_PID"'),
        _event('exec_post'),
        *_commands('post_exec', description['post_exec']),
        _event('exec_stop'),
        'exit "$RP_RET"',
    ]
    return _text(lines)


def launch_script(task: AgentTask, told: Mapping[str, str], ranks: Sequence[Mapping[str, str]], execute: str,
                  stdio: tuple[str, str], *, events: bool) -> str:
    """The script that runs the exec script `execute` once per rank, each with the variables in `ranks`.

    The output of the ranks goes to the two files `stdio`. Its exit code is that of the first rank that failed.
    """
    description = task.description
    stdout, stderr = literal(stdio[0]), literal(stdio[1])
    lines = [*_head(told), 'export RP_LAUNCH_PID=$$', *_functions(events), _event('launch_start'),
             'cd "$RP_TASK_SANDBOX" || exit 1', _event('launch_pre'),
             *_commands('pre_launch', description['pre_launch']), _event('launch_submit'),
             f': >{stdout}', f': >{stderr}', 'rp_ranks=']
    for variables in ranks:
        settings = ' '.join(f'{name}={literal(value)}' for name, value in variables.items())
        lines += [f'{settings} /bin/sh {literal("./" + execute)} </dev/null >>{stdout} 2>>{stderr} &',
                  'rp_ranks="$rp_ranks $!"']
    lines += [
        f'exec {_HIDDEN}',
        'RP_RET=0',
        'for rp_rank in $rp_ranks; do',
        '    wait "$rp_rank"',
        '    rp_code=$?',
        '    test "$RP_RET" -ne 0 || RP_RET=$rp_code',
        'done',
        'export RP_RET',
        _event('launch_collect'),
        _event('launch_post'),
        *_commands('post_launch', description['post_launch']),
        _event('launch_stop'),
        'exit "$RP_RET"',
    ]
    return _text(lines)


def _head(told: Mapping[str, str]) -> list[str]:
    return ['#!/bin/sh', *(f'export {name}={literal(value)}' for name, value in told.items())]


def _functions(events: bool) -> list[str]:
    """Shell functions that the lines below use."""
    record = 'rp_event() { "$RP_PROF" "$@"; }' if events else 'rp_event() { :; }'
    return [record, _FAILED]


def _event(name: str, message: str = '') -> str:
    return f'rp_event {name} {message}'.rstrip()


def _assignments(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if not _IDENTIFIER.match(name):
            raise LaunchRefused(f'environment variable {name!r} cannot be set by a shell, which this task needs: '
                                f'names are letters, digits and underscores')
        yield f'export {name}={shell_quote(value)}'


def _commands(stage: str, entries: Sequence[str | Mapping[Any, str | list[str]]]) -> Iterator[str]:
    """Lines that run the commands in order, those in dicts only on the rank that is their key."""
    for entry in entries:
        if isinstance(entry, str):
            yield from _command(stage, entry)
        else:
            yield 'case "$RP_RANK" in'
            for rank, commands in entry.items():
                yield f'({literal(str(rank))})'
                for command in [commands] if isinstance(commands, str) else commands:
                    yield from _command(stage, command)
                yield ';;'
            yield 'esac'


def _command(stage: str, command: str) -> list[str]:
    """Lines that run one command in the script's own shell, so that it can set variables, and end it on failure.

    The command stands on lines of its own, because it may end with a comment; the colon makes a comment a command.
    """
    return ['{ :', command, f'}} {_HIDDEN} || rp_failed {stage} "$?" {literal(command)}']


def _text(lines: list[str]) -> str:
    for line in lines:
        if '\0' in line:
            raise LaunchRefused(f'a NUL character cannot stand in a shell script: {line!r}')
    return '\n'.join(lines) + '\n'

"""The files of an attempt: those that a task is expected to leave, and those that make place for the next attempt.

All functions but `place` do blocking work, in a thread.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

from rp_agent.task import AgentTask
from rp_api import states
from rp_api.failures.retry_rules import COMMAND
from rp_api.staging import trees
from rp_api.system.readable import end_of

CHECK_TIMEOUT = 60.0
"""Seconds that a command of `expect` may take."""

_SEARCHED = 1 << 20
"""Bytes at the end of the standard error that are searched for patterns."""

_SHOWN = 200
"""Characters of the output of a command that a message quotes."""

_CHECK = 'out=$(eval "$1" 2>&1); printf "%s\\n%s" "$?" "$out"'
"""A shell that tells the exit code of a command: the agent's executors may collect its process first."""


def examine(task: AgentTask) -> tuple[str, str]:
    """Return what a successful task lacks of the expected output, or the standard error of one that has failed."""
    if task.target_state == states.DONE:
        return next((text for each in task.description['expect'] if (text := _lacks(task, each))), ''), ''
    return '', end_of(_path(task, task.description['stderr'] or f'{task.uid}.err'), _SEARCHED).decode(errors='replace')


def place(task: AgentTask, number: int) -> str:
    """Return the directory for the files of a failed attempt; empty if they are removed with the sandbox."""
    if task.description['cleanup']:
        return ''
    own = task.description['sandbox']   # which others may use, too
    return f'{task.sandbox}/{task.uid}.attempt{number}' if own else f'{task.sandbox}.attempt{number}'


def put_aside(task: AgentTask, where: str) -> None:
    """Move the files of a failed attempt to another directory; remove them if that is empty."""
    written = list(_written(task))
    if where and written:
        os.makedirs(where, exist_ok=True)
    for name in written:
        path = os.path.join(task.sandbox, name)
        with suppress(OSError):   # the task has removed it
            if where:
                os.rename(path, os.path.join(where, os.path.basename(name)))
            else:
                trees.remove(path)


def _written(task: AgentTask) -> Iterator[str]:
    """Yield the names of what the attempt has left in the sandbox, but for the profile, which all attempts share.

    In a sandbox that the description names, files of other tasks may be: only those count that are certainly its own.
    """
    description, uid = task.description, task.uid
    known = task.extra.get('before', ())
    own = description['sandbox']
    expected = {os.path.normpath(each) for each in description['expect'] if not each.startswith(COMMAND)}
    standard = {description['stdout'], description['stderr'], *expected}
    for name in os.listdir(task.sandbox):
        mine = not own or name in standard or (name.startswith(f'{uid}.') and not name.startswith(f'{uid}.attempt'))
        if mine and name not in known and name != f'{uid}.prof':
            yield name
    yield from (name for name in expected if '/' in name and not name.startswith(('/', '..')) and own)


def _lacks(task: AgentTask, expected: str) -> str:
    """Return what is wrong with an expected file or command; empty if nothing is."""
    if expected.startswith(COMMAND):
        return _check(task, expected.removeprefix(COMMAND).strip())
    path = _path(task, expected)
    try:
        found = os.stat(path)
    except OSError as error:
        return f'the expected file {path} cannot be found: {error.strerror}'
    return '' if found.st_size else f'the expected file {path} is empty'


def _check(task: AgentTask, command: str) -> str:
    environ = os.environ | {'RP_TASK_ID': task.uid, 'RP_TASK_SANDBOX': task.sandbox}
    try:
        process = subprocess.Popen(['/bin/sh', '-c', _CHECK, 'sh', command], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, cwd=task.sandbox, env=environ, start_new_session=True)
    except OSError as error:
        return f'the check `{command}` cannot be started: {error.strerror}'
    try:
        told = process.communicate(timeout=CHECK_TIMEOUT)[0].decode(errors='replace')
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f'the check `{command}` has taken longer than {CHECK_TIMEOUT:g} s'
    code, _, output = told.partition('\n')
    if code == '0':
        return ''
    said = f': {output.strip()[-_SHOWN:]}' if output.strip() else ''
    return f'the check `{command}` has failed with exit code {code}{said}'


def _path(task: AgentTask, name: str) -> str:
    return os.path.join(task.sandbox, name)

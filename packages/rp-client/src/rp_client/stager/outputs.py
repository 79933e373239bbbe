"""The files of a task's standard output and error, read from where the task has run."""

from __future__ import annotations

import errno
from typing import BinaryIO

from rp_api.errors import PilotError
from rp_api.staging.directive import expand
from rp_api.staging.location import resolve
from rp_api.system.readable import open_regular
from rp_client.stager.base import OUTWARDS, pilot_files
from rp_client.task import Task


def open_output(task: Task, path: str) -> BinaryIO:
    """Open a file of a bound task. One of another host is copied to a temporary file, which goes with the last use.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: It cannot be read, or is no regular file.
        PilotError: The host cannot be reached.
    """
    sandbox = task.sandbox or ''
    wanted = expand([{'source': path, 'target': 'output'}])
    try:
        with pilot_files(task._pilot) as files:
            files.fetch([(sandbox, wanted)], OUTWARDS)
            there = files.of(sandbox)
            (directive,) = there.directives(wanted, OUTWARDS)
            return open_regular(resolve(directive['source'], OUTWARDS[0], there.sandboxes))
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, _why_not(task), path) from None
    except PilotError as error:
        raise PilotError(f'the output of {task.uid} cannot be read: {error}') from error


def _why_not(task: Task) -> str:
    if task._sparse().get('cleanup'):
        return f'the sandbox of {task.uid} was removed, as its description asks for (cleanup)'
    return f'{task.uid} is {task.state} and has not written this file, or it was removed'

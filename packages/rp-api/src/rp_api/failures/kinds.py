"""Kinds of failures of tasks, and the record of a failure, which travels with the last update of the task.

The component that ends a task sets the record, as `error` in the info of the update. It is plain data; all its entries
but `kind` are optional:

- `kind`: one of `KINDS`;
- `sentence`: the explanation, if `exception` is not readable;
- `signal`: the number of the signal that ended the program, also if a shell reports it as an exit code;
- `path` and `lines`: a file that explains the failure besides the output of the task, and its last lines.

An agent of an earlier version sends no record: the kind then follows from the state and the exit code.
"""

from __future__ import annotations

from collections.abc import Mapping

EXIT = 'exit'
SIGNAL = 'signal'
MEMORY = 'memory'
OUTPUT = 'output'
EXCEPTION = 'exception'
TIMEOUT = 'timeout'
CANCELED = 'canceled'
NODE = 'node'
PILOT = 'pilot'
LOST = 'lost'
LAUNCH = 'launch'
STAGING = 'staging'
DEPENDENCY = 'dependency'
DESCRIPTION = 'description'
INTERNAL = 'internal'

KINDS: Mapping[str, str] = {
    EXIT: 'the program has ended with another exit code than 0',
    SIGNAL: 'a signal has ended the program',
    MEMORY: 'the program has needed more memory than it may have',
    OUTPUT: 'the program has ended with exit code 0, but without the output that `expect` requires',
    EXCEPTION: 'the function has raised an exception',
    TIMEOUT: 'the task has exceeded its `timeout` or `startup_timeout`',
    CANCELED: 'the task was cancelled',
    NODE: 'a node of the task was lost',
    PILOT: 'the pilot of the task has ended',
    LOST: 'a process that had the task was lost: a component of the agent, a RAPTOR master or a worker',
    LAUNCH: 'the program could not be started',
    STAGING: 'files could not be staged',
    DEPENDENCY: 'a task, service or environment that the task needs has failed',
    DESCRIPTION: 'the description cannot be satisfied',
    INTERNAL: 'an unexpected error, see the log',
}
"""The kinds of failures, with their meanings."""

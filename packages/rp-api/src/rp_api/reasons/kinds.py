"""Kinds of reasons, with their meanings and remedies.

The word before the dot says how the task or pilot is: it is `waiting`, has `failed`, was `canceled`, is `slow`, or has
`ended` as it was to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

WAITING = 'waiting'
FAILED = 'failed'

PILOT = 'waiting.pilot'
MANAGER = 'waiting.manager'
PLACE = 'waiting.place'
DEPENDENCY = 'waiting.dependency'
ENVIRONMENT = 'waiting.environment'
SERVICE = 'waiting.service'
MASTER = 'waiting.master'
WORKERS = 'waiting.workers'
INPUT = 'waiting.input'
OUTPUT = 'waiting.output'
ATTEMPT = 'waiting.attempt'
COORDINATOR = 'waiting.coordinator'
STEP = 'waiting.step'
QUEUE = 'waiting.queue'
UNSCHEDULABLE = 'waiting.unschedulable'
AGENT = 'waiting.agent'
CANCELED = 'canceled'
SLOW = 'slow'
ENDED = 'ended'


class Kind(NamedTuple):
    """The meaning of a kind, and what to do about it."""

    meaning: str
    remedy: str


KINDS: Mapping[str, Kind] = {
    PILOT: Kind('no pilot that could run the task is active', 'wait for the pilot, see its own reason, or add another '
                'one with tmgr.add_pilots'),
    MANAGER: Kind('the task manager has no pilot for the task', 'add a pilot with tmgr.add_pilots'),
    PLACE: Kind('cores, GPUs or memory that the task needs are in use', 'wait, cancel what holds them, request less '
                'for the task, or add a larger pilot'),
    DEPENDENCY: Kind('other tasks have to end first', 'look at the reason of the first of these tasks'),
    ENVIRONMENT: Kind('its named_env is not ready', 'wait while it is built; if nothing builds it, call '
                      'pilot.prepare_env or correct named_env'),
    SERVICE: Kind('a service that it uses is not ready', 'look at the reason of the service; if nothing starts it, '
                  'submit it, or correct `services`'),
    MASTER: Kind('its RAPTOR master does not take calls yet', 'look at the reason of the master; if there is none, '
                 'submit it, or correct raptor_id'),
    WORKERS: Kind('the RAPTOR master has no workers for its calls', 'submit workers that can run these calls'),
    INPUT: Kind('its input files are being transferred', 'wait; for files that many tasks share, use '
                'pilot.stage_in once'),
    OUTPUT: Kind('its output files are being transferred', 'wait'),
    ATTEMPT: Kind('it starts again after a pause', 'wait; the history of the task has the failed attempts'),
    COORDINATOR: Kind('the coordinator of the session does not answer', 'see whether its host and process are alive; '
                      'the session sends everything when it is back'),
    STEP: Kind('it is on its way to the next component', 'wait a moment'),
    QUEUE: Kind('the job of the pilot waits in the queue of the batch system', 'wait, or request fewer nodes, a '
                'shorter runtime or another queue'),
    UNSCHEDULABLE: Kind('the batch system will never start the job as it is', 'cancel the pilot and submit one that '
                        'the queue, account and machine allow'),
    AGENT: Kind('the agent of the pilot is being started', 'wait; if it takes minutes, see bootstrap_0.err in the '
                "pilot's sandbox"),
    SLOW: Kind('the task runs much longer than others of its kind', 'look at its output and its node; use `timeout` '
               'with `retries` to have it run elsewhere'),
    CANCELED: Kind('the task or pilot was cancelled', 'submit it again if that was not intended'),
    ENDED: Kind('the pilot has ended as it was to', 'submit another pilot for further tasks, with a longer runtime '
                'if it was too short'),
    'failed.exit': Kind('the program has ended with another exit code than 0', 'read its standard error, and what the '
                        'program documents about this exit code'),
    'failed.usage': Kind('the program does not accept its arguments', 'correct `arguments`: they go to the program as '
                         'they are, one item each'),
    'failed.program': Kind('the program does not exist on the node', 'correct `executable`, or load what provides it '
                           'in `pre_exec` or `named_env`'),
    'failed.module': Kind('a Python module cannot be imported', 'install it in the environment that the task uses, and '
                          'name that environment in `named_env`'),
    'failed.library': Kind('a shared library is missing or too old', 'load the module of the library in `pre_exec`, or '
                           'set LD_LIBRARY_PATH in `environment`'),
    'failed.architecture': Kind('the program is not for the processor of the node', 'build it for the nodes of the '
                                'pilot, or give a script its first line `#!`'),
    'failed.permission': Kind('the program may not use a file', 'change the mode of the file (chmod), or use another '
                              'directory'),
    'failed.file': Kind('the program does not find a file', 'stage the file with `input_staging`, or give its absolute '
                        'path: the task runs in its sandbox'),
    'failed.disk': Kind('a disk is full, or a quota is used up', 'free space there, or use another file system for '
                        'the sandboxes'),
    'failed.memory': Kind('it has needed more memory than there is', 'request more with `mem_per_rank`, run fewer '
                          "tasks per node, or use retry_with={'mem_per_rank': '*2'}"),
    'failed.gpu_memory': Kind('it has needed more memory than the GPU has', 'use smaller batches, or run fewer tasks '
                              'per GPU'),
    'failed.gpu': Kind('the program finds no usable GPU', 'request GPUs with `gpus_per_rank`, and check that the '
                       'driver on the nodes suits the program'),
    'failed.mpi': Kind('the MPI library and the launcher do not suit each other', 'use the MPI of the launcher: load '
                       'the module with which the program was built, or choose another launch method'),
    'failed.network': Kind('a host or port cannot be reached', 'check the address, and whether compute nodes may '
                           'reach it'),
    'failed.address': Kind('the port is in use already', 'let the program choose a free port'),
    'failed.files': Kind('it has too many open files or processes', 'close files, or raise the limit with `ulimit` in '
                         '`pre_exec`'),
    'failed.license': Kind('no license was available', 'run fewer such tasks at a time, or use `retries`'),
    'failed.syntax': Kind('a script cannot be parsed', 'correct the script; see the line that its error names'),
    'failed.exception': Kind('a Python exception has ended it', 'read the traceback; `lines` has its end'),
    'failed.crash': Kind('a defect of the program, such as a wrong pointer, has ended it', 'run it with a debugger or '
                         'sanitizer; check that its libraries suit it'),
    'failed.signal': Kind('a signal from outside has ended the program', 'find out who sent it: the batch system, an '
                          'administrator, or another program'),
    'failed.output': Kind('the output that `expect` requires is missing', 'see whether the program writes the file, '
                          'and correct `expect`'),
    'failed.timeout': Kind('it has exceeded its time limit', 'raise `timeout` or `startup_timeout`, or find out why '
                           'it takes so long'),
    'failed.node': Kind('its node was lost', "use `retries` or `restartable`; the pilot's log names the lost nodes"),
    'failed.pilot': Kind('its pilot has ended', 'use `restartable`, a longer runtime, or more pilots'),
    'failed.lost': Kind('a process that had it was lost', 'use `retries`; look at the memory of the node and the logs '
                        'of the agent'),
    'failed.launch': Kind('the program could not be started', "see the launcher's message, and the launch method of "
                          'the platform'),
    'failed.staging': Kind('files could not be staged', 'correct the source or target that the sentence names'),
    'failed.dependency': Kind('a task, service or environment that it needs has failed', 'look at the reason of what '
                              'it needs, and submit both again'),
    'failed.description': Kind('the pilot can never provide what it requests', 'request less, or add a larger pilot'),
    'failed.internal': Kind('an unexpected error of a component', 'report it, with the log that it names'),
    'failed.limit': Kind('the batch system has ended the job at its time limit', 'request a longer runtime, or shorter '
                         'tasks'),
    'failed.agent': Kind('the pilot has failed', 'see the files in its sandbox that exception_detail names'),
}
"""The kinds of reasons."""

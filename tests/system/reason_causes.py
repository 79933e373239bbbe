"""The causes for which tasks and pilots wait, fail or are slow, and the reasons that are wanted for them.

Each cause has the kind and the sentence of the reason; `...` in a sentence stands for any text. There are three tables:

- `PROGRAMS`: descriptions of tasks that really fail in that way in a pilot. Where the cause itself needs another
  machine (a GPU, an MPI, a batch system), the program prints what is printed there.
- `WAITS`: what tasks really wait for in a pilot; `test_reasons` makes them wait, by their names.
- `RECORDS`: records of tasks and pilots as a coordinator has them, for causes that need other machines or long times.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import radical.pilot as rp

PY = sys.executable
T0 = 1_800_000_000.0


class Cause(NamedTuple):
    """A cause, what injects it, and the reason that is wanted."""

    name: str
    kind: str
    sentence: str
    injected: Mapping[str, Any]


def _sh(script: str, **more: Any) -> dict[str, Any]:
    return {'executable': 'sh', 'arguments': ['-c', script], 'literal_arguments': True, **more}


def _py(script: str, **more: Any) -> dict[str, Any]:
    return {'executable': PY, 'arguments': ['-c', script], 'literal_arguments': True, **more}


def _says(line: str, code: int = 1) -> dict[str, Any]:
    """Return a program that prints a line as another one does, and fails."""
    return _py(f'import sys; print({line!r}, file=sys.stderr); sys.exit({code})')


PROGRAMS = [
    # the program and its exit code
    Cause('exit code', 'failed.exit', 'exit code: 3', _sh('exit 3')),
    Cause('general error', 'failed.exit', 'a general error (exit code: 1)', _sh('exit 1')),
    Cause('exit code of sysexits', 'failed.file', 'an input file is missing (EX_NOINPUT) (exit code: 66)',
          _sh('exit 66')),
    Cause('exit code of timeout', 'failed.timeout', 'the limit of the command `timeout` was exceeded (exit code: 124)',
          {'executable': 'timeout', 'arguments': ['0.1', 'sleep', '9']}),
    Cause('usage', 'failed.usage', "its arguments are wrong: unrecognized option '--nosuch' (exit code: 2)",
          {'executable': 'ls', 'arguments': ['--nosuch']}),
    Cause('missing program', 'failed.program', 'the program nosuch does not exist (executable not found: nosuch ...)',
          {'executable': 'nosuch'}),
    Cause('missing command', 'failed.program', 'the program nosuch does not exist (...exit code: 127...)',
          _sh('nosuch')),
    Cause('not executable', 'failed.permission', 'it may not execute ...plain (not executable: ...)',
          {'executable': '{dir}/plain'}),
    Cause('wrong architecture', 'failed.architecture', 'the program is not for this processor, or a script without a '
          'first line `#!` (...)', {'executable': '{dir}/alien'}),
    Cause('missing interpreter', 'failed.program', 'the interpreter of ...script does not exist (cannot execute: ...)',
          {'executable': '{dir}/script'}),
    Cause('Python module', 'failed.module', 'the Python module nosuch is not installed (exit code: 1)',
          _py('import nosuch.deep')),
    Cause('Python exception', 'failed.exception', 'a Python exception has ended it: ValueError: no data (exit code: 1)',
          _py('def f():\n    raise ValueError("no data")\nf()')),
    Cause('Python syntax', 'failed.syntax', 'a script is wrong: SyntaxError: invalid syntax (exit code: 1)',
          _py('x = = 1')),
    Cause('shell syntax', 'failed.syntax', 'a script is wrong: ...yntax error... (exit code: 2)', _sh('if')),
    Cause('file of Python', 'failed.file', 'the file nosuch.dat does not exist (exit code: 1)',
          _py('open("nosuch.dat")')),
    Cause('file of a command', 'failed.file', 'the file /nosuch/x does not exist (exit code: 1)',
          {'executable': 'cat', 'arguments': ['/nosuch/x']}),
    Cause('file of ls', 'failed.file', 'the file /nosuch/y does not exist (exit code: 2)',
          {'executable': 'ls', 'arguments': ['/nosuch/y']}),
    Cause('permission', 'failed.permission', 'it may not use /data/x (exit code: 1)',
          _says('cat: /data/x: Permission denied')),
    Cause('permission of Python', 'failed.permission', 'it may not use /data/x (exit code: 1)',
          _says("PermissionError: [Errno 13] Permission denied: '/data/x'")),
    # memory and disks
    Cause('disk full', 'failed.disk', 'the disk is full: No space left on device (exit code: 1)',
          _sh('cat /dev/zero > /dev/full')),
    Cause('quota', 'failed.disk', 'the disk is full: Disk quota exceeded (exit code: 1)',
          _says('write failed: Disk quota exceeded')),
    Cause('read-only', 'failed.disk', 'nothing can be written: Read-only file system (exit code: 1)',
          _says('touch: cannot touch x: Read-only file system')),
    Cause('memory of Python', 'failed.memory', 'there was not enough memory (exit code: 1)',
          _sh(f'ulimit -v 600000; {PY} -c "bytearray(1 << 31)"')),
    Cause('memory of C++', 'failed.memory', 'there was not enough memory (killed by signal 6 (SIGABRT))',
          _py('import os, sys; print("terminate called after throwing an instance of std::bad_alloc", file=sys.stderr);'
              'sys.stderr.flush(); os.abort()')),
    Cause('oom killer of Slurm', 'failed.memory', 'there was not enough memory (exit code: 1)',
          _says('slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM '
                'Killed.')),
    Cause('open files', 'failed.files', 'a limit of the system is reached: Too many open files (exit code: 1)',
          _py('x = [open("/dev/null") for _ in range(9999999)]', pre_exec=['ulimit -n 64'])),
    # signals
    Cause('SIGKILL', 'failed.signal', 'SIGKILL: killed by the system for its memory, by the batch system, or by a user '
          '(killed by signal 9 (SIGKILL))', _sh('kill -9 $$')),
    Cause('SIGTERM', 'failed.signal', 'SIGTERM: it was told to end, as batch systems do at a time limit (...)',
          _sh('kill -15 $$')),
    Cause('segmentation fault', 'failed.crash', 'SIGSEGV: a segmentation fault: an access to memory that is not its '
          'own (killed by signal 11 (SIGSEGV))', _sh('kill -11 $$')),
    Cause('abort', 'failed.crash', 'SIGABRT: the program has ended itself after an error, such as a failed assertion '
          '(...)', _py('import os; os.abort()')),
    Cause('division', 'failed.crash', 'SIGFPE: an arithmetic error, such as a division by zero (...)',
          _sh('kill -8 $$')),
    Cause('bus error', 'failed.crash', 'SIGBUS: an access to memory or to a mapped file that is not there, ... (...)',
          _sh('kill -7 $$')),
    Cause('illegal instruction', 'failed.architecture', 'SIGILL: an instruction that the processor does not have (...)',
          _sh('kill -4 $$')),
    Cause('137', 'failed.signal', 'SIGKILL: killed by the system for its memory, by the batch system, or by a user '
          '(...)', _py('import sys; sys.exit(137)')),
    Cause('139', 'failed.crash', 'SIGSEGV: a segmentation fault: an access to memory that is not its own (...)',
          _py('import sys; sys.exit(139)')),
    # libraries and MPI
    Cause('shared library', 'failed.library', 'the shared library libnosuch.so.1 is missing (exit code: 1)',
          _py('import ctypes; ctypes.CDLL("libnosuch.so.1")')),
    Cause('loader', 'failed.library', 'the shared library libfftw3.so.3 is missing (exit code: 127)',
          _says('./md: error while loading shared libraries: libfftw3.so.3: cannot open shared object file: No such '
                'file or directory', 127)),
    Cause('old library', 'failed.library', 'a library is too old: ./md requires GLIBC_2.38 (exit code: 1)',
          _says("./md: /lib64/libc.so.6: version `GLIBC_2.38' not found (required by ./md)")),
    Cause('symbol', 'failed.library', 'the libraries do not suit each other: H5Pset_fapl is missing (exit code: 1)',
          _says('./md: symbol lookup error: ./md: undefined symbol: H5Pset_fapl')),
    Cause('MPI library', 'failed.mpi', 'the MPI library libmpi.so.40, with which the program was built, is missing '
          '(exit code: 127)', _says('./md: error while loading shared libraries: libmpi.so.40: cannot open shared '
                                    'object file: No such file or directory', 127)),
    Cause('PMI', 'failed.mpi', 'MPI could not be initialised: ...PMI... (exit code: 1)',
          _says('OMPI was not built with SLURM PMI support and therefore cannot execute.')),
    # GPUs, network, licenses, limits of others
    Cause('GPU memory', 'failed.gpu_memory', 'the memory of the GPU is full (exit code: 1)',
          _says('torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB')),
    Cause('no GPU', 'failed.gpu', 'there is no usable GPU: No CUDA GPUs are available (exit code: 1)',
          _says('RuntimeError: No CUDA GPUs are available')),
    Cause('refused connection', 'failed.network', 'a host cannot be reached: Connection refused (exit code: 1)',
          _py('import socket; socket.create_connection(("127.0.0.1", 1))')),
    Cause('unknown host', 'failed.network', 'a host cannot be reached: Could not resolve host: nosuch.invalid (...)',
          _says('curl: (6) Could not resolve host: nosuch.invalid', 6)),
    Cause('port', 'failed.address', 'the port is taken: Address already in use (exit code: 1)',
          _py('import socket; a, b = socket.socket(), socket.socket(); a.bind(("127.0.0.1", 0)); a.listen(); '
              'b.bind(a.getsockname())')),
    Cause('license', 'failed.license', 'there was no license: ... (exit code: 1)',
          _says('FLEXnet Licensing error:-4,132: all licenses are in use')),
    Cause('time limit of the job', 'failed.limit', 'the batch system has ended it at the time limit of the job (...)',
          _says('slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***')),
    # what the description asks for
    Cause('timeout', 'failed.timeout', 'timeout: the task ran longer than 0.5 s',
          {'executable': 'sleep', 'arguments': ['60'], 'timeout': 0.5}),
    Cause('output', 'failed.output', '...result.dat...', {'executable': 'true', 'expect': ['result.dat']}),
    Cause('staging', 'failed.staging', '...nosuch.input...',
          {'executable': 'true', 'input_staging': ['{dir}/nosuch.input']}),
    Cause('too large', 'failed.description', 'it can never run on pilot.0000: none of the 1 node(s) of the pilot has '
          '99 cores for a rank; ...', {'executable': 'true', 'cores_per_rank': 99}),
    Cause('dependency', 'failed.dependency', 'dependency was not run: it is after general_error, which is FAILED: exit '
          'code 1', {'executable': 'true', 'after': ['general_error']}),
]
"""Tasks that fail, by the names that become their uids; `{dir}` is a directory with files that `test_reasons` makes."""

WAITS = [
    Cause('no pilot', 'waiting.manager', 'waits for a pilot: tmgr.0001 has none', {}),
    Cause('one core', 'waiting.place', 'needs 1 core, none is free', {}),
    Cause('behind', 'waiting.place', 'needs 1 core, none is free; one_core is ahead of it', {}),
    Cause('cores', 'waiting.place', 'needs 2 cores on one node, none is free', {}),
    Cause('GPUs', 'waiting.place', 'needs 2 GPUs on one node, at most 1 is free', {}),
    Cause('memory', 'waiting.place', 'needs ... MB of memory on one node, at most ... is free', {}),
    Cause('slots', 'waiting.place', 'needs its slots on localhost, which holder.0 holds', {}),
    Cause('after', 'waiting.dependency', 'waits for holder.0 (AGENT_EXECUTING) and 1 more tasks', {}),
    Cause('environment', 'waiting.environment', 'waits for environment nosuch (nothing builds it)', {}),
    Cause('service of nobody', 'waiting.service', 'waits for service nosuch (nothing starts it)', {}),
    Cause('master', 'waiting.master', 'waits for RAPTOR master nosuch (was not submitted)', {}),
    Cause('retry', 'waiting.attempt', 'waits for attempt 2 of 2, after ... s: exit code: 3', {}),
    Cause('other pilot', 'waiting.manager', 'waits for pilot.0009, which is no pilot of tmgr.0000', {}),
    Cause('services', 'waiting.place', 'needs 1 core, none is free; services hold both cores until they end', {}),
    Cause('starting service', 'waiting.service', 'waits for service db (is starting)', {}),
    Cause('late binding', 'waiting.place', 'needs 1 core, and pilot.0002 has as many tasks as can run there at once',
          {}),
]

NODES = [{'node_name': 'n3', 'node_index': 2}]
PEERS = [{'uid': f'peer.{number}', 'state': rp.DONE, 'slots': [{'node_name': f'n{number}'}],
          'times': [T0, T0, T0 + 30]} for number in range(40)]

_failed = {'state': rp.FAILED, 'pilot': 'pilot.0000'}
_waits = {'state': rp.AGENT_SCHEDULING, 'pilot': 'pilot.0000'}
_unsent = {'state': rp.AGENT_STAGING_INPUT_PENDING, 'pilot': 'pilot.0000'}
_active = {'uid': 'pilot.0000', 'state': rp.PMGR_ACTIVE, 'resource_details': {'cores': 2, 'gpus': 0}}
_queued = {'uid': 'pilot.0000', 'state': rp.PMGR_ACTIVE_PENDING}
_PRIORITY = {'job': '17', 'state': 'QUEUED', 'words': 'JobState=PENDING Reason=Priority'}
_START = '2026-12-01T08:00:00'
_IN_QUEUE = ('pilot.0000 is in the queue: job 17 waits because other jobs have a higher priority (JobState=PENDING '
             'Reason=Priority)')

RECORDS = [
    # tasks; the others of their view are `pilots`, `notes` and `peers`
    Cause('lost node', 'failed.node', 'node n3 is lost', {'task': {
        **_failed, 'error': {'kind': 'node', 'sentence': 'node n3 is lost'}}}),
    Cause('ended pilot', 'failed.pilot', 'pilot.0000 reached its runtime', {'task': {
        **_failed, 'error': {'kind': 'pilot', 'sentence': 'pilot.0000 reached its runtime'}}}),
    Cause('lost process', 'failed.lost', 'the worker was killed', {'task': {
        **_failed, 'error': {'kind': 'lost'}, 'exception': 'the worker was killed'}}),
    Cause('defect', 'failed.internal', 'KeyError: 1', {'task': {
        **_failed, 'error': {'kind': 'internal'}, 'exception': 'KeyError: 1'}}),
    Cause('function', 'failed.exception', "ValueError('1 is too small')", {'task': {
        **_failed, 'error': {'kind': 'exception'}, 'exception': "ValueError('1 is too small')",
        'exception_detail': 'Traceback (most recent call last):\n  File "f.py", line 2, in f\nValueError: 1 is too '
                            'small'}}),
    Cause('function without module', 'failed.module', "ModuleNotFoundError(...)", {'task': {
        **_failed, 'error': {'kind': 'exception'}, 'exception': "ModuleNotFoundError(\"No module named 'numba'\")",
        'exception_detail': "Traceback (most recent call last):\nModuleNotFoundError: No module named 'numba'"}}),
    Cause('oom killer', 'failed.memory', 'killed by signal 9 (SIGKILL): the out-of-memory killer has killed it', {
        'task': {**_failed, 'exit_code': -9, 'error': {'kind': 'memory', 'signal': 9, 'sentence': 'killed by signal 9 '
                 '(SIGKILL): the out-of-memory killer has killed it'}}}),
    Cause('agent of version 2.0', 'failed.crash', 'SIGSEGV: ... (...)', {'task': {**_failed, 'exit_code': -11}}),
    Cause('slow', 'slow', 'runs for 2 min 0 s on n3, 4.0 times as long as the 40 others of its kind, which took 30 s '
          '(at most 30 s); the 1 of them on this node took 30 s', {'task': {
              'state': rp.AGENT_EXECUTING, 'pilot': 'pilot.0000', 'slots': NODES, 'times': [T0, T0 + 880, None]},
              'peers': PEERS}),
    Cause('input of the client', 'waiting.input', 'the application transfers its input files: 1 of 2 are left, 3 of 4 '
          'MB', {'task': {'state': rp.TMGR_STAGING_INPUT, 'pilot': 'pilot.0000', 'progress': {
              'files': 2, 'left': 1, 'bytes': 4e6, 'bytes_left': 3e6}}}),
    Cause('input of the agent', 'waiting.input', 'the agent stages its input files (1)', {'task': {
        'state': rp.AGENT_STAGING_INPUT, 'pilot': 'pilot.0000', 'description': {'input_staging': [{}]}}}),
    Cause('output of the client', 'waiting.output', 'its output files are being transferred', {'task': {
        'state': rp.TMGR_STAGING_OUTPUT, 'pilot': 'pilot.0000'}}),
    Cause('coordinator', 'waiting.coordinator', 'the coordinator of the session is lost: it died', {
        'task': {'state': rp.TMGR_SCHEDULING}, 'notes': {'coordinator': {
            'sentence': 'the coordinator of the session is lost: it died', 'since': T0}}}),
    Cause('queued pilot', 'waiting.pilot', f'waits for pilot.0000: {_IN_QUEUE}; the batch system expects its start at '
          f'{_START}', {'task': _unsent, 'pilots': [_queued], 'notes': {
              'job.pilot.0000': {'queue': _PRIORITY | {'start': _START}}}}),
    Cause('pilots of late binding', 'waiting.pilot', f'waits for pilot.0000: {_IN_QUEUE}', {
        'task': {'state': rp.TMGR_SCHEDULING}, 'pilots': [_queued], 'notes': {
            'tmgr.0000': {'pilots': ['pilot.0000'], 'scheduler': 'backfilling'},
            'job.pilot.0000': {'queue': _PRIORITY}}}),
    Cause('another pilot', 'waiting.pilot', 'waits for another pilot: pilot.0000 reached its runtime', {
        'task': {'state': rp.AGENT_EXECUTING, 'pilot': None, 'returned': 'pilot.0000'},
        'pilots': [{'uid': 'pilot.0000', 'state': rp.DONE, 'reason': 'pilot.0000 reached its runtime'}]}),
    Cause('small pilot', 'waiting.place', 'needs 4 cores, which pilot.0000 cannot hold; it waits for pilot.0001', {
        'task': {'state': rp.TMGR_SCHEDULING, 'description': {'cores_per_rank': 4}},
        'pilots': [_active, {'uid': 'pilot.0001', 'state': rp.PMGR_ACTIVE_PENDING}],
        'notes': {'tmgr.0000': {'pilots': ['pilot.0000', 'pilot.0001'], 'scheduler': 'backfilling'}}}),
    Cause('kept nodes', 'waiting.place', 'needs 1 core, none is free; n1 is kept free for big, which has waited longer',
          {'task': _waits, 'pilots': [{**_active, 'waiting': [{
              'needs': {'cores_per_rank': 1}, 'count': 1, 'first': 't', 'since': T0, 'free': {}, 'holders': ['x'],
              'ahead': ['big'], 'sentence': 'needs 1 core, none is free; n1 is kept free for big, which has waited '
              'longer'}]}]}),
    Cause('workers', 'waiting.master', 'waits for RAPTOR master m (workers (there is none))', {
        'task': {**_waits, 'description': {'raptor_id': 'm', 'mode': 'task.function'}}, 'others': {
            'm': {'state': rp.AGENT_EXECUTING, 'pilot': 'pilot.0000', 'waits_for': {'kind': 'waiting.workers', 'text':
                                                             'workers (there is none)'}}}}),
    Cause('wait of version 2.0', 'waiting.step', 'waits for environment x (is being built)', {
        'task': {**_waits, 'waits_for': 'environment x (is being built)'}}),
    # pilots
    Cause('queue', 'waiting.queue', _IN_QUEUE, {'pilot': _queued, 'notes': {'job.pilot.0000': {'queue': _PRIORITY}}}),
    Cause('other batch system', 'waiting.queue', 'pilot.0000 is in the queue: job 17 waits (job_state = Q)', {
        'pilot': _queued, 'notes': {'job.pilot.0000': {'queue': {'job': '17', 'words': 'job_state = Q'}}}}),
    Cause('unschedulable', 'waiting.unschedulable', 'pilot.0000 cannot start: job 17 waits (JobState=PENDING '
          'Reason=PartitionTimeLimit)', {'pilot': _queued, 'notes': {'job.pilot.0000': {'queue': {
              'job': '17', 'state': 'QUEUED', 'unschedulable': True, 'words': 'JobState=PENDING '
              'Reason=PartitionTimeLimit'}}}}),
    Cause('starting agent', 'waiting.agent', 'pilot.0000 is not active yet: job 17 runs, and its agent is being '
          'started',
          {'pilot': _queued, 'notes': {'job.pilot.0000': {'queue': {'job': '17', 'state': 'RUNNING'}}}}),
    Cause('batch system away', 'waiting.queue', 'pilot.0000: slurmctld cannot be reached', {
        'pilot': _queued, 'notes': {'job.pilot.0000': {'queue': {'trouble': 'slurmctld cannot be reached'}}}}),
    Cause('walltime', 'failed.limit', 'job 17 of pilot.0000 failed: JobState=TIMEOUT TimeLimit', {'pilot': {
        'uid': 'pilot.0000', 'state': rp.FAILED, 'exception': 'job 17 of pilot.0000 failed: JobState=TIMEOUT '
        'TimeLimit'}}),
    Cause('bootstrap', 'failed.module', 'the bootstrap failed: the Python module zmq is not installed', {'pilot': {
        'uid': 'pilot.0000', 'state': rp.FAILED, 'exception': 'the bootstrap failed',
        'stderr': "ModuleNotFoundError: No module named 'zmq'"}}),
    Cause('agent', 'failed.agent', 'the agent of pilot.0000 ended without a final report', {'pilot': {
        'uid': 'pilot.0000', 'state': rp.FAILED, 'exception': 'the agent of pilot.0000 ended without a final report'}}),
    Cause('cancelled pilot', 'canceled', 'pilot.0000 was cancelled', {'pilot': {
        'uid': 'pilot.0000', 'state': rp.CANCELED, 'reason': 'pilot.0000 was cancelled'}}),
    Cause('ended', 'ended', 'pilot.0000 reached its runtime of 10 min', {'pilot': {
        'uid': 'pilot.0000', 'state': rp.DONE, 'reason': 'pilot.0000 reached its runtime of 10 min'}}),
]

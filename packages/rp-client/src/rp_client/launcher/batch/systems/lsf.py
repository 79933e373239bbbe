"""IBM Spectrum LSF: `bsub`, and `bjobs` with a custom format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from rp_api.errors import PlatformError
from rp_client.launcher.batch.systems import base
from rp_client.launcher.batch.systems.base import Scripted, Status, value, words
from rp_client.launcher.batch.systems.request import JobRequest

_RUNNING = ('RUN', 'USUSP', 'SSUSP')
_KILLED = ('TERM_OWNER', 'TERM_ADMIN', 'TERM_FORCE_OWNER', 'TERM_FORCE_ADMIN')


class LSF(Scripted):
    """LSF, version 9.1.3 or later, which has `bjobs -o`."""

    name = 'LSF'
    alive = 'lsid >/dev/null'
    submitter = 'bsub'
    settings = 'LSB_NTRIES=1 '   # the default is to retry forever
    canceller = 'bkill'
    queue_command = 'bqueues {}'
    queue_stopped = ' (Closed:|Open:Inact)'
    lacks = frozenset({'qos'})
    directive = '#BSUB'
    # with them, bsub does not print the job's id, waits for its end, or submits none
    overriding: ClassVar[Mapping[str, str]] = {'': 'BSUB_QUIET BSUB_QUIET2 BSUB_BLOCK BSUB_CHK_RESREQ'}
    job_id = r'^Job <(\d+)>'
    never: ClassVar[Mapping[str, str]] = {
        r'queue has been (de|in)activated': 'the queue does not start jobs',
        r'no suitable hosts': 'no hosts have what the job asks for',
        r'exceeds? the (queue|host)': 'the job is larger than the queue, or any host, allows',
        r'never satisf': 'the job waits for something that cannot happen',
        r'suspended by (LSF )?(admin|root)': 'the job is held by an administrator',
    }
    full: ClassVar[Mapping[str, str]] = {
        r'[Pp]ending job (slot )?threshold reached': 'the user has as many waiting jobs as it may have at once',
    }
    unreachable: ClassVar[Mapping[str, str]] = {
        r'LSF is down|(LIM|mbatchd) is down|Slave LIM configuration': 'the daemons of LSF do not run',
        r'Cannot connect to LSF|[Cc]onnection (refused|timed out)': 'LSF cannot be reached',
        r'[Cc]ommunication time ?out|batch (system|daemon) not responding': 'mbatchd did not answer in time',
    }

    def options(self, request: JobRequest) -> Iterator[str]:
        yield f'-J {value(request.name)}'
        yield f'-cwd {value(request.directory)}'
        yield f'-o {value(request.output)}'
        yield f'-e {value(request.error)}'
        yield f'-W {request.minutes // 60}:{request.minutes % 60:02}'
        for letter, text in (('q', request.queue), ('P', request.account), ('U', request.reservation)):
            if text:
                yield f'-{letter} {value(text)}'
        yield from _nodes(request) if request.nodes_only else _cores(request)
        if request.memory and request.nodes:
            yield f'-R "rusage[mem={request.memory_per_node}MB]"'
        if request.exclusive:
            yield '-x'
        yield '-r' if request.requeue else '-rn'

    def find(self, request: JobRequest) -> str:
        return "bjobs -noheader -o 'jobid output_file' 2>/dev/null; true"

    def ask(self, jobs: Mapping[str, str]) -> str:
        fields = "jobid stat exit_code exit_reason pend_reason delimiter='|'"
        return f'bjobs -a -noheader -o "{fields}" {words(jobs)} 2>/dev/null; true'

    def read(self, output: str) -> Mapping[str, Status]:
        rows = (line.strip().split('|', 4) for line in output.splitlines() if line.count('|') >= 4)
        return {row[0]: _status(*row[1:]) for row in rows}


def _nodes(request: JobRequest) -> Iterator[str]:
    """Yield the size of a job on machines with CSM, such as Summit, which allocates whole nodes."""
    yield f'-nnodes {request.nodes}'
    flags = [*request.options, *([f'smt{request.threads_per_core}'] if request.threads_per_core else [])]
    if flags:
        yield f'-alloc_flags "{" ".join(flags)}"'


def _cores(request: JobRequest) -> Iterator[str]:
    """Yield the size of a job on machines without CSM."""
    yield f'-n {request.cores}'
    if request.nodes:
        yield f'-R "span[ptile={request.cores_per_node}]"'
    elif request.gpus or request.memory:
        raise PlatformError('LSF counts GPUs and memory by node: set cores_per_node of the platform, or leave gpus and '
                            'memory of the pilot description unset')
    if request.gpus and request.gpu_request != 'none':
        yield f'-gpu "num={request.gpus_per_node}"'
    yield from (f'-R {value(option)}' for option in request.options)


def _status(state: str, code: str, exit_reason: str, pend_reason: str) -> Status:
    said = f'STAT {state}'
    if state == 'DONE':
        return Status(base.DONE, said, 0)
    if state in ('EXIT', 'ZOMBI'):
        parts = (f'exit code {code}', exit_reason.rstrip(';'))
        said += ''.join(f', {text}' for text in parts if '-' not in text.split()[-1:])
        cancelled = any(word in exit_reason for word in _KILLED)
        return Status(base.CANCELED if cancelled else base.FAILED, said, int(code) if code.isdigit() else None)
    if state in _RUNNING:
        return Status(base.RUNNING, said)
    if pend_reason in ('', '-'):
        return Status(base.QUEUED, said)
    return Status(base.QUEUED, f'{said}: {pend_reason.rstrip(";")}', unschedulable=LSF.is_never(pend_reason))

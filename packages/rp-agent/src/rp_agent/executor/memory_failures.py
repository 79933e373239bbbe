"""Failures for lack of memory: kills by the out-of-memory killer, and programs that have met their own limit.

The kernel counts the kills in each control group. In version 2, `memory.events` includes the groups below: the count
that matters is that of the job, of the outermost group that the batch system has made for it, as Slurm does (`job_17`),
or else that of the agent's own group. In version 1, `memory.oom_control` counts the kills in one group: only those in
the agent's own group are recognised. Where neither can be read, no kill is recognised.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from rp_agent.task import AgentTask
from rp_api.failures.kinds import EXIT, MEMORY, SIGNAL
from rp_api.system.readable import end_of

ROOT = '/sys/fs/cgroup'

_JOBS = ('job_', 'job-', 'job.')
_QUOTED_BYTES = 1024

FRESH = 2.0
"""Seconds for which a kill may explain a task after it was noticed: a kill of a further process explains none."""

_COMPLAINTS = (b'MemoryError', b'bad_alloc', b'annot allocate memory', b'ut of memory')
"""Words of programs whose allocation has failed: of Python, of C++, of the C library, and of others."""


class MemoryFailures:
    """Recognises them among failed tasks; `events` is the path of the kernel's counts, empty without one."""

    def __init__(self, events: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._clock = clock
        self._seen = self._count()
        self._unexplained = 0
        self._noticed = 0.0

    def explain(self, task: AgentTask) -> None:
        """Change the kind of a task's failure if memory is its reason."""
        record = task.error
        if record is None or record['kind'] not in (EXIT, SIGNAL):
            return
        self._look()   # at each failure: a kill in a task that ends otherwise must not explain a later one
        if record.get('signal') == signal.SIGKILL and self._unexplained:
            self._unexplained -= 1   # each kill explains one task
            reason = 'the out-of-memory killer has killed it'
        elif limit := task.description['mem_per_rank']:
            said = end_of(os.path.join(task.sandbox, task.description['stderr'] or f'{task.uid}.err'), _QUOTED_BYTES)
            if not any(words in said for words in _COMPLAINTS):
                return
            reason = f'it has reached its limit, mem_per_rank is {limit} MB'
        else:
            return
        task.error = {**record, 'kind': MEMORY, 'sentence': f'{record.get("sentence") or task.exception}: {reason}'}

    def _look(self) -> None:
        """Note new kills, and forget old ones."""
        count, now = self._count(), self._clock()
        if now > self._noticed + FRESH:
            self._unexplained = 0
        if count > self._seen:
            self._unexplained += count - self._seen
            self._seen, self._noticed = count, now

    def _count(self) -> int:
        if not self._events:
            return 0
        try:
            with open(self._events, 'rb') as file:
                return next((int(line.split()[1]) for line in file if line.startswith(b'oom_kill ')), 0)
        except OSError:   # the control group has gone
            return 0


def events_of_job(groups: str, root: str = ROOT) -> str:
    """Return the path of the counts of a job, given the text of `/proc/self/cgroup`; empty without one."""
    paths = []
    for line in groups.splitlines():
        _, controllers, group = line.split(':', 2)
        parts = group.strip('/').split('/')
        if not controllers:
            last = next((number for number, part in enumerate(parts, 1) if part.startswith(_JOBS)), len(parts))
            paths.append(os.path.join(root, *parts[:last], 'memory.events'))
        elif 'memory' in controllers.split(','):
            paths.append(os.path.join(root, 'memory', *parts, 'memory.oom_control'))
    return next(filter(os.path.exists, paths), '')


def of_this_process() -> MemoryFailures:
    """Return what recognises those of tasks in the job of this process."""
    try:
        with open('/proc/self/cgroup', encoding='utf-8', errors='surrogateescape') as file:
            groups = file.read()
    except OSError:
        groups = ''
    return MemoryFailures(events_of_job(groups))

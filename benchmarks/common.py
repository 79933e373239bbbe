"""Shared parts of the benchmarks: sessions, fresh processes, the C program, CPU times, tables."""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import radical.pilot as rp

HERE = Path(__file__).parent
MEMORY = '/dev/shm'
"""A file system in memory, on which sandboxes are cheapest."""

Cpu = dict[str, list[float]]
"""Microseconds per task by process: user, system; the same of its children that have ended."""


@contextmanager
def session(work: str, cores: int = 2) -> Iterator[tuple[rp.Session, rp.Pilot, rp.TaskManager]]:
    """A session with an active pilot of `cores` cores: session, pilot, task manager."""
    import radical.pilot as rp

    with rp.Session(cfg={'base': work}) as opened:
        pmgr = rp.PilotManager(session=opened)
        tmgr = rp.TaskManager(session=opened)
        pilot = pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': cores, 'runtime': 60, 'sandbox': work}))
        tmgr.add_pilots(pilot)
        yield opened, pilot, tmgr


def simulate(work: str) -> None:
    """Have the pilots of this process simulate their tasks."""
    configs = Path(work, '.radical', 'pilot', 'configs')
    configs.mkdir(parents=True)
    (configs / 'resource_local.json').write_text(json.dumps({'exact': {'agent_spawner': 'SIMULATED'}}))
    os.environ['RADICAL_CONFIG_USER_DIR'] = work


def run_tasks(tmgr: rp.TaskManager, count: int) -> list[rp.Task]:
    """Run that many tasks, each with another argument, to their ends, and make sure that they are DONE."""
    import radical.pilot as rp

    tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true', 'arguments': [str(number)]})
                               for number in range(count)])
    tmgr.wait_tasks([task.uid for task in tasks])
    bad = [task for task in tasks if task.state != rp.DONE]
    assert not bad, (bad[0].state, bad[0].exception, bad[0].exception_detail)
    return tasks


def latency_of_tasks(work: str, cores: int = 2, count: int = 200) -> list[float]:
    """Seconds from submission to DONE of tasks that run one at a time."""
    with session(work, cores) as (_, _, tmgr):
        run_tasks(tmgr, 10)
        times = []
        for _ in range(count):
            begin = time.monotonic()
            run_tasks(tmgr, 1)
            times.append(time.monotonic() - begin)
        return times


def c_program(directory: str) -> Path:
    """The compiled spawn.c."""
    program = Path(directory) / 'spawn'
    subprocess.run(['cc', '-O2', '-o', program, HERE / 'spawn.c'], check=True)
    return program


def c_loop(program: Path, mode: str, count: int, in_flight: int, work: str) -> dict[str, Any]:
    """Run the C program; return its `rate` in tasks per second, and its `cpu` time."""
    where = [] if mode == 'bare' else [work]
    result: dict[str, Any] = json.loads(subprocess.run(
        [program, mode, str(count), str(in_flight), *where], check=True, stdout=subprocess.PIPE).stdout)
    return result


@contextmanager
def work_directory(base: str) -> Iterator[str]:
    """A new directory; it is only deleted in memory, because on a disk that would slow down the next run."""
    work = tempfile.mkdtemp(prefix='rp-benchmark.', dir=base)
    try:
        yield work
    finally:
        if work.startswith(MEMORY):
            shutil.rmtree(work)
        else:
            _tell_what_is_left(base)


@cache
def _tell_what_is_left(base: str) -> None:
    print(f'{base}/rp-benchmark.* can be deleted when all is measured', file=sys.stderr)


def fresh(script: str, work: str, *arguments: str) -> dict[str, Any]:
    """Run a script in a new process, in the directory `work`; return the JSON that it prints."""
    _compile()
    done = subprocess.run([sys.executable, script, *arguments, '--work', work], check=True, stdout=subprocess.PIPE,
                          cwd=work)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@cache
def _compile() -> None:
    """Compile the distributions to bytecode, as pip does: without it, which a source tree may have to do, starts take
    twice as long."""
    for name in ('rp_profiling', 'rp_api', 'rp_client', 'rp_agent', 'rp_raptor'):
        if spec := importlib.util.find_spec(name):
            compileall.compile_dir(Path(spec.origin or '').parent, quiet=1)


def others() -> list[int]:
    """All processes that descend from this one."""
    parents: dict[int, int] = {}
    for name in os.listdir('/proc'):
        if name.isdigit():
            try:
                parents[int(name)] = int(_stat(int(name))[1])
            except OSError:   # it has ended meanwhile
                continue
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def cpu_ticks(pid: int) -> list[float]:
    """Seconds of CPU time of a process: user, system; the same of its children that have ended (proc(5), 14 to 17)."""
    return [int(field) / os.sysconf('SC_CLK_TCK') for field in _stat(pid)[11:15]]


def per_task(before: Sequence[float], after: Sequence[float], count: int) -> list[float]:
    """Microseconds per task, from seconds before and after."""
    return [1e6 * (end - begin) / count for begin, end in zip(before, after, strict=True)]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third one on; the second may hold anything."""
    return Path(f'/proc/{pid}/stat').read_text(encoding='utf-8', errors='replace').rpartition(')')[2].split()


def _own() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    return sum(usage.ru_utime + usage.ru_stime for usage in
               map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Strangers:
    """Tells how much of the machine other processes used meanwhile: benchmarks on a busy machine mislead.

    `own` returns the CPU seconds of those that are no strangers: this process and those that it has waited for.
    """

    def __init__(self, own: Callable[[], float] = _own) -> None:
        self._own = own
        self._begin = self._now()

    def share(self) -> float:
        """Percent of the machine's CPU time, since the object was made."""
        busy, own, total = (after - before for before, after in zip(self._begin, self._now(), strict=True))
        return max(0.0, 100 * (busy - own) / total) if total else 0.0   # the kernel counts ticks

    def _now(self) -> tuple[float, float, float]:
        """CPU seconds: of all processes, of those that are no strangers, that there were."""
        with open('/proc/stat', encoding='ascii') as file:
            user, nice, system, idle, iowait, irq, softirq, steal, *_ = map(int, file.readline().split()[1:])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf('SC_CLK_TCK')
        return busy, self._own(), busy + (idle + iowait) / os.sysconf('SC_CLK_TCK')


def progress(text: str) -> None:
    """Print the current step, if standard error is a terminal."""
    if sys.stderr.isatty():
        print(f'{text:<70}', end='\r', file=sys.stderr, flush=True)


def spread(values: Sequence[float]) -> list[str]:
    """Median, minimum and maximum, for a table."""
    return [number(statistics.median(values)), number(min(values)), number(max(values))]


def number(value: float) -> str:
    """Three digits that count, without an exponent."""
    return f'{value:.0f}' if abs(value) >= 100 else f'{value:.3g}'


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print('| ' + ' | '.join(head) + ' |\n|' + '---|' * len(head))
    for row in rows:
        print('| ' + ' | '.join(row) + ' |')
    print(flush=True)

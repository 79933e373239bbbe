"""Measure MPI tasks of four ranks through MPICH's launcher, end to end, beside a shell loop of the same launches.

    python benchmarks/mpi_tasks.py [--runs N] [--tasks N] [--program true|mpi]

It takes the `mpiexec` of the wheel `mpich` that is beside the interpreter, and its compiler. The program is an MPI
program that does nothing but to begin and to end (`mpi`), or /bin/true. The loop runs `mpiexec -n 4 PROGRAM` once per
task, one after the other, its output in two files each; the pilot has four cores, so that its tasks run one after the
other, too. Both take turns, in directories of their own. What counts is from the submission of all tasks until the last
one is DONE.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import radical.pilot as rp

RANKS = 4
PREFIX = Path(sys.prefix)
SOURCE = '''#include <mpi.h>
int main(int argc, char **argv) { MPI_Init(&argc, &argv); MPI_Finalize(); return 0; }
'''
LOOP = '''i=0; while [ "$i" -lt "$2" ]; do
    mkdir "task.$i"; "$0" -n 4 "$1" </dev/null >"task.$i/out" 2>"task.$i/err" || exit 1; i=$((i + 1))
done'''


def main() -> None:
    """Print what each turn gives, and the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').partition('\n')[0])
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--tasks', type=int, default=100)
    parser.add_argument('--program', choices=('mpi', 'true'), default='mpi')
    options = parser.parse_args()
    os.environ['PATH'] = f'{PREFIX}/bin:{os.environ["PATH"]}'
    with tempfile.TemporaryDirectory(prefix='rpbench.') as name:
        program = compiled(Path(name)) if options.program == 'mpi' else '/bin/true'
        rates: dict[str, list[float]] = {'shell loop': [], 'pilot': []}
        with rp.Session(cfg={'base': name}) as session:
            tmgr = started(session, name)
            launched(tmgr, program, 2)   # the launch methods are looked for
            for turn in range(options.runs):
                directory = Path(name, f'loop.{turn}')
                directory.mkdir()
                rates['shell loop'].append(options.tasks / loop(directory, program, options.tasks))
                rates['pilot'].append(options.tasks / launched(tmgr, program, options.tasks))
                print(f'turn {turn + 1}: ' + ', '.join(f'{what} {found[-1]:.1f}/s' for what, found in rates.items()))
    bare, ours = (statistics.median(rates[what]) for what in ('shell loop', 'pilot'))
    ratio = statistics.median(mine / theirs for mine, theirs in zip(rates['pilot'], rates['shell loop'], strict=True))
    print(f'{options.program}: shell loop {bare:.1f}/s, pilot {ours:.1f}/s; pilot/loop {ratio:.2f} (medians)')


def compiled(directory: Path) -> str:
    """The MPI program."""
    source, program = directory / 'nothing.c', directory / 'nothing'
    source.write_text(SOURCE)
    subprocess.run([PREFIX / 'bin' / 'mpicc', '-o', program, source], check=True)
    return str(program)


def started(session: rp.Session, base: str) -> rp.TaskManager:
    """A task manager with an active pilot of as many cores as a task has ranks."""
    pmgr, tmgr = rp.PilotManager(session=session), rp.TaskManager(session=session)
    pilot = pmgr.submit_pilots(rp.PilotDescription({'resource': 'local.exact', 'cores': RANKS, 'runtime': 60,
                                                    'sandbox': base}))
    tmgr.add_pilots(pilot)
    pilot.wait(rp.PMGR_ACTIVE, timeout=60)
    return tmgr


def launched(tmgr: rp.TaskManager, program: str, count: int) -> float:
    """Seconds from the submission of so many tasks to the end of the last one."""
    descriptions = [rp.TaskDescription({
        'executable': program, 'arguments': [str(number)], 'ranks': RANKS, 'use_mpi': True}) for number in range(count)]
    start = time.monotonic()
    tasks = tmgr.submit_tasks(descriptions)
    tmgr.wait_tasks([task.uid for task in tasks])
    seconds = time.monotonic() - start
    failed = [task for task in tasks if task.state != rp.DONE]
    if failed:
        raise SystemExit(f'{failed[0].uid} is {failed[0].state}: {failed[0].exception_detail}')
    return seconds


def loop(directory: Path, program: str, count: int) -> float:
    """Seconds that the shell loop takes."""
    start = time.monotonic()
    subprocess.run(['/bin/sh', '-c', LOOP, str(PREFIX / 'bin' / 'mpiexec'), program, str(count)], cwd=directory,
    check=True)
    return time.monotonic() - start


if __name__ == '__main__':
    main()

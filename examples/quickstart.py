"""Compress every source file of Python's standard library, one task per file, and check the results byte by byte.

Each task gets its input staged to its sandbox, runs `gzip` there, and has its result staged back. At the end, every
result is unpacked and compared with its source, a table shows how many tasks ran on each core, and for how long, and a
picture shows how busy the cores were over time.

    python examples/quickstart.py [--resource LABEL] [--limit N] [--cores N] [--timeline FILE] [--quiet]

Another platform than this machine has to see the same files. The picture needs `rp-profiling[analysis]`.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import radical.pilot as rp
from rp_client.progress import TaskProgress
from rp_profiling.profile import read_profile


def main() -> int:
    """Run the example; the exit code."""
    options = parse_arguments()
    stdlib = Path(sysconfig.get_path('stdlib'))
    sources = find_sources(stdlib)[:options.limit]
    if not options.quiet:
        print(f'Compressing the {len(sources)} source files in {stdlib}, one task for each, on a pilot with '
              f'{options.cores} cores on {options.resource} ...', flush=True)
    with tempfile.TemporaryDirectory(prefix='quickstart.') as work, rp.Session(cfg={'base': work}) as session:
        started = time.monotonic()
        pilot, tasks = run(session, sources, Path(work) / 'results', options)
        elapsed = time.monotonic() - started
        wrong = [problem for task, source in zip(tasks, sources, strict=True) if (problem := check(task, source))]
        if not options.quiet and not wrong:
            session.close(download=True)
            show_table(tasks, sources, measure(pilot), elapsed)
            picture = draw_timeline(Path(session.path), options.timeline)
    for problem in wrong[:10]:
        print(problem, file=sys.stderr)
    print(f'{len(sources) - len(wrong)} of {len(sources)} files compressed and verified, '
          f'{len(sources) / elapsed:.0f} tasks/s')
    if not options.quiet and not wrong:
        show_next_steps(picture)
    return 1 if wrong else 0


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--resource', default='local.exact', help='the platform that the pilot runs on')
    parser.add_argument('--limit', type=int, help='use only the first N files')
    parser.add_argument('--cores', type=int, default=len(os.sched_getaffinity(0)), help='cores of the pilot')
    parser.add_argument('--timeline', type=Path, default=Path('quickstart.png'), metavar='FILE',
                        help='the picture of what the cores did (default: quickstart.png)')
    parser.add_argument('--quiet', action='store_true', help='print only the last line')
    return parser.parse_args()


def find_sources(stdlib: Path) -> list[Path]:
    """All Python files of the standard library; what was installed beside it is left out."""
    return sorted(path for path in stdlib.rglob('*.py') if 'site-packages' not in path.parts)


def run(session: rp.Session, sources: list[Path], results: Path,
        options: argparse.Namespace) -> tuple[rp.Pilot, list[rp.Task]]:
    """Start a pilot, run one task per file on it, and wait for all of them."""
    pmgr = rp.PilotManager(session=session)
    tmgr = rp.TaskManager(session=session)
    pilot = pmgr.submit_pilots(rp.PilotDescription({
        'resource': options.resource, 'cores': options.cores, 'runtime': 30, 'sandbox': str(results.parent)}))
    tmgr.add_pilots(pilot)
    with TaskProgress(tmgr, len(sources), quiet=options.quiet):
        tasks = tmgr.submit_tasks([describe(index, source, results) for index, source in enumerate(sources)])
        tmgr.wait_tasks()
    return pilot, tasks


def describe(index: int, source: Path, results: Path) -> rp.TaskDescription:
    """A task that compresses one file."""
    return rp.TaskDescription({
        'executable': 'gzip',
        'arguments': ['-9', source.name],
        'input_staging': [{'source': f'file://{source}', 'target': f'task:///{source.name}', 'action': rp.TRANSFER}],
        'output_staging': [{'source': f'task:///{source.name}.gz', 'target': f'file://{results}/{index}.gz',
                            'action': rp.TRANSFER}],
        'metadata': {'result': f'{results}/{index}.gz'}})


def check(task: rp.Task, source: Path) -> str | None:
    """Return the error in the result of a task, or None if the result is byte for byte as expected."""
    if task.state != rp.DONE:
        return f'{task.uid} ({source}) is {task.state}: {task.exception} {task.exception_detail} {task.stderr}'
    with gzip.open(task.metadata['result']) as result:
        return None if result.read() == source.read_bytes() else f'{task.uid} ({source}): the result differs'


def measure(pilot: rp.Pilot) -> dict[str, float]:
    """Return the seconds that each task's program ran, from the trace of the agent."""
    started: dict[str, float] = {}
    durations: dict[str, float] = {}
    for row in read_profile(Path(pilot.pilot_sandbox) / 'agent_executing.0000.prof'):
        if row.event == 'rank_start':
            started[row.uid] = row.time
        elif row.event == 'rank_stop' and row.uid in started:
            durations[row.uid] = row.time - started[row.uid]
    return durations


def show_table(tasks: list[rp.Task], sources: list[Path], durations: dict[str, float], elapsed: float) -> None:
    """Print what ran on which core, and how long."""
    from rich.console import Console
    from rich.table import Table

    rows: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
    for task, source in zip(tasks, sources, strict=True):
        if task.state != rp.DONE or not task.slots:
            continue
        slot = task.slots[0]
        row = rows[slot.node_name, slot.cores[0].index]
        row[0] += 1
        row[1] += source.stat().st_size
        row[2] += os.path.getsize(task.metadata['result'])
        row[3] += durations.get(task.uid, 0.0)
    table = Table(title=f'{len(tasks)} tasks in {elapsed:.1f} s')
    for title in ('node', 'core', 'tasks', 'MB in', 'MB out', 'busy / s', 'busy / %'):
        table.add_column(title, justify='left' if title == 'node' else 'right')
    for (node, core), (count, size_in, size_out, busy) in sorted(rows.items()):
        table.add_row(node, str(core), str(count), f'{size_in / 1e6:.1f}', f'{size_out / 1e6:.1f}', f'{busy:.1f}',
                      f'{100 * busy / elapsed:.0f}')
    Console().print(table)


def draw_timeline(session: Path, target: Path) -> Path | None:
    """Draw what each core did over time into a file; None if what draws is not installed."""
    try:
        from rp_profiling.draw.pictures import utilisation
        from rp_profiling.draw.plot import save
    except ImportError:
        return None
    from rp_profiling.read.description import read_description
    from rp_profiling.trace import read_trace
    from rp_profiling.utilisation import Analysis
    from rp_profiling.write.slots import CORE

    analysis = Analysis(read_trace(session), read_description(session))
    drawn, = save([utilisation(analysis, CORE)], session, target.suffix.removeprefix('.') or 'png')
    return Path(shutil.move(drawn, target.absolute()))


def show_next_steps(picture: Path | None) -> None:
    """Print where the picture is, and what to try next."""
    if picture is None:
        print('No timeline was drawn: that needs pip install "rp-profiling[analysis]"')
    else:
        print(f'Timeline of the cores: {picture}')
    print("""Three things to try next:
  - run your own programs: change examples/first_tasks.py
  - call Python functions, thousands per second: examples/raptor.py
  - use a cluster: `rp platforms list` shows the machines that are known, docs/guides/platforms how to add yours""")


if __name__ == '__main__':
    sys.exit(main())

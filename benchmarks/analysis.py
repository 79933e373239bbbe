"""Measure what it takes to read, check and report a session, and to open the report, and print a table.

    python benchmarks/analysis.py [--tasks N] [--reported N] [--runs N] [--work DIR]

The sessions are made here: each task has the 43 events that a task without commands has, on 64 cores in turn; a million
tasks are 3.5 GB of profiles. Everything runs in a process of its own. `copy` is the limit of the machine: the same
files read and their lines counted, with no more done. `open` starts a headless Chromium (if there is one) that draws
the report, `open nothing` one with an empty page.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from common import work_directory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / 'packages/rp-profiling/tests'))

from traced_session import AGENT, CLIENT, HEADER, LIFE, SESSION, START, Event, events_of  # noqa: E402

CORES = 64
BETWEEN = 2
"""Milliseconds between the starts of two tasks: longer than a task lives, divided by the cores."""
END = 5000
"""When the events after the last task begin, in a session of `events_of`."""


def make_session(directory: Path, tasks: int) -> Path:
    """Write the profiles of a session with so many tasks."""
    session = directory / SESSION
    (session / 'pilot.0000').mkdir(parents=True)
    frame = [event._replace(msg=event.msg.replace('=4', f'={CORES}')) for event in events_of(0)]
    last = 300 + tasks * BETWEEN
    for name in (*CLIENT, *AGENT):
        rows = sorted((event for event in frame if event.file == name), key=lambda event: event.time)
        path = session / ('' if name in CLIENT else 'pilot.0000') / f'{name}.prof'
        with path.open('w', buffering=1 << 20) as file:
            file.write(f'{HEADER}\n')
            file.writelines(_line(event, 0) for event in rows if event.time < END - 1)
            for number in range(tasks):
                file.write(''.join(_task_line(name, number, *row) for row in LIFE if row[1] == name))
            file.writelines(_line(event, last) for event in rows if event.time >= END - 1)
    return session


def _line(event: Event, later: int) -> str:
    return f'{_time(event.time + later)},{event.event},{event.file},MainThread,{event.uid},{event.state},{event.msg}\n'


def _task_line(name: str, number: int, after: int, _: str, event: str, state: str) -> str:
    slots = f'0:{number % CORES}:' if event == 'schedule_ok' else ''
    return f'{_time(300 + number * BETWEEN + after)},{event},{name},MainThread,task.{number:06},{state},{slots}\n'


def _time(milliseconds: int) -> str:
    seconds, rest = divmod(START + milliseconds, 1000)
    return f'{seconds}.{rest:03}0000'


def copy(session: Path) -> None:
    for path in session.rglob('*.prof'):
        with path.open('rb') as file:
            while block := file.read(1 << 20):
                block.count(b'\n')


def check(session: Path) -> None:
    from rp_profiling.check import check_session

    findings = check_session(session)
    assert not findings, str(findings)


def report(session: Path) -> None:
    from rp_profiling.cli import trace

    trace([str(session), 'report', '-o', str(session.parent / 'report.html')])


def open_nothing(session: Path) -> None:
    _browse(session, 'about:blank')


def open_report(session: Path) -> None:
    shown = _browse(session, f'file://{session.parent}/report.html')
    assert 'data-view=' in shown, 'the report was not drawn'


def _browse(session: Path, address: str) -> str:
    """The page that a browser has made of what is at this address."""
    assert BROWSER is not None
    return subprocess.run([BROWSER, '--headless', '--no-sandbox', '--disable-gpu',
                           f'--user-data-dir={session.parent}/browser', '--dump-dom', address],
                          check=True, capture_output=True, text=True).stdout


BROWSER = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
CASES: dict[str, Callable[[Path], None]] = {'copy': copy, 'check': check, 'report': report,
                                            'open nothing': open_nothing, 'open': open_report}


def measure(case: str, session: Path) -> tuple[float, float, float]:
    """Seconds, seconds of CPU time and GB of memory of a case, which runs in another process."""
    done = subprocess.run([sys.executable, __file__, '--case', case, '--session', str(session)], check=True,
                          stdout=subprocess.PIPE, text=True)
    elapsed, cpu, memory = map(float, done.stdout.splitlines()[-1].split())
    return elapsed, cpu, memory


def run(case: str, session: Path) -> None:
    begin = time.monotonic()
    CASES[case](session)
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = sum(used.ru_utime + used.ru_stime for used in (own, children))
    print(time.monotonic() - begin, cpu, max(own.ru_maxrss, children.ru_maxrss) / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tasks', type=int, default=1_000_000, help='of the session that is checked')
    parser.add_argument('--reported', type=int, default=100_000, help='of the session that is reported')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--work', default='/tmp')
    parser.add_argument('--case', choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument('--session', type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        run(arguments.case, arguments.session)
        return
    with work_directory(arguments.work) as work:
        browse = ('open nothing', 'open') if BROWSER else ()
        for tasks, cases in ((arguments.tasks, ('copy', 'check')), (arguments.reported, ('copy', 'report', *browse))):
            session = make_session(Path(work) / str(tasks), tasks)
            for case in cases:
                runs = [measure(case, session) for _ in range(arguments.runs)]
                elapsed, cpu, memory = (statistics.median(values) for values in zip(*runs, strict=True))
                print(f'| {case}, {tasks:,} tasks | {elapsed:.1f} s | {cpu:.1f} s of CPU time | {memory:.2f} GB |')


if __name__ == '__main__':
    main()

"""Tests and examples of RADICAL-Pilot's clients, from the package index and unmodified, run on this project.

    python tests/compat/run.py [--short] [--logs DIRECTORY] SOURCES [WORD ...]

SOURCES is the directory in which the clients' source distributions are unpacked; the clients are installed. Prints a
table: what was run, whether it passes, for how long it ran, and of what does not pass the reason, from `clients.py`.
Exits with 1 if something fails for which no reason is known, or passes although there is one. `--short` runs the few
that CI runs; words choose the rows that contain one of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clients import CHECKS, PROGRAMS, Check

AT_A_TIME = 4  # most of them wait for something most of the time


@dataclass
class Outcome:
    check: Check
    passed: bool
    seconds: float
    output: str
    left: list[str]  # command lines of processes that went on

    @property
    def expected(self) -> bool:
        return self.passed is not bool(self.check.reason) and not self.left

    @property
    def said(self) -> str:
        if self.left:
            return f'processes go on: {"; ".join(self.left)}'
        if self.expected:
            return self.check.reason
        return f'passes, but is known to fail: {self.check.reason}' if self.passed else 'see its output'


def processes_of(mark: str) -> dict[int, str]:
    """Processes, by id, whose environment has `mark`, with their command lines."""
    found = {}
    for entry in Path('/proc').glob('[0-9]*'):
        try:
            if mark.encode() in (entry / 'environ').read_bytes().split(b'\0'):
                found[int(entry.name)] = (entry / 'cmdline').read_bytes().replace(b'\0', b' ').decode()
        except OSError:
            continue  # it ended meanwhile
    return found


def end(mark: str) -> list[str]:
    """End these processes, and return their command lines."""
    found = processes_of(mark)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return list(found.values())


def left_behind(mark: str) -> list[str]:
    """End the processes that go on five seconds after their program, and return their command lines."""
    until = time.monotonic() + 5
    while processes_of(mark) and time.monotonic() < until:
        time.sleep(0.1)
    return end(mark)


def run(check: Check, sources: Path) -> Outcome:
    """Run it in a copy of its source, with a home directory of its own."""
    with tempfile.TemporaryDirectory(prefix='compat-') as place:
        home = Path(place, 'home')
        home.mkdir()
        os.chmod(place, 0o711)   # a database server may run as another user
        folder = home
        if check.source:
            source, = (path for path in sources.glob(f'{check.source}*') if path.is_dir())
            shutil.copytree(source, Path(place, 'source'))
            folder = Path(place, 'source', check.folder)
        for name in check.added:
            shutil.copytree(PROGRAMS / name, folder, dirs_exist_ok=True)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(('RADICAL_', 'RP_'))}
        environ |= {'HOME': str(home), 'PWD': str(folder), 'TMPDIR': place, 'RADICAL_REPORT': 'FALSE',
                    'COMPAT_RUN': str(os.getpid()), 'COMPAT_PLACE': place, 'COMPAT_SOURCES': str(sources.resolve()),
                    'PATH': os.pathsep.join([str(Path(sys.executable).parent), environ['PATH']]), **check.environ}
        start = time.monotonic()
        command = [sys.executable, *check.command]
        process = subprocess.Popen(command, cwd=folder, env=environ, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   errors='replace', start_new_session=True)
        try:
            output, passed = process.communicate(timeout=check.seconds)[0], process.returncode == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, passed = f'{process.communicate()[0]}\nstill running after {check.seconds} s', False
        seconds = time.monotonic() - start
        passed = passed and check.says in output
        left = left_behind(f'COMPAT_PLACE={place}')
        return Outcome(check, passed, seconds, output, left if passed else [])


def row(outcome: Outcome) -> str:
    """A line of the table."""
    word = 'passes' if outcome.passed else 'fails'
    check = outcome.check
    return f'{check.client:<18} {check.name:<50} {word:<6} {outcome.seconds:5.0f} s  {outcome.said}'.rstrip()


def show(outcome: Outcome, logs: Path | None) -> None:
    """Print a row of the table, and the end of the output of what has not ended as it should."""
    print(row(outcome), flush=True)
    name = f'{outcome.check.client}-{outcome.check.name}'.replace('/', '-')
    if logs:
        logs.mkdir(parents=True, exist_ok=True)
        (logs / f'{name}.log').write_text(outcome.output)
    if not outcome.expected:
        print(f'==== {name}\n{outcome.output[-3000:]}\n====', flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or '').partition('\n')[0])
    parser.add_argument('--short', action='store_true', help='run what CI runs')
    parser.add_argument('--logs', type=Path, help='directory for the output of each')
    parser.add_argument('sources', type=Path, help='where the source distributions are unpacked')
    parser.add_argument('words', nargs='*', help='run the rows that contain one of them')
    options = parser.parse_args()
    chosen = [check for check in CHECKS if (check.short or not options.short) and
              (not options.words or any(word in f'{check.client} {check.name}' for word in options.words))]
    if not chosen:
        parser.error(f'no row contains any of {options.words}')
    outcomes = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        try:
            for outcome in pool.map(lambda check: run(check, options.sources), chosen):
                outcomes.append(outcome)
                show(outcome, options.logs)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            end(f'COMPAT_RUN={os.getpid()}')
            raise
    failed = [outcome for outcome in outcomes if not outcome.passed]
    print(f'{len(outcomes) - len(failed)} passed, {len(failed)} failed, '
          f'of which {sum(outcome.expected for outcome in failed)} for a known reason')
    return 0 if all(outcome.expected for outcome in outcomes) else 1


if __name__ == '__main__':
    raise SystemExit(main())

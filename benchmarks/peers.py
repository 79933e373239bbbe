"""Measure how many processes per second Ray, Dask, Parsl and HyperQueue run on two cores, beside this system.

    python benchmarks/peers.py [--runs N] [--scale X] [--work DIR] [--venv DIR]

All run `/bin/true` as a process of its own and keep standard output and error of each task: in two files (`files`), as
values for the caller (`captured`), or in the peer's own way to run programs (Parsl's `bash`). All have two workers and
the same file system, and take turns. How each is used is in benchmarks/peers/. Peers are installed into a virtualenv of
their own, once, in the versions of requirements-peers.txt. HyperQueue is its Python package, which has server, worker
and client in one process; its stand-alone program may be faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import common

from rp_agent.lineage import become_subreaper

REQUIREMENTS = common.HERE / 'requirements-peers.txt'
VENV = common.HERE.parent / '.nox' / 'benchmark-peers'
OURS, LIMIT = 'this system', 'C bare'
CORES = 2
TIMEOUT = 600.0
"""Seconds that one run of a peer may take."""
GRACE = 5.0
"""Seconds that processes of a peer have to end after its script."""

# package, variant, number of tasks: some seconds each
PEERS = (('ray', 'files', 3000), ('ray', 'captured', 2000),
         ('distributed', 'files', 2000), ('distributed', 'captured', 2000),
         ('parsl', 'files', 2000), ('parsl', 'captured', 2000), ('parsl', 'bash', 1500),
         ('hyperqueue', 'files', 2000))
SCRIPTS = {'ray': 'with_ray.py', 'distributed': 'with_dask.py', 'parsl': 'with_parsl.py',
           'hyperqueue': 'with_hyperqueue.py'}


class Failed(Exception):
    """A peer could not be installed, or did not run its tasks."""


@dataclass
class Case:
    """Something to be measured, and what came out: tasks per second of each turn, or why there is none."""

    name: str
    count: int
    run: Callable[[str], float]
    rates: list[float | None] = field(default_factory=list)
    strangers: list[float] = field(default_factory=list)
    failure: str = ''

    def take_turn(self, base: str) -> None:
        with common.work_directory(base) as work:
            strangers = common.Strangers()
            try:
                self.rates.append(self.run(work))
            except Failed as error:
                self.rates.append(None)
                self.failure = str(error)
            self.strangers.append(strangers.share())

    def measured(self) -> list[float]:
        return [rate for rate in self.rates if rate is not None]

    def ratio_to(self, other: Case) -> float:
        """The median of the ratios of the turns in which both have run; not a number if there is none."""
        return statistics.median([mine / its for mine, its in zip(self.rates, other.rates, strict=True)
                                  if mine is not None and its is not None] or [float('nan')])


def requirements() -> dict[str, str]:
    """Return the requirements by package name."""
    lines = [line.strip() for line in REQUIREMENTS.read_text(encoding='utf-8').splitlines()]
    return {line.partition('==')[0]: line for line in lines if line and not line.startswith('#')}


def install(venv: Path) -> dict[str, str]:
    """Make the virtualenv of the peers; why a package could not be installed, by its name."""
    if not (venv / 'bin' / 'pip').exists():
        subprocess.run([sys.executable, '-m', 'venv', venv], check=True)
    failures = {}
    for name, requirement in requirements().items():
        stamp = venv / f'installed-{requirement}'
        if not stamp.exists():
            common.progress(f'installing {requirement}')
            done = subprocess.run([venv / 'bin' / 'pip', 'install', '--quiet', requirement], text=True,
                                  capture_output=True)
            if done.returncode:
                failures[name] = f'cannot be installed: {last_line(done.stderr)}'
            else:
                stamp.touch()
    return failures


def last_line(text: str) -> str:
    """The last words of a program."""
    return (text.strip().splitlines() or ['it said nothing'])[-1][:200]


def run_peer(venv: Path, package: str, variant: str, count: int, work: str) -> float:
    """Tasks per second of a peer; nothing of it is left when this returns."""
    log, result = Path(work, 'log'), Path(work, 'result.json')
    scripts = common.HERE / 'peers'
    environ = os.environ | {'PATH': f'{venv / "bin"}:{os.environ["PATH"]}', 'PYTHONPATH': str(scripts), 'TMPDIR': work,
                            'VIRTUAL_ENV': str(venv)}
    command = [str(venv / 'bin' / 'python'), str(scripts / SCRIPTS[package]), variant, str(count), str(result)]
    with open(log, 'wb') as output:
        process = subprocess.Popen(command, cwd=work, env=environ, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output, start_new_session=True)
        try:
            code = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Failed(f'did not end within {TIMEOUT:.0f} s') from None
        finally:
            end_descendants(0 if process.returncode is None else GRACE)
            process.wait()
    if code:
        raise Failed(f'exit code {code}: {last_line(log.read_text(errors="replace"))}')
    rate: float = json.loads(result.read_text())['rate']
    return rate


def end_descendants(grace: float) -> None:
    """Wait until all processes below this one have ended and been reaped, and kill them after `grace` seconds.

    This process is a subreaper: what a peer leaves running becomes its child.
    """
    deadline = time.monotonic() + grace
    while remaining := common.others():
        for pid in remaining:
            # one that is gone, or still the child of another one
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                if time.monotonic() >= deadline:
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def run_ours(work: str, count: int) -> float:
    """Tasks per second of the whole system."""
    result = common.fresh(str(common.HERE / 'tasks.py'), work, '--case', 'system', '--count', str(count), '--cores',
                          str(CORES))
    rate: float = result['rate']
    return rate


def make_cases(venv: Path, program: Path, scale: float) -> list[Case]:
    """The C program, this system, and the peers; those that cannot be installed, too."""
    versions, missing = requirements(), install(venv)

    def peer(package: str, variant: str, count: int) -> Case:
        def run(work: str) -> float:
            if package in missing:
                raise Failed(missing[package])
            return run_peer(venv, package, variant, count, work)

        return Case(f'{versions[package].replace("==", " ")}, {variant}', count, run)

    count = int(20_000 * scale)
    return [Case(LIMIT, count, lambda work: common.c_loop(program, 'bare', count, CORES, work)['rate']),
            Case(OURS, count, lambda work: run_ours(work, count)),
            *(peer(package, variant, int(number * scale)) for package, variant, number in PEERS)]


def report(cases: list[Case]) -> bool:
    """Print the table and how this system compares with the best peer; whether all have run."""
    limit, ours, *peers = cases
    rows = []
    for case in cases:
        if case.measured():
            rates = [*common.spread(case.measured()), f'{case.ratio_to(limit):.2f}', f'{ours.ratio_to(case):.2f}']
        else:
            rates = ['failed'] * 5
        rows.append([case.name, str(case.count), *rates, f'{statistics.median(case.strangers):.0f} %'])
    common.print_table(['system', 'tasks', 'tasks/s', 'min', 'max', f'of {LIMIT}', f'{OURS} / it', 'used by others'],
                       rows)
    for case in cases:
        if case.failure:
            print(f'{case.name}: {case.rates.count(None)} of {len(case.rates)} runs failed: {case.failure}')
    finished = [case for case in peers if case.measured()]
    if finished:
        best = min(finished, key=ours.ratio_to)
        print(f'{OURS} runs {ours.ratio_to(best):.2f} times as many tasks per second as the best of the peers '
              f'({best.name})')
    return not any(case.failure for case in cases)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--scale', type=float, default=1.0, help='multiplies the numbers of tasks')
    parser.add_argument('--work', default=common.MEMORY, help='directory for everything that is written')
    parser.add_argument('--venv', type=Path, default=VENV, help='the virtualenv of the peers, made if there is none')
    options = parser.parse_args()
    become_subreaper()
    with common.work_directory(options.work) as programs:
        cases = make_cases(options.venv.absolute(), common.c_program(programs), options.scale)
        for turn in range(options.runs):
            for case in cases:
                common.progress(f'run {turn + 1} of {options.runs}: {case.name}')
                case.take_turn(options.work)
    return 0 if report(cases) else 1


if __name__ == '__main__':
    sys.exit(main())

"""Compare the task schedulers: the time that many short tasks take on 16 local pilots, with real agents.

    python benchmarks/backfilling.py [--tasks N] [--seconds S] [--pilots N] [--cores N] [--runs N] [CASE ...]

Cases, each with round robin and with backfilling (oversubscription 100 %), and each run in a fresh process:

- equal: pilots of one core (`--cores`)
- sizes: pilots of 1 to 8 cores
- never: the same, but one of them never becomes active: its agent is stopped

The two schedulers take turns. A ratio is the median of the ratios of each turn. In the case `never`, round robin gets
twice the time of backfilling. All pilots are on this host, and have more cores together than it: tasks sleep. With
more cores, the CPU of the host limits both schedulers: a task costs 4 ms of it in all.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from typing import Any

import common

CASES = ('equal', 'sizes', 'never')
SCHEDULERS = ('round_robin', 'backfilling')
TIMEOUT = 1800.0

Result = dict[str, Any]


def cores_of(case: str, options: argparse.Namespace) -> list[int]:
    """Return the number of cores of each pilot."""
    return [1 + number % 8 if case == 'sizes' else options.cores for number in range(options.pilots)]


def run(work: str, case: str, scheduler: str, options: argparse.Namespace) -> Result:
    """Run the tasks once, and return the seconds that they took, and how many of them have ended."""
    import radical.pilot as rp

    with rp.Session(cfg={'base': work}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session, scheduler=scheduler)
        pilots = [pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': cores, 'runtime': 60, 'sandbox': work, 'exit_on_error': False}))
            for cores in cores_of(case, options)]
        stopped = stop_agent(pilots[0]) if case == 'never' else 0
        active = pilots[1:] if stopped else pilots
        pmgr.wait_pilots([pilot.uid for pilot in active], rp.PMGR_ACTIVE)
        tmgr.add_pilots(pilots)
        begin = time.monotonic()
        tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': 'sleep', 'arguments': [str(options.seconds)]})
                                   for _ in range(options.tasks)])
        tmgr.wait_tasks(timeout=options.timeout)
        seconds = time.monotonic() - begin
        done = sum(task.state == rp.DONE for task in tasks)
        counts = [sum(task.pilot == pilot.uid for task in tasks) for pilot in pilots]
        if stopped:
            os.kill(stopped, signal.SIGKILL)
    return {'seconds': seconds, 'done': done, 'least': min(counts), 'most': max(counts)}


def stop_agent(pilot: Any) -> int:
    """Stop the agent of a pilot before it is active, and return its process."""
    while True:
        for pid in common.others():
            try:
                with open(f'/proc/{pid}/cmdline', 'rb') as file:
                    line = file.read()
            except OSError:   # it has ended meanwhile
                continue
            if b'rp_agent.cli' in line and pilot.pilot_sandbox.encode() in line:
                os.kill(pid, signal.SIGSTOP)
                return pid
        time.sleep(0.01)


def measure(case: str, scheduler: str, options: argparse.Namespace, timeout: float) -> Result:
    """Run a case in a fresh process."""
    os.environ['RADICAL_PILOT_BF_OVERSUBSCRIPTION'] = '100'
    with common.work_directory(options.work) as work:
        strangers = common.Strangers()
        result = common.fresh(__file__, work, '--case', case, '--scheduler', scheduler, '--tasks', str(options.tasks),
                              '--seconds', str(options.seconds), '--pilots', str(options.pilots), '--cores',
                              str(options.cores), '--timeout', str(timeout))
        return result | {'strangers': strangers.share()}


def take_turns(options: argparse.Namespace) -> dict[tuple[str, str], list[Result]]:
    """Return the results of all runs by case and scheduler."""
    results: dict[tuple[str, str], list[Result]] = {}
    for turn in range(options.runs):
        for case in options.cases:
            timeout = options.timeout
            for scheduler in reversed(SCHEDULERS) if case == 'never' or turn % 2 else SCHEDULERS:
                common.progress(f'run {turn + 1} of {options.runs}: {case}, {scheduler}')
                result = measure(case, scheduler, options, timeout)
                results.setdefault((case, scheduler), []).append(result)
                timeout = 2 * result['seconds'] if case == 'never' else timeout
    return results


def print_results(results: dict[tuple[str, str], list[Result]], options: argparse.Namespace) -> None:
    """Print times, rates and their ratios."""
    rows = []
    for (case, scheduler), runs in results.items():
        times = [result['seconds'] for result in runs]
        against = statistics.median(time / result['seconds'] for time, result in zip(
            times, results[case, 'round_robin'], strict=True))
        ideal = options.tasks * options.seconds / sum(cores_of(case, options)[1 if case == 'never' else 0:])
        rows.append([case, scheduler, *common.spread(times), common.number(ideal), common.number(against),
                     str(min(result['done'] for result in runs)), f'{runs[-1]["least"]} to {runs[-1]["most"]}',
                     f'{statistics.median(result["strangers"] for result in runs):.0f} %'])
    common.print_table(['case', 'scheduler', 'time / s', 'min', 'max', 'at least', 'of round robin', 'tasks DONE',
                        'tasks per pilot', 'used by others'], rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('cases', nargs='*', metavar='CASE', help=f'one of {", ".join(CASES)}; default: all')
    parser.add_argument('--tasks', type=int, default=20_000)
    parser.add_argument('--seconds', type=float, default=0.1, help='duration of each task')
    parser.add_argument('--pilots', type=int, default=16)
    parser.add_argument('--cores', type=int, default=1, help='cores of each pilot, if they are equal')
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--work', default=common.MEMORY, help='directory for sessions and sandboxes')
    parser.add_argument('--timeout', type=float, default=TIMEOUT, help='seconds that each run may take')
    parser.add_argument('--case', choices=CASES, help='run one case once, in this process, and print JSON')
    parser.add_argument('--scheduler', choices=SCHEDULERS, help='with --case')
    options = parser.parse_args()
    options.cases = options.cases or list(CASES)
    if unknown := set(options.cases).difference(CASES):
        parser.error(f'there is no case {unknown.pop()!r}')
    if options.case:
        print(json.dumps(run(options.work, options.case, options.scheduler, options)))
        return 0
    print_results(take_turns(options), options)
    return 0


if __name__ == '__main__':
    sys.exit(main())

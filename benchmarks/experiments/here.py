"""The experiments on this machine, at its size: real sessions, the same analysis.

- on its own cores, tasks compute (`rp-synthetic --flops`): weak scaling, twice as many on two cores, and strong scaling
- on cores that it does not have, tasks sleep: the pilot believes to have them, all that happens around a task is real
- experiment 5 with RAPTOR: calls that sleep, on two ranks
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import radical.pilot as rp

FLOPS = 2e9
"""Of a task: about a second on a core."""
SLEEP = 5
"""Seconds of a task on cores that are not there."""
PAUSE = 0.02
"""Seconds of a call."""
REAL_CORES = min(2, os.cpu_count() or 1)

WEAK = {f'weak, {cores} core{"s"[:cores > 1]}': (cores, 8 * cores) for cores in range(1, REAL_CORES + 1)}
STRONG = {f'strong, {cores} core{"s"[:cores > 1]}': (cores, 16) for cores in range(1, REAL_CORES + 1)}
FAKED = {**{f'weak, {cores} faked cores': (cores, 2 * cores) for cores in (16, 64, 256)},
         **{f'strong, {cores} faked cores': (cores, 512) for cores in (64, 128, 256)}}
"""Cores and tasks, by title."""


def computing(count: int) -> list[rp.TaskDescription]:
    """Tasks that compute."""
    return [rp.TaskDescription({'executable': sys.executable, 'arguments': [
        '-m', 'rp_agent.synthetic.cli', '--flops', f'{FLOPS:g}']}) for _ in range(count)]


def sleeping(count: int) -> list[rp.TaskDescription]:
    """Tasks that sleep."""
    return [rp.TaskDescription({'executable': '/bin/sleep', 'arguments': [str(SLEEP)]}) for _ in range(count)]


def run_tasks(work: Path, cores: int, tasks: list[rp.TaskDescription]) -> str:
    """Run tasks on that many cores; where the session is."""
    with rp.Session(cfg={'base': str(work)}) as session:
        pilot = rp.PilotManager(session).submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': cores, 'runtime': 30, 'sandbox': str(work)}))
        tmgr = rp.TaskManager(session)
        tmgr.add_pilots(pilot)
        pilot.wait(rp.PMGR_ACTIVE)
        submitted = tmgr.submit_tasks(tasks)
        tmgr.wait_tasks()
        _all_done(submitted)
        return session.path


def run_calls(work: Path, count: int, ranks: int = REAL_CORES) -> dict[str, float]:
    """Make calls through RAPTOR on that many ranks: calls in a second, and percent of the ranks' time in calls."""
    with rp.Session(cfg={'base': str(work)}) as session:
        pilot = rp.PilotManager(session).submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': ranks + 1, 'runtime': 30, 'sandbox': str(work)}))
        rp.TaskManager(session).add_pilots(pilot)
        begin = time.monotonic()
        master = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
        master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': ranks}))
        with rp.raptor.Executor(master) as executor:
            executor.submit(time.sleep, 0).result()
        up = time.monotonic()
        for call in rp.raptor.stream(master, time.sleep, (PAUSE for _ in range(count))):
            call.result()
        elapsed = time.monotonic() - up
    return {'start': up - begin, 'rate': count / elapsed, 'ru': 100 * count * PAUSE / elapsed / ranks}


def _all_done(tasks: Iterable[Any]) -> None:
    bad = [task for task in tasks if task.state != rp.DONE]
    if bad:
        raise RuntimeError(f'{len(bad)} tasks did not end well: {bad[0].exception} {bad[0].stderr}')


def main() -> None:
    """Run one case, and print what is needed of it as JSON: this is a program of its own for each of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('case')
    parser.add_argument('--work', type=Path, required=True)
    parser.add_argument('--calls', type=int, default=5000)
    options = parser.parse_args()
    if options.case == 'calls':
        print(json.dumps(run_calls(options.work, options.calls)))
        return
    cores, count = {**WEAK, **STRONG, **FAKED}[options.case]
    tasks = sleeping(count) if options.case in FAKED else computing(count)
    print(json.dumps({'session': run_tasks(options.work, cores, tasks)}))


if __name__ == '__main__':
    main()

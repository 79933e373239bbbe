"""Show where the time of one of the processes goes while it runs 20,000 `/bin/true` tasks.

    python benchmarks/hotspots.py [--process NAME] [--count N] [elapsed symbols calls]

Processes: `alone` (the agent's components in a process of their own, as in tasks.py), or `agent`, `hub` and
`application` of a whole session. Three views, each a run of its own:

- elapsed: time by function, of the Python source and of extensions, when the process was not idle (py-spy). Includes
  waiting in system calls, above all in `clone` for a child to execute its program, and overstates that: a process that
  waits there cannot be looked at before it goes on.
- symbols: CPU time by function of libraries and kernel; the processes of tasks are not included (perf)
- calls: system calls per task (strace, which makes everything slow but counts exactly)

What a process does before the first task is included, so take many tasks. A view whose tool is missing says so.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import common

MODULES = {'agent': 'rp_agent.cli', 'hub': 'rp_api.coordination.hub.main'}
"""By which the process of a session is found."""
TIMEOUT = 30.0
ROWS = 30


def observe(process: str, count: int, tool: Callable[[int], list[str]]) -> None:
    """Run the tasks while the tool, which is given a process to attach to, looks on."""
    case = 'agent' if process == 'alone' else 'system'
    with common.work_directory(common.MEMORY) as work:
        script = subprocess.Popen(
            [sys.executable, common.HERE / 'tasks.py', '--case', case, '--count', str(count), '--work', work], cwd=work,
            stdout=subprocess.DEVNULL)
        pid = find(MODULES[process]) if process in MODULES else script.pid
        done = subprocess.run(tool(pid), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if script.wait():
            raise SystemExit('the tasks failed')
        if done.returncode:
            raise SystemExit(f'{done.args[0]} failed: {done.stderr.strip()}')


def find(module: str) -> int:
    """The process below this one that runs a module, as soon as there is one."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        for pid in common.others():
            try:
                if module in Path(f'/proc/{pid}/cmdline').read_bytes().decode(errors='replace'):
                    return pid
            except OSError:   # it has ended meanwhile
                continue
        time.sleep(0.001)
    raise SystemExit(f'no process runs {module}')


def elapsed(process: str, count: int, work: Path) -> None:
    """Shares of functions, alone and with all that they call."""
    target = work / 'stacks'
    observe(process, count, lambda pid: ['py-spy', 'record', '--native', '--function', '--rate', '400', '--format',
                                         'raw', '--output', str(target), '--pid', str(pid)])
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in target.read_text(encoding='utf-8', errors='replace').splitlines():
        stack, _, samples = line.rpartition(' ')
        frames = [re.sub(r':\d+\)$', ')', frame) for frame in stack.split(';')]
        own[frames[-1]] += int(samples)
        for frame in set(frames):
            whole[frame] += int(samples)
    total = sum(own.values())
    for title, counts in (('alone', own), ('with what it calls', whole)):
        common.print_table([f'elapsed, function {title}', '%'],
                           [[frame, f'{100 * samples / total:.1f}'] for frame, samples in counts.most_common(ROWS)])


def symbols(process: str, count: int, work: Path) -> None:
    """Shares of libraries and of their functions."""
    data = str(work / 'perf.data')
    observe(process, count, lambda pid: ['perf', 'record', '--no-inherit', '--event', 'cpu-clock', '--freq', '2000',
                                         '--output', data, '--pid', str(pid)])
    for columns in ('dso', 'dso,symbol'):
        report = subprocess.run(['perf', 'report', '--input', data, '--stdio', '--no-children', '--sort', columns],
                                check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        lines = [line.split() for line in report.splitlines() if line.strip() and not line.startswith('#')]
        common.print_table([f'CPU time by {columns}', '%'],
                           [[' '.join(names).rstrip('- '), share.rstrip('%')] for share, *names in lines[:ROWS]])


def calls(process: str, count: int, work: Path) -> None:
    """Number and errors of each system call per task."""
    target = work / 'calls'
    observe(process, count, lambda pid: ['strace', '--summary-only', '--output', str(target), '--attach', str(pid)])
    rows = []
    for line in target.read_text().splitlines():
        fields = line.split()   # share, seconds, microseconds per call, calls, errors if there are any, name
        if len(fields) in (5, 6) and fields[3].isdigit() and fields[-1] != 'total':
            rows.append((int(fields[3]), [fields[-1], f'{int(fields[3]) / count:.2f}']))
    total = sum(number for number, _ in rows)
    common.print_table(['system call', 'per task'], [
        *(row for _, row in sorted(rows, reverse=True) if row[1] != '0.00'), ['all', f'{total / count:.2f}']])


VIEWS: dict[str, tuple[str, Callable[[str, int, Path], None]]] = {
    'elapsed': ('py-spy', elapsed), 'symbols': ('perf', symbols), 'calls': ('strace', calls)}


def main() -> int:
    """Show what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('views', nargs='*', choices=[[], *VIEWS], help='default: all')
    parser.add_argument('--process', choices=('alone', 'agent', 'hub', 'application'), default='alone')
    parser.add_argument('--count', type=int, default=20_000, help='tasks of each run')
    options = parser.parse_args()
    os.environ['RADICAL_PILOT_PROFILE'] = 'TRUE'
    for name in options.views or VIEWS:
        tool, view = VIEWS[name]
        if shutil.which(tool) is None:
            print(f'{name}: needs the program {tool}\n')
            continue
        with common.work_directory(common.MEMORY) as work:
            view(options.process, options.count, Path(work))
    return 0


if __name__ == '__main__':
    sys.exit(main())

"""Counts the modules of this project in which a function runs for one plain task: in client, hub and agent.

A first task warms up; the second one is watched, in all threads of the three processes. Python's profiling hook tells
which functions are called. It does not see compiled modules: one counts if a module that ran has imported it. The list
says which modules a reader has to know to follow a task.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import radical.pilot as rp

RECORD, REPORT = 1, 2
"""Values of the byte that all processes share: record the modules of called functions, and report them."""

HOOK = '''
import json, mmap, os, sys, threading
_place = os.environ.get('RP_COUNTS_MODULES')
if _place:
    with open(_place + '/byte', 'rb') as file:
        _byte = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
    _seen, _reports = set(), threading.Lock()

    def _hook(frame, event, argument):
        if event != 'call':
            return
        wanted = _byte[0]
        if wanted == 1:
            _seen.add(frame.f_globals.get('__name__', ''))
        elif wanted == 2 and _reports.acquire(blocking=False):   # once, and never released
            sys.setprofile(None)
            _report()

    def _report():
        names, more = set(_seen), set()
        for name in names:
            for value in list(vars(sys.modules.get(name, os)).values()):
                module = sys.modules.get(getattr(value, '__module__', None) or getattr(value, '__name__', ''))
                if getattr(module, '__file__', None) and module.__file__.endswith('.so'):
                    more.add(module.__name__)
        names = [name for name in names | more if name.startswith(('rp_', 'radical.pilot'))]
        if names:
            with open(f'{_place}/{os.getpid()}.part', 'w') as file:
                json.dump(sorted(names), file)
            os.replace(f'{_place}/{os.getpid()}.part', f'{_place}/{os.getpid()}.json')

    sys.setprofile(_hook)
    threading.setprofile(_hook)
'''
"""The `sitecustomize` of all processes."""


@contextmanager
def hooked() -> Iterator[tuple[Path, mmap.mmap]]:
    """Run this program again with the hook in this process and all that it starts; yields the place and the byte."""
    place = os.environ.get('RP_COUNTS_MODULES')
    if place is None:
        with tempfile.TemporaryDirectory(prefix='rp.modules.') as directory:
            Path(directory, 'sitecustomize.py').write_text(HOOK)
            Path(directory, 'byte').write_bytes(b'\0')
            path = os.pathsep.join(filter(None, (directory, os.environ.get('PYTHONPATH'))))
            code = os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], os.environ | {
                'PYTHONPATH': path, 'RP_COUNTS_MODULES': directory})
        sys.exit(code)
    with open(f'{place}/byte', 'r+b') as file:
        yield Path(place), mmap.mmap(file.fileno(), 1)


def main() -> int:
    """Print the modules of each process, and their number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--names', action='store_true', help='list the modules')
    options = parser.parse_args()
    with hooked() as (place, byte), tempfile.TemporaryDirectory(prefix='rp.modules.') as base, \
            rp.Session(cfg={'base': base}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription(
            resource='local.localhost', runtime=10, cores=2, sandbox=base)))
        for recorded in (False, True):
            byte[0] = RECORD if recorded else 0
            task = tmgr.submit_tasks(rp.TaskDescription(executable='/bin/true'))
            assert task.wait(timeout=60) == rp.DONE
        byte[0] = REPORT
        deadline = time.monotonic() + 30
        while len(list(place.glob('*.json'))) < 3:   # client, hub and agent, each when a function is called
            assert time.monotonic() < deadline, 'a process has not reported its modules'
            tmgr.wait_tasks(timeout=0.1)
            time.sleep(0.1)
    found: set[str] = set()
    for number, path in enumerate(sorted(place.glob('*.json')), 1):
        ran = json.loads(path.read_text())
        found.update(ran)
        print(f'process {number}: {len(ran)} modules')
        if options.names:
            print(*(f'    {name}' for name in ran), sep='\n')
    print(f'{len(found)} modules for a plain task')
    return 0


if __name__ == '__main__':
    sys.exit(main())

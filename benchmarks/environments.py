"""Measure named environments on the disks of nodes: operations on the shared file system, and the time to distribute.

    python benchmarks/environments.py [--nodes N] [--module numpy] [operations distribution]

The environment is a virtual one, with a copy of the module's package from this interpreter. `operations` counts, with
strace, the system calls that name a path of the environment or use a file of it: for an import on one node, and for
packing and sending, once. Caches of clients are not modelled: each node imports for the first time. `distribution` has
all sub-agents on this machine, each with a directory as its disk; they share the cores, which nodes do not.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import common
from sub_agents import Agent

from rp_agent.components.layout import NodeHost
from rp_agent.environments.preparation import script_with_copies
from rp_agent.node_copies import archive
from rp_agent.node_copies.copies import NodeCopies
from rp_agent.node_copies.distributor import PIECE_BYTES, Outcome
from rp_agent.node_copies.receiver import Item
from rp_agent.nodes import node_launch
from rp_agent.nodes.node_launch import NodeLaunch
from rp_agent.resource_manager.base import Allocation

METADATA = ('open', 'openat', 'stat', 'newfstatat', 'lstat', 'statx', 'access', 'faccessat2', 'readlink', 'readlinkat',
            'getdents64', 'fstat')
DATA = ('read', 'pread64', 'mmap')


def environment(base: Path, module: str) -> Path:
    """A virtual environment with the package of the module."""
    made = base / 'shared' / 'radical.pilot.sandbox' / 'session' / 'pilot.0000' / 'env' / 'rp_named_env.mine'
    venv.create(made, symlinks=True)
    found = find_spec(module)
    assert found is not None
    assert found.submodule_search_locations
    package = Path(found.submodule_search_locations[0])
    site = next(made.glob('lib/python3*/site-packages'))
    for path in package.parent.glob(f'{module}*'):
        shutil.copytree(path, site / path.name, dirs_exist_ok=True)
    return made


def operations(base: Path, module: str, nodes: int) -> list[list[str]]:
    """Rows of a table: operations on the shared file system."""
    shared = environment(base, module)
    packed = base / 'shared' / 'env.tgz'
    packing = count(shared.parent, [sys.executable, '-c', f'from rp_agent.node_copies.archive import pack; '
                                    f'pack({str(shared)!r}, open({str(packed)!r}, "wb"))'])
    copy = base / 'disk' / 'copy'
    copy.parent.mkdir()
    with open(packed, 'rb') as file:
        archive.unpack(file, f'{copy}.part', str(copy))
    os.rename(f'{copy}.part', copy)
    script = shared.with_suffix('.sh')
    path = f'export PATH={shared}/bin:$PATH\n'
    rows = []
    for name, text in (('shared', path), ('copy', script_with_copies(path, str(shared), [str(copy)]))):
        script.write_text(text)
        command = ['/bin/sh', '-c', f'. {script} && python -c "import {module}"']
        subprocess.run(command, check=True)   # byte code is there
        each = count(shared.parent, command)
        pieces = Counter({'data': -(-packed.stat().st_size // PIECE_BYTES)})
        once = packing + pieces if name == 'copy' else Counter[str]()
        rows.append([f'import, {name}', *(str(value) for kind in ('metadata', 'data') for value in (
            each[kind], once[kind], nodes * each[kind] + once[kind]))])
    return rows


def count(directory: Path, command: Sequence[str]) -> Counter[str]:
    """Operations of a command on what is in a directory."""
    calls = '|'.join((*METADATA, *DATA))
    with tempfile.NamedTemporaryFile('r', errors='replace') as log:
        subprocess.run(['strace', '-f', '-y', '-qq', '-o', log.name, '-e', f'trace=/^({calls})$', *command], check=True)
        found: Counter[str] = Counter()
        for line in log:
            call = re.match(r'\d+ +(\w+)\((.*)', line)
            if call and f'{directory}/' in call[2]:
                found['data' if call[1] in DATA else 'metadata'] += 1
    return found


class Copying(Agent):
    """An agent with a sub-agent on each of so many nodes, with a disk each."""

    def __init__(self, base: Path, nodes: int) -> None:
        os.environ.pop('TMPDIR', None)   # which sub-agents would take from the agent
        launches = node_launch.launches

        def with_disks(platform: Any, allocation: Allocation, hosts: Sequence[NodeHost],
                   sandbox: str) -> list[NodeLaunch]:
            return [replace(each, environment={**each.environment, 'TMPDIR': str(disk(base, each.positions[0]))})
                    for each in launches(platform, allocation, hosts, sandbox)]

        node_launch.launches = with_disks
        super().__init__(str(base), nodes)


def disk(base: Path, number: int) -> Path:
    path = base / f'disk.{number}'
    path.mkdir(exist_ok=True)
    return path


def distribution(base: Path, module: str, nodes: int) -> list[list[str]]:
    """Rows of a table: seconds, and bytes that the agent sends."""
    shared = environment(base, module)
    files = [path for path in shared.rglob('*') if path.is_file() and not path.is_symlink()]
    agent = Copying(base, nodes)
    agent.until_all_are_here(nodes)
    started = agent.pipeline.sub_agents
    assert started
    sent = [0]
    spread = started.spread

    def counting(names: Sequence[str], item: Item) -> None:
        sent[0] += len(item['data']) * len(names)
        spread(names, item)

    started.spread = counting   # type: ignore[method-assign]
    copies = NodeCopies(_config(base), agent.loop, agent.helpers.run, started, False)
    outcomes: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        agent.loop.stop()

    def failed(reason: str, _: str) -> None:
        sys.exit(reason)

    times = []
    packed = base / 'env.tgz'
    for _ in range(2):   # the second time, it is packed, and the copies are there
        begin = time.monotonic()
        copies.provide('copy', str(shared), str(packed), done, failed)
        agent.loop.run()
        times.append(time.monotonic() - begin)
        assert len(outcomes[-1].paths) == nodes, outcomes[-1].failures
    size = sum(path.stat().st_size for path in files)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    copies.close()
    agent.close()
    return [['files', str(len(files))], ['size / MB', common.number(size / 1e6)],
            ['archive / MB', common.number(packed.stat().st_size / 1e6)],
            ['packed and on all nodes / s', common.number(times[0])],
            ['when it is there / s', common.number(times[1])],
            ['sent by the agent / MB', common.number(sent[0] / 1e6)],
            ['memory of the agent / MB', common.number(memory)]]


def _config(base: Path) -> dict[str, Any]:
    return {'session': 'session', 'pilot': 'pilot.0000', 'registry_address': 'ipc:///nowhere', 'platform': {},
            'base': str(base)}


def main() -> None:
    """Print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('figures', nargs='*', default=['operations', 'distribution'])
    parser.add_argument('--nodes', type=int, default=64)
    parser.add_argument('--module', default='numpy')
    options = parser.parse_args()
    for figure in options.figures:
        with tempfile.TemporaryDirectory(prefix='rp-benchmark.') as directory:
            if figure == 'operations':
                kinds = [f'{kind}, {part}' for kind in ('metadata', 'data') for part in (
                    'each node', 'once', f'{options.nodes} nodes')]
                common.print_table(['', *kinds], operations(Path(directory), options.module, options.nodes))
            else:
                common.print_table(['', f'{options.nodes} nodes'],
                                   distribution(Path(directory), options.module, options.nodes))


if __name__ == '__main__':
    main()

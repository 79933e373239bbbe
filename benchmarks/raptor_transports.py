"""Calls of a RAPTOR worker over four nodes by ZeroMQ and by MPI, in turns, beside plain ZeroMQ and plain MPI.

    python benchmarks/raptor_transports.py [--scale 1] [--times 3] [--transports zmq mpi] [FIGURE ...]

| figure | what |
|---|---|
| `calls` | rate and CPU time with 16 ranks on four nodes: 10 ms, no-op, 1 MB as argument, as result, as both |
| `objects` | CPU time of all processes until an object of 500 MB is on all nodes, beside three plain TCP copies |
| `plain` | the calls with 1 MB, by ZeroMQ without encryption (`plain/sitecustomize.py`) |
| `mpi4py` | calls by batches of plain mpi4py (`peers/mpi_batches.py`), and by `mpi4py.futures`, a call per message |

The nodes are those of a real Slurm in network namespaces, as in `raptor_nodes.py`: all share the cores of this machine,
and TCP between them is that of the kernel, by a bridge. MPI is started by `srun --mpi=pmi2`. Each turn measures each
case once, in a session of its own; a ratio is the median of the ratios of each turn. Needs root, pytest, and the
programs that `nox -s slurm` installs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import common
import numpy
import raptor_nodes
from batch_pilots import Managers, platform
from raptor_nodes import CALL, CORES, NODES, PORT, RANKS, cpu_time, end, rate, worker_of
from slurm_cluster import SlurmCluster, slurm_cluster
from ssh_hosts import Namespaces, namespaces

import radical.pilot as rp

FIGURES = ('calls', 'objects', 'plain', 'mpi4py')
UCX = {'UCX_NET_DEVICES': 'eth0', 'UCX_TLS': 'tcp', 'MPIR_CVAR_CH4_ROOTS_ONLY_PMI': '1'}
"""The transport of MPI. The PMI of Slurm 22.05 is confused by long addresses, and by many at a time."""

LARGE = 1 << 20   # bytes
OBJECT = 500 * 10**6
PLAIN = 'zmq, not encrypted'
COPIES = 'three TCP copies'
MPI_CALLS = {'10 ms': ('sleep', 3_000), 'no-op': ('nothing', 100_000), '1 MB argument': ('arguments', 400),
             '1 MB result': ('results', 400)}
"""Arguments of `peers/mpi_batches.py` by kind of call."""

Figures = dict[str, float]

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


def main() -> None:
    """Make the nodes and run the cases in turns, each in a process of its own; or be such a process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('figures', nargs='*', metavar='FIGURE', help=f'of {", ".join(FIGURES)} (default: all)')
    parser.add_argument('--scale', type=float, default=1.0, help='factor for numbers of calls and sizes of objects')
    parser.add_argument('--times', type=int, default=3, help='turns')
    parser.add_argument('--transports', nargs='+', default=['zmq', 'mpi'], help='that are compared')
    parser.add_argument('--role', nargs=2, default=('', ''), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.figures = options.figures or list(FIGURES)
    size = int(OBJECT * options.scale)
    role, argument = options.role
    if role == 'sender':
        send(size)
    elif role == 'receiver':
        receive(size)
    elif role:
        print(json.dumps(application(role, Path(argument), options)))
    else:
        with (namespaces(NODES + 1) as hosts, slurm_cluster(nodes=NODES, cores=CORES, hosts=hosts) as slurm,
              TemporaryDirectory() as base):
            environ = slurm.environ | platform(
                Path(base), 'slurm://localhost/', 'SLURM', cores_per_node=CORES, launch_methods={
                    'order': ['SRUN'], 'SRUN': {'options': {'arguments': ['--mpi=pmi2']}}})
            report(options, Cases(hosts, slurm, environ | UCX, base, options))


class Cases:
    """Runs a case, and returns its figures."""

    def __init__(self, hosts: Namespaces, slurm: SlurmCluster, environ: Mapping[str, str], base: str,
                 options: argparse.Namespace) -> None:
        self._hosts = hosts
        self._slurm = slurm
        self._environ = os.environ | environ
        self._base = base
        self._options = options

    def of(self, name: str) -> Figures:
        """Return the figures of a case."""
        if name == COPIES:
            return {'object, CPU s': self._copies()}
        if name == 'mpi4py':
            return {kind: self._mpi(kind) for kind in MPI_CALLS}
        if name == 'mpi4py.futures':
            count = str(int(20_000 * self._options.scale))
            return {'no-op': float(self._srun('-m', 'mpi4py.futures', common.HERE / 'peers/mpi_futures.py', count))}
        environ = self._environ
        if name == PLAIN:
            environ = environ | {'PYTHONPATH': os.pathsep.join(filter(None, (
                str(common.HERE / 'plain'), environ.get('PYTHONPATH'))))}
        return self._application(name, environ)

    def _application(self, name: str, environ: Mapping[str, str]) -> Figures:
        last = self._hosts.names[-1]
        found: Figures = json.loads(subprocess.run(
            [*self._hosts.prefix(last), *self._program(name, str(self._slurm.directory))], env=environ, cwd=self._base,
            check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
        return found

    def _program(self, *role: str) -> list[str]:
        return [sys.executable, __file__, '--role', *role, *sys.argv[1:]]   # the figures come last

    def _copies(self) -> float:
        """Return the CPU seconds of both sides of a copy to each of the other nodes."""
        first, *others, _ = self._hosts.names
        with subprocess.Popen([*self._hosts.prefix(first), *self._program('sender', '')], text=True,
                              stdout=subprocess.PIPE) as sender:
            assert sender.stdout is not None
            assert sender.stdout.readline() == 'ready\n'
            receivers = [subprocess.Popen([*self._hosts.prefix(name), *self._program('receiver', '')], text=True,
                                          stdout=subprocess.PIPE) for name in others]
            return sum(float(each.communicate()[0]) for each in (*receivers, sender))

    def _mpi(self, kind: str) -> float:
        name, count = MPI_CALLS[kind]
        return float(self._srun(common.HERE / 'peers/mpi_batches.py', name,
                                str(max(2 * RANKS, int(count * self._options.scale)))))

    def _srun(self, *arguments: str | Path) -> str:
        """Return the output of a program of MPI: one rank that gives calls, on the first node, and `RANKS` on all."""
        with TemporaryDirectory(dir=self._base) as directory:
            listed = Path(directory, 'hosts')
            nodes = self._hosts.names[:NODES]
            listed.write_text('\n'.join([nodes[0], *(nodes * (RANKS // NODES))]))
            return subprocess.run(
                [*self._hosts.prefix(self._hosts.names[-1]), 'srun', '--mpi=pmi2', f'--ntasks={RANKS + 1}',
                 f'--nodes={NODES}', '--distribution=arbitrary', sys.executable, *arguments],
                env=self._environ | {'SLURM_HOSTFILE': str(listed)}, cwd=self._base, check=True, text=True,
                stdout=subprocess.PIPE).stdout


def report(options: argparse.Namespace, cases: Cases) -> None:
    """Run the cases in turns, and print a table."""
    wanted = set(options.figures)
    names = [*(options.transports if wanted & {'calls', 'objects'} else ()), *((PLAIN,) if 'plain' in wanted else ()),
             *((COPIES,) if 'objects' in wanted else ()),
             *(('mpi4py', 'mpi4py.futures') if 'mpi4py' in wanted else ())]
    turns: list[dict[str, Figures]] = []
    others: list[float] = []
    for number in range(options.times):
        turns.append({})
        for name in names:
            common.progress(f'turn {number + 1} of {options.times}: {name}')
            strangers = common.Strangers()
            turns[-1][name] = cases.of(name)
            others.append(strangers.share())
            print(json.dumps({name: turns[-1][name]}), file=sys.stderr, flush=True)   # in case a later case fails
    figures = list(dict.fromkeys(figure for turn in turns for found in turn.values() for figure in found))
    common.print_table(['figure', *(f'{name}{end}' for name in names for end in ('', ' min', ' max'))],
                       [[figure, *(word for name in names for word in _spread([turn[name] for turn in turns], figure))]
                        for figure in figures])
    base, *rest = names
    rows = [[f'{name} : {base}', figure, *common.spread([
        turn[name][figure] / turn[base][figure] for turn in turns])] for name in rest for figure in figures
        if figure in turns[0][name] and figure in turns[0][base]]
    if 'mpi' in names:
        rows += [[f'mpi : {name}', figure, *common.spread([turn['mpi'][figure] / turn[name][figure] for turn in turns])]
                 for name in rest if name != 'mpi' for figure in figures
                 if figure in turns[0][name] and figure in turns[0]['mpi']]
    common.print_table(['ratio', 'figure', 'median', 'min', 'max'], rows)
    # the daemons of Slurm and what they start are strangers here
    print(f'processes besides those that this one waits for used {statistics.median(others):.0f} % of the machine')


def _spread(turns: list[Figures], figure: str) -> list[str]:
    return common.spread([turn[figure] for turn in turns]) if figure in turns[0] else ['', '', '']


def application(case: str, directory: Path, options: argparse.Namespace) -> Figures:
    """Return the figures of a transport; `directory` is that of the Slurm, by which its processes are found."""
    with rp.Session(cfg={'base': os.environ['RADICAL_BASE']}) as session:
        managers = Managers(session)
        pilot = managers.active(cores=0, nodes=NODES)
        (master,) = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
        plain = case == PLAIN
        worker = worker_of(master, ranks=RANKS, ranks_per_node=RANKS // NODES, transport='zmq' if plain else case)
        found: Figures = {}
        if plain or 'calls' in options.figures:
            for kind, (func, items, count) in _kinds(options.scale).items():
                if LARGE_CALL in kind or not plain:
                    rate(master, func, items(4 * RANKS))   # ranks import, and files get their memory
                    begin = cpu_time(directory)
                    found[kind] = rate(master, func, items(count))
                    found[f'{kind}, CPU ms'] = 1e3 * (cpu_time(directory) - begin) / count
        if 'objects' in options.figures and not plain:
            found['object, CPU s'] = object_on_all(master, directory, int(OBJECT * options.scale))
        assert rp.raptor.Executor(master).submit(is_encrypted).result() is not plain
        end(managers, worker)
        return found


LARGE_CALL = '1 MB'


def _kinds(scale: float) -> dict[str, tuple[Callable[[Any], Any], Callable[[int], Iterable[Any]], int]]:
    """Return function, arguments and number of calls of each kind."""
    calls: dict[str, tuple[Callable[[Any], Any], Callable[[int], Iterable[Any]], int]] = {
        '10 ms': (time.sleep, partial(repeat, CALL), 3_000), 'no-op': (abs, range, 200_000),
        f'{LARGE_CALL} argument': (len, _arrays, 400), f'{LARGE_CALL} result': (made, partial(repeat, LARGE), 400),
        f'{LARGE_CALL} both': (same, _arrays, 400)}
    return {kind: (func, items, max(2 * RANKS, int(count * scale))) for kind, (func, items, count) in calls.items()}


def _arrays(count: int) -> Iterable[Any]:
    """Return arrays that differ."""
    return (numpy.full(LARGE, index % 256, numpy.uint8) for index in range(count))


def made(size: int) -> Any:
    """Return an array of so many bytes."""
    return numpy.ones(size, numpy.uint8)


def same(array: Any) -> Any:
    """Return the argument."""
    return array


def is_encrypted() -> bool:
    """Return whether the sockets of this process would be encrypted."""
    from rp_api.transport import keys

    return keys.make_client.__module__ == keys.__name__


def object_on_all(master: Any, directory: Path, size: int) -> float:
    """Return the CPU seconds of all processes from the time when the master has an object until all nodes have it."""
    with master.put_object(numpy.ones(1)) as ref:
        _use_on_all(master, ref)   # ranks import NumPy
    with master.put_object(numpy.random.default_rng().random(size // 8)) as ref:
        begin = cpu_time(directory)
        _use_on_all(master, ref)
        return cpu_time(directory) - begin


def _use_on_all(master: Any, ref: Any) -> None:
    nodes: set[str] = set()
    while len(nodes) < NODES:   # each rank gets a call
        nodes |= {call.result() for call in rp.raptor.stream(master, where_is, [ref] * RANKS)}


def where_is(array: Any) -> str:
    """Return the node of a call that has an object."""
    time.sleep(0.2)
    assert len(array)
    return os.uname().nodename


def send(size: int) -> None:
    """Send a file of shared memory to the other nodes, and print the CPU seconds of that."""
    with open('/dev/shm/plain', 'w+b') as file, socket.create_server(('', PORT)) as server:
        file.write(os.urandom(1 << 20) * (size // (1 << 20) + 1))
        file.flush()
        print('ready', flush=True)
        begin = _used()
        for _ in range(NODES - 1):
            connection, _address = server.accept()
            with connection:
                connection.sendfile(file, count=size)
        print(_used() - begin)
    os.unlink('/dev/shm/plain')


def receive(size: int) -> None:
    """Copy the sender's file to shared memory, and print the CPU seconds of that."""
    with socket.create_connection(('h1', PORT)) as connection:
        begin = _used()
        raptor_nodes.receive_from(connection, size)
        print(_used() - begin)


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == '__main__':
    main()

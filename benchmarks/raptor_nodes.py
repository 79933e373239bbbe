"""A RAPTOR worker over four nodes of a real Slurm, each of which is a network namespace with its own shared memory.

    python benchmarks/raptor_nodes.py [--seconds 5] [--times 3] [--megabytes 500]

It compares 16 ranks on one node with 16 ranks on four nodes, in turns in one pilot, for calls that sleep 10 ms and for
calls that do nothing. Then it compares the transfer of an object from one node to another with a plain TCP copy
(`sendfile` and `recv_into`) between the same two. All nodes share the cores of this machine, and a bridge joins them;
the application is in a namespace of its own. Needs root, pytest, and the programs that `nox -s slurm` installs.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import common
import numpy

TESTS = Path(__file__).resolve().parents[1] / 'tests'
sys.path.insert(0, str(TESTS))

from batch_pilots import Managers, platform  # noqa: E402
from clusters import belonging  # noqa: E402
from slurm_cluster import slurm_cluster  # noqa: E402
from ssh_hosts import namespaces  # noqa: E402

import radical.pilot as rp  # noqa: E402

RANKS, NODES = 16, 4
CORES = RANKS + 1   # of a node; one is the master's
CALL = 0.01   # seconds
PORT = 5000   # nothing else listens in these networks

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


def main() -> None:
    """Make the nodes and run the application on a host beside them, or be that application."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=5.0, help='of each measurement')
    parser.add_argument('--times', type=int, default=3, help='measurements of each kind')
    parser.add_argument('--megabytes', type=int, default=500, help='of an object')
    parser.add_argument('--role', nargs=2, default=('', ''), help=argparse.SUPPRESS)
    options = parser.parse_args()
    role, directory = options.role
    if role == 'sender':
        send(options.megabytes * 10**6)
    elif role == 'application':
        application(Path(directory), options)
    else:
        with (namespaces(NODES + 1) as hosts, slurm_cluster(nodes=NODES, cores=CORES, hosts=hosts) as slurm,
              TemporaryDirectory() as base):
            first, last = hosts.names[0], hosts.names[-1]
            program = [sys.executable, __file__, *sys.argv[1:], '--role']
            hosts.daemon(*program, 'sender', str(slurm.directory), prefix=hosts.prefix(first))
            environ = os.environ | slurm.environ | platform(
                Path(base), 'slurm://localhost/', 'SLURM', cores_per_node=CORES,
                launch_methods={'order': ['SRUN'], 'SRUN': {}})
            subprocess.run([*hosts.prefix(last), *program, 'application', str(slurm.directory)], env=environ, cwd=base,
                           check=True)


def application(directory: Path, options: argparse.Namespace) -> None:
    """Measure, and print tables; `directory` is that of the Slurm."""
    strangers = partial(common.Strangers, lambda: cpu_time(directory))
    with rp.Session(cfg={'base': os.environ['RADICAL_BASE']}) as session:
        managers = Managers(session)
        pilot = managers.active(cores=0, nodes=NODES)
        (master,) = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
        rates(managers, master, options.seconds, options.times, strangers)
        transfers(managers, master, options.megabytes * 10**6, options.times, strangers)


def rates(managers: Managers, master: Any, seconds: float, times: int,
          strangers: Callable[[], common.Strangers]) -> None:
    """Print the calls per second of one node and of all."""
    kinds = {'10 ms': partial(rate, master, time.sleep, [CALL] * int(seconds / CALL * RANKS)),
             'no-op': partial(rate, master, abs, range(int(seconds * 50_000)))}
    found: dict[tuple[str, int], list[float]] = {}
    others: dict[str, list[float]] = {}
    for _ in range(times):
        for nodes in (1, NODES):
            worker = worker_of(master, ranks=RANKS, ranks_per_node=RANKS // nodes)
            for kind, measure in kinds.items():
                share = strangers()
                found.setdefault((kind, nodes), []).append(measure())
                others.setdefault(kind, []).append(share.share())
            end(managers, worker)
            assert len({slot['node_name'] for slot in worker.slots or ()}) == nodes, worker.slots
    common.print_table(
        ['calls', 'one node / s', 'min', 'max', f'{NODES} nodes / s', 'min', 'max', f'{NODES} : 1', 'min', 'max',
         'used by others / %', 'min', 'max'],
        [[kind, *common.spread(found[kind, 1]), *common.spread(found[kind, NODES]),
          *common.spread([several / one for one, several in zip(found[kind, 1], found[kind, NODES], strict=True)]),
          *common.spread(others[kind])] for kind in kinds])


def transfers(managers: Managers, master: Any, size: int, times: int,
              strangers: Callable[[], common.Strangers]) -> None:
    """Print how long an object takes from the node of the master to another one, and the same for a plain copy."""
    worker = worker_of(master, ranks=1, cores_per_rank=CORES)   # all cores of a node, so it is not that of the master
    figures: dict[str, list[float]] = {name: [] for name in (
        'put: application to master / s', 'object / s', 'plain copy / s', 'object : plain copy', 'used by others / %')}
    with rp.raptor.Executor(master) as executor:
        assert executor.submit(os.uname).result().nodename != 'h1'
        executor.submit(receive, size).result()   # the first one faults pages in on both sides
        for _ in range(times):
            share = strangers()
            put, ours = timed_object(master, executor, numpy.random.default_rng().random(size // 8))
            plain = executor.submit(receive, size).result()
            for name, value in zip(figures, (put, ours, plain, ours / plain, share.share()), strict=True):
                figures[name].append(value)
    end(managers, worker)
    common.print_table([f'object of {size / 1e6:.0f} MB', 'median', 'min', 'max'],
                       [[name, *common.spread(values)] for name, values in figures.items()])


def timed_object(master: Any, executor: Any, array: Any) -> tuple[float, float]:
    """Return the seconds until the master has an object, and of the first call with it on another node."""
    begin = time.perf_counter()
    with master.put_object(array) as ref:
        stored = time.perf_counter()
        assert executor.submit(len, ref).result() == len(array)
        return stored - begin, time.perf_counter() - stored


def worker_of(master: Any, **description: Any) -> Any:
    """Start a worker, and wait until all of its ranks take calls."""
    (worker,) = master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER} | description))
    while len({call.result() for call in rp.raptor.stream(
            master, process, range(10 * description['ranks']))}) < description['ranks']:
        pass
    return worker


def end(managers: Managers, worker: Any) -> None:
    """End a worker."""
    managers.tmgr.cancel_tasks([worker.uid])
    worker.wait()


def rate(master: Any, func: Any, items: Iterable[Any]) -> float:
    """Return the calls per second of a stream."""
    start, count = time.perf_counter(), 0
    for call in rp.raptor.stream(master, func, items):
        call.result()
        count += 1
    return count / (time.perf_counter() - start)


def process(_: int) -> tuple[str, int]:
    """Return where a call runs."""
    time.sleep(0.02)
    return os.uname().nodename, os.getpid()


def receive(size: int) -> float:
    """Copy the sender's file to memory, and return the seconds that it takes."""
    with socket.create_connection(('h1', PORT)) as connection:
        begin = time.perf_counter()
        receive_from(connection, size)
        return time.perf_counter() - begin


def receive_from(connection: socket.socket, size: int) -> None:
    """Copy so many bytes to memory."""
    view = memoryview(bytearray(size))
    while view:
        view = view[connection.recv_into(view):]


def send(size: int) -> None:
    """Send a file of shared memory to each that connects."""
    with open('/dev/shm/plain', 'w+b') as file, socket.create_server(('', PORT)) as server:
        file.write(os.urandom(1 << 20) * (size // (1 << 20) + 1))
        file.flush()
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendfile(file, count=size)


def cpu_time(directory: Path) -> float:
    """Return the CPU seconds of all processes that belong to the Slurm, as all here do."""
    found = 0.0
    for pid in (os.getpid(), *belonging(directory)):
        try:
            found += sum(common.cpu_ticks(pid)[:2])
        except OSError:   # it has ended meanwhile
            continue
    return found


if __name__ == '__main__':
    main()

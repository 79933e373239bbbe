"""RAPTOR workers over the nodes of a real Slurm: each node has a manager with the ranks that were placed there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from batch_pilots import Managers, platform, use
from conftest import processes_of, processes_with, wait_until
from slurm_cluster import SlurmCluster

import radical.pilot as rp
from rp_api.system.shared_directory import shared_memory
from rp_profiling.check import check_session

RANKS = 14   # more than a node has cores
NETWORK = {'UCX_NET_DEVICES': 'lo'}
"""For MPI. Addresses of several devices may be longer than the lines that the PMI of Slurm 22.05 reads."""

TRANSPORTS = pytest.mark.parametrize('transport', ['zmq', 'mpi'])

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


@pytest.fixture(scope='module')
def managers(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managers]:
    """A pilot on four nodes of this Slurm, whose only launch method is `srun`."""
    base = tmp_path_factory.mktemp('base')
    with pytest.MonkeyPatch.context() as patch:
        use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', gpus_per_node=2,
                                     launch_methods={'order': ['SRUN'], 'SRUN': {
                                         'options': {'arguments': ['--mpi=pmi2']}}}), patch)
        with rp.Session(cfg={'base': str(base)}) as session:
            found = Managers(session)
            pilot = found.active(cores=0, nodes=4)
            with rp.Executor(pilot=pilot) as executor:
                executor.run('sleep', 1).result(60)   # starts the threads of the session that stay
            yield found
    findings = check_session(base / session.uid)
    assert not findings, str(findings)
    assert not set(slurm.jobs().values()) & {'RUNNING', 'PENDING'}


@pytest.fixture
def master(managers: Managers) -> Iterator[Any]:
    """A master of the pilot."""
    (pilot,) = managers.tmgr.list_pilots()
    (found,) = managers.pmgr.get_pilots([pilot])[0].submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    yield found
    found.cancel()
    found.wait(timeout=40)


def worker_of(master: Any, transport: str, **description: Any) -> Any:
    (worker,) = master.submit_workers(rp.TaskDescription({
        'mode': rp.RAPTOR_WORKER, 'ranks': RANKS, 'transport': transport, 'environment': NETWORK} | description))
    worker.wait(state=[rp.AGENT_EXECUTING, *rp.FINAL], timeout=40)
    assert worker.state == rp.AGENT_EXECUTING, (worker.state, worker.exception, worker.exception_detail)
    assert wait_until(lambda: len(places_of(master)) == RANKS)   # ranks come one by one
    return worker


def places_of(master: Any) -> set[tuple[str, int, str]]:
    """The nodes, processes and GPUs of the ranks that take calls."""
    return {call.result() for call in rp.raptor.stream(master, where, [0.02] * 200)}


def ranks_of(managers: Managers) -> set[int]:
    """The ranks of all workers of this session."""
    return processes_with(f'RP_SESSION_ID={managers.session.uid}').keys() & processes_with('RP_RAPTOR_RUN=')


def carriers_of(managers: Managers) -> set[int]:
    """The carriers of all workers of this session."""
    return processes_with(f'RP_SESSION_ID={managers.session.uid}').keys() & processes_with('RP_RAPTOR_CARRIER=')


def where(seconds: float) -> tuple[str, int, str]:
    """The node, the process and the GPUs of a call."""
    time.sleep(seconds)
    return os.environ['SLURMD_NODENAME'], os.getpid(), os.environ['CUDA_VISIBLE_DEVICES']


@TRANSPORTS
def test_calls_run_on_all_nodes(managers: Managers, master: Any, transport: str) -> None:
    """A worker has exactly its ranks, on the nodes of its slots."""
    worker = worker_of(master, transport)
    places = places_of(master)
    ranks = Counter(node for node, _, _ in places)
    assert len(ranks) > 1
    assert len(ranks_of(managers)) == RANKS
    assert transport != 'mpi' or wait_until(lambda: carriers_of(managers))   # messages need not wait for them
    carriers = carriers_of(managers)
    time.sleep(1.5)
    assert carriers <= carriers_of(managers)   # they are not started again
    managers.tmgr.cancel_tasks([worker.uid])
    worker.wait(timeout=40)
    assert worker.state == rp.CANCELED
    assert not carriers_of(managers)
    assert ranks == Counter(slot['node_name'] for slot in worker.slots)
    assert wait_until(lambda: not ranks_of(managers))


def over(comm: Any, number: int) -> tuple[int, int, str]:
    """The ranks of a communicator, their sum, and the node."""
    return comm.size, comm.allreduce(comm.rank + number), os.environ['SLURMD_NODENAME']


@TRANSPORTS
def test_an_mpi_function_over_all_ranks(managers: Managers, master: Any, transport: str) -> None:
    """Calls over some ranks, all of a node, and all of the worker, beside calls of one rank."""
    worker = worker_of(master, transport, raptor_class='MPIWorker')
    single = rp.raptor.stream(master, where, [0.001] * 200)
    for ranks in (2, 8, 11, RANKS):
        for call in rp.raptor.stream(master, over, range(3), ranks=ranks):
            results = call.result()
            assert [result[:2] for result in results] == [(ranks, sum(range(ranks)) + ranks * call.item)] * ranks
            assert len({result[2] for result in results}) == (2 if ranks > 8 else 1)
    assert len({call.result() for call in single}) <= RANKS
    assert len(ranks_of(managers)) == RANKS
    managers.tmgr.cancel_tasks([worker.uid])
    worker.wait(timeout=40)
    assert worker.state == rp.CANCELED
    assert wait_until(lambda: not ranks_of(managers))


def slow(path: str, item: tuple[int, bytes]) -> tuple[int, bytes]:
    """Note the start of a call, which returns its argument."""
    with open(path, 'a') as file:
        file.write(f'{item[0]}\n')
    time.sleep(0.05)
    return item


def kill_node(worker: rp.Task, part: int) -> set[int]:
    """Kill the manager and the ranks of a node, and return them."""
    processes = set(processes_of(worker, f'.part.{part:04d}'))
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return processes


def in_shared_memory(pids: set[int]) -> list[str]:
    """The directories of these processes in shared memory."""
    return [path.name for path in Path(shared_memory()).glob('radical.pilot.*')
            if not pids.isdisjoint(map(int, filter(str.isdigit, path.name.split('.')[3:4])))]


@pytest.mark.fault
@TRANSPORTS
def test_a_node_dies_with_calls(managers: Managers, master: Any, tmp_path: Path, transport: str) -> None:
    """Each call has one result; those that ran there are repeated once, on the nodes that are left. No file stays."""
    worker = worker_of(master, transport)
    notes = tmp_path / 'calls'
    items = [(number, os.urandom(50_000) * 2) for number in range(300)]   # large: in shared memory
    stream = rp.raptor.stream(master, partial(slow, str(notes)), items)
    results = [next(stream).result() for _ in range(30)]
    assert in_shared_memory({os.getpid()})
    killed = kill_node(worker, 1)
    results += [call.result() for call in stream]
    assert sorted(results) == items
    assert not in_shared_memory({os.getpid()})
    started = Counter(notes.read_text().split())
    assert len(started) == 300
    assert set(started.values()) <= {1, 2}
    assert sum(started.values()) <= 300 + 2 * (RANKS - 8)   # a rank there was in one call, and had not reported another
    assert len({call.result()[0] for call in rp.raptor.stream(master, where, [0.01] * 50)}) == 1
    assert worker.state == rp.AGENT_EXECUTING
    managers.tmgr.cancel_tasks([worker.uid])
    worker.wait(timeout=40)
    assert wait_until(lambda: not ranks_of(managers) and not in_shared_memory(killed))


@pytest.mark.fault
@TRANSPORTS
def test_an_mpi_rank_dies_with_a_call_over_nodes(managers: Managers, master: Any, tmp_path: Path,
                                                 transport: str) -> None:
    """The job starts again, and so do the calls; without a node, the worker ends with the reason."""
    worker = worker_of(master, transport, raptor_class='MPIWorker')
    once = tmp_path / 'once'

    def dies(comm: Any, number: int) -> int:
        if comm.rank == RANKS - 1 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return int(comm.allreduce(number))

    others = rp.raptor.stream(master, partial(slow, str(tmp_path / 'calls')), [(number, b'') for number in range(100)])
    assert sorted(call.result() for call in rp.raptor.stream(master, dies, [1, 2], ranks=RANKS)) == [
        [RANKS] * RANKS, [2 * RANKS] * RANKS]
    assert sorted(call.result()[0] for call in others) == list(range(100))
    kill_node(worker, 1)
    worker.wait(timeout=40)
    assert worker.state == rp.FAILED
    assert 'part 1 of 2' in str(worker.exception_detail) + str(worker.stderr)
    assert wait_until(lambda: not ranks_of(managers))


def test_an_executor_over_nodes(managers: Managers) -> None:
    """Its master takes no core, its workers all of them, and a program that needs these ends the workers."""
    with rp.Executor(pilot=managers.pmgr.get_pilots(managers.tmgr.list_pilots())[0]) as ex:
        cores = ex._max_workers
        places = {future.result(100) for future in [ex.submit(where, 0.05) for _ in range(200)]}
        assert len({node for node, _, _ in places}) > 1
        assert ex.run('true', ranks=cores).result(60).returncode == 0
        assert ex.submit(pow, 2, 10).result(60) == 1024


def test_the_transport_of_a_worker_is_shown(managers: Managers, master: Any) -> None:
    """`rp session show` names it while the worker runs."""
    (worker,) = master.submit_workers(rp.TaskDescription({
        'mode': rp.RAPTOR_WORKER, 'ranks': RANKS, 'transport': 'zmq'}))
    line = f'workers  {worker.uid}  AGENT_EXECUTING  zmq between its nodes'
    assert wait_until(lambda: line in shown(managers), 40)
    managers.tmgr.cancel_tasks([worker.uid])
    worker.wait(timeout=40)
    assert wait_until(lambda: not ranks_of(managers))


def shown(managers: Managers) -> list[str]:
    """The lines that `rp session show` prints about the session."""
    path = Path(managers.session.path)
    return subprocess.run([sys.executable, '-m', 'rp_client.cli', 'session', 'show', path.name, '--base', path.parent],
                          check=True, stdout=subprocess.PIPE, text=True, timeout=50).stdout.splitlines()

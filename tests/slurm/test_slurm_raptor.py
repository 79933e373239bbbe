"""RAPTOR workers over the nodes of a real Slurm: each node has a manager with the ranks that were placed there."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from batch_pilots import Managers, platform, use
from conftest import processes_with, wait_until
from slurm_cluster import SlurmCluster

import radical.pilot as rp
from rp_profiling.check import check_session

RANKS = 14   # more than a node has cores

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


@pytest.fixture(scope='module')
def managers(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managers]:
    """A pilot on four nodes of this Slurm, whose only launch method is `srun`."""
    base = tmp_path_factory.mktemp('base')
    with pytest.MonkeyPatch.context() as patch:
        use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', gpus_per_node=2,
                                     launch_methods={'order': ['SRUN'], 'SRUN': {}}), patch)
        with rp.Session(cfg={'base': str(base)}) as session:
            found = Managers(session)
            found.active(cores=0, nodes=4)
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


def worker_of(master: Any, **description: Any) -> Any:
    (worker,) = master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': RANKS} | description))
    worker.wait(state=[rp.AGENT_EXECUTING, *rp.FINAL], timeout=40)
    assert worker.state == rp.AGENT_EXECUTING, (worker.state, worker.exception, worker.exception_detail)
    return worker


def processes_of(managers: Managers) -> list[int]:
    """The ranks of all workers of this session."""
    return [pid for pid, line in processes_with(f'RP_SESSION_ID={managers.session.uid}').items()
            if 'rp_raptor.rank.rank' in line]


def where(seconds: float) -> tuple[str, int, str]:
    """The node, the process and the GPUs of a call."""
    time.sleep(seconds)
    return os.environ['SLURMD_NODENAME'], os.getpid(), os.environ['CUDA_VISIBLE_DEVICES']


def test_calls_run_on_all_nodes(managers: Managers, master: Any) -> None:
    """A worker has exactly its ranks, on the nodes of its slots."""
    worker = worker_of(master)
    places = {call.result() for call in rp.raptor.stream(master, where, [0.02] * 400)}
    assert len(places) == RANKS
    ranks = Counter(node for node, _, _ in places)
    assert len(ranks) > 1
    assert len(processes_of(managers)) == RANKS
    managers.tmgr.cancel_tasks([worker.uid])
    worker.wait(timeout=40)
    assert worker.state == rp.CANCELED
    assert ranks == Counter(slot['node_name'] for slot in worker.slots)
    assert wait_until(lambda: not processes_of(managers))

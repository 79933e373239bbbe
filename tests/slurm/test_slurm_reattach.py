"""Pilots on a real Slurm that another application goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from batch_pilots import FINAL, platform, use
from slurm_cluster import SlurmCluster

import radical.pilot as rp


def test_jobs_go_on_and_are_watched(slurm: SlurmCluster, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Active ones, those that wait, and those that end while nobody looks."""
    use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', gpus_per_node=2), monkeypatch)
    first = rp.Session(uid='session', cfg={'base': str(base)})
    manager, tasks = rp.PilotManager(first), rp.TaskManager(first)
    sizes: tuple[dict[str, str], ...] = ({}, {'queue': 'closed'}, {'queue': 'closed'})   # nothing starts in that one
    pilots = manager.submit_pilots([
        rp.PilotDescription({'resource': 'test.machine', 'cores': 8, 'runtime': 10, 'exit_on_error': False} | size)
        for size in sizes])
    tasks.add_pilots(pilots[0])
    assert manager.wait_pilots(pilots[0].uid, [rp.PMGR_ACTIVE, *FINAL], 30) == rp.PMGR_ACTIVE
    manager.wait_pilots(None, [rp.PMGR_ACTIVE_PENDING, *FINAL], 30)
    tasks.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['1']}))
    first.close(terminate=False)
    waiting = sorted(int(job) for job, state in slurm.jobs().items() if state == 'PENDING')
    slurm.run('scancel', str(waiting[0]))

    with rp.Session(uid='session', cfg={'base': str(base)}) as second:
        assert second.attached
        (manager,), (tasks,) = second.get_pilot_managers(), second.get_task_managers()
        assert tasks.wait_tasks(timeout=30) == [rp.DONE]
        assert manager.wait_pilots(pilots[1].uid, timeout=30) == rp.FAILED
        assert f'job {waiting[0]} of {pilots[1].uid}' in manager.get_pilots(pilots[1].uid).exception
        slurm.run('scancel', str(waiting[1]))
        assert manager.wait_pilots(pilots[2].uid, timeout=30) == rp.FAILED
    assert not set(slurm.jobs().values()) & {'RUNNING', 'PENDING'}

"""Pilots on a real Grid Engine, from submission to the last task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_pilots import Managers, ends_beside_an_idle_pilot, platform, use
from conftest import wait_until
from grid_engine import GridEngine

import radical.pilot as rp


@pytest.fixture
def managers(cluster: GridEngine, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """An open session whose platform `test.machine` is this Grid Engine."""
    use(cluster.environ | {'HOME': str(base)} | platform(base, 'sge://localhost/', 'SGE', default_queue='all.q'),
        monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        yield Managers(session)
    wait_until(lambda: not cluster.run('qstat'))


def test_tasks_run(managers: Managers) -> None:
    pilot = managers.active()
    assert (pilot.resource_details or {})['cores_per_node'] == 8
    assert managers.outputs(8, 'echo $NSLOTS ${JOB_ID:+job}') == ['8 job'] * 8


def test_a_job_that_is_deleted_while_it_runs(managers: Managers, cluster: GridEngine) -> None:
    pilot = managers.active()
    cluster.run('qdel', '-u', 'root')
    assert pilot.uid in managers.failed(pilot)


def test_a_deleted_job_costs_its_tasks_nothing(managers: Managers, cluster: GridEngine, base: Path) -> None:
    def end(pilot: rp.Pilot) -> None:
        cluster.run('qdel', min(line.split()[0] for line in cluster.run('qstat').splitlines()[2:]))

    ends_beside_an_idle_pilot(managers, base, end, {}, {})


def test_a_job_that_grid_engine_refuses(managers: Managers) -> None:
    assert 'nowhere' in managers.failed(managers.submitted(queue='nowhere'))

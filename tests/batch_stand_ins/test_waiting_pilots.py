"""Pilots whose job cannot start, or cannot be submitted yet, on batch systems that no test machine has."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_pilots import FINAL, Managers, platform, use
from batch_systems import BatchSystem, batch_system
from conftest import wait_until

import radical.pilot as rp

OURS = ('pbspro', 'lsf', 'flux')


@pytest.fixture(params=OURS)
def system(request: pytest.FixtureRequest) -> Iterator[BatchSystem]:
    """A batch system without jobs."""
    with batch_system(request.param) as found:
        yield found


@pytest.fixture
def managers(system: BatchSystem, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """An open session whose platform `test.machine` has that batch system."""
    manager = {'pbspro': 'PBSPRO', 'lsf': 'LSF', 'flux': 'FORK', 'torque': 'TORQUE'}[system.system]
    (base / 'tmp').mkdir()
    defined = platform(base, f'{system.system}://localhost/', manager, fake_resources=True)
    use(system.environ | {'HOME': str(base), 'TMPDIR': str(base / 'tmp')} | defined, monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        yield Managers(session)


def told(managers: Managers) -> list[tuple[str, str]]:
    """The states with which a callback is called from now on, and the last words of the pilot's log then."""
    calls: list[tuple[str, str]] = []
    managers.pmgr.register_callback(lambda pilot, state: calls.append((state, (pilot.log or [''])[-1])))
    return calls


REASONS = {'pbspro': 'queue debug: started = False', 'lsf': 'The queue has been inactivated by administrator',
           'flux': 'queue debug is stopped'}


def test_the_reason_reaches_log_pilot_and_callback(managers: Managers, system: BatchSystem,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    system.stop_queue('debug')
    calls = told(managers)
    with caplog.at_level(logging.WARNING, logger='radical.pilot'):
        pilot = managers.submitted()
        wait_until(lambda: any('cannot start' in line for line in pilot.log))
    reason = next(line for line in pilot.log if 'cannot start' in line)
    assert reason == next(line for line in reason.splitlines() if REASONS[system.system] in line)
    assert reason in caplog.text
    wait_until(lambda: (rp.PMGR_ACTIVE_PENDING, reason) in calls)
    assert pilot.state == rp.PMGR_ACTIVE_PENDING   # it goes on waiting
    managers.pmgr.cancel_pilots()
    wait_until(lambda: system.jobs()[0]['state'] == 'ended')
    assert [state for state, words in calls if words == reason] in (
        [rp.PMGR_ACTIVE_PENDING], [rp.PMGR_ACTIVE_PENDING, rp.CANCELED])   # once


def test_a_pilot_that_does_not_wait(managers: Managers, system: BatchSystem) -> None:
    system.stop_queue('debug')
    pilot = managers.submitted(fail_if_unschedulable=True)
    said = managers.failed(pilot)
    number = system.jobs()[0]['id']
    assert f'job {number}' in said
    assert 'cannot start: ' in said
    assert REASONS[system.system] in said
    wait_until(lambda: system.jobs()[0]['state'] == 'ended')


@pytest.mark.parametrize('system', ['pbspro'], indirect=True)
def test_a_request_that_can_never_run(managers: Managers, system: BatchSystem) -> None:
    pilot = managers.submitted(cores=64, fail_if_unschedulable=True)
    assert 'comment = Can Never Run: Insufficient amount of resource: ncpus' in managers.failed(pilot)


@pytest.mark.parametrize('requeue', [False, True])
@pytest.mark.parametrize('system', ['pbspro', 'lsf'], indirect=True)
def test_jobs_are_not_started_again_unless_they_may_be(managers: Managers, system: BatchSystem, requeue: bool) -> None:
    system.hold()
    managers.submitted(requeue=requeue)
    assert wait_until(system.jobs)[0]['rerunable'] is requeue
    managers.pmgr.cancel_pilots()
    system.release()


def test_submitted_again_when_the_batch_system_is_back(managers: Managers, system: BatchSystem) -> None:
    system.down()
    pilot = managers.submitted()
    wait_until(lambda: any('cannot be reached, the job is submitted again for up to 10 minutes' in line
                           for line in pilot.log))
    assert pilot.state == rp.PMGR_LAUNCHING
    system.up()
    pilot.wait([rp.PMGR_ACTIVE, *FINAL], timeout=60)
    assert pilot.state == rp.PMGR_ACTIVE, pilot.log
    assert len(system.jobs()) == 1


def test_cancelled_while_the_batch_system_is_not_there(managers: Managers, system: BatchSystem) -> None:
    system.down()
    pilot = managers.submitted()
    wait_until(lambda: any('cannot be reached' in line for line in pilot.log))
    managers.pmgr.cancel_pilots()
    assert pilot.state == rp.CANCELED
    system.up()
    assert system.jobs() == []


@pytest.mark.parametrize('system', [*OURS, 'torque'], indirect=True)
def test_a_refused_job_leaves_nothing(managers: Managers, system: BatchSystem, base: Path) -> None:
    """Its reason is told once, and no script stays in the temporary directory."""
    if system.system == 'torque' and 'CI' not in os.environ:
        pytest.importorskip('radical.saga')
    said = managers.failed(managers.submitted(queue='nowhere'))
    assert said.count('nowhere') + said.count('Unknown queue') == 1, said
    assert [path for path in (base / 'tmp').iterdir() if 'script' in path.name.lower()] == []

"""Pilots on batch systems that no test machine has: our launcher, and our agents, meet their programs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_pilots import FINAL, Managers, platform, sandbox, use
from batch_systems import BatchSystem, batch_system
from conftest import wait_until

import radical.pilot as rp

MANAGERS = {'pbspro': 'PBSPRO', 'torque': 'TORQUE', 'lsf': 'LSF', 'cobalt': 'COBALT', 'loadl': 'LOADLEVELER',
            'condor': 'FORK', 'flux': 'FLUX'}
TOLD = {'pbspro': 'PBS_JOBID', 'torque': 'PBS_JOBID', 'lsf': 'LSB_JOBID', 'cobalt': 'COBALT_JOBID',
        'loadl': 'LOADL_JOB_NAME', 'condor': '_CONDOR_JOB', 'flux': 'FLUX_URI'}
CANCEL = {'pbspro': ['qdel'], 'torque': ['qdel'], 'lsf': ['bkill'], 'cobalt': ['qdel'], 'loadl': ['llcancel'],
          'condor': ['condor_rm'], 'flux': ['flux', 'cancel']}


OVER_SAGA = ('torque', 'cobalt', 'loadl', 'condor')


@pytest.fixture(params=list(MANAGERS))
def system(request: pytest.FixtureRequest) -> Iterator[BatchSystem]:
    """A batch system without jobs."""
    if request.param in OVER_SAGA and 'CI' not in os.environ:
        pytest.importorskip('radical.saga')
    with batch_system(request.param) as found:
        yield found


def defined(base: Path, system: BatchSystem, **fields: object) -> dict[str, str]:
    """The environment that has `test.machine` with this batch system."""
    queue = 'vanilla' if system.system == 'condor' else 'debug'   # a universe, there
    return platform(base, f'{system.system}://localhost/', MANAGERS[system.system], fake_resources=True,
                    default_queue=queue, **fields)


@pytest.fixture
def managers(system: BatchSystem, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """An open session whose platform `test.machine` has that batch system."""
    use(system.environ | {'HOME': str(base)} | defined(base, system), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        yield Managers(session)


def test_tasks_run(managers: Managers, system: BatchSystem) -> None:
    pilot = managers.active(project='allocation')
    assert (pilot.resource_details or {})['cores_per_node'] == 8
    told = managers.outputs(8, f'echo ${TOLD[system.system]}')
    job = system.jobs()[0]
    assert all(str(job['id']) in text for text in told)
    if system.system != 'condor':   # to which radical.saga tells none of this
        assert (job['name'], job['queue'], job['nodes'], job['walltime']) == (pilot.uid, 'debug', 1, 600)
    assert len(list(sandbox(pilot).iterdir())) < 15 + 8
    managers.pmgr.cancel_pilots()
    assert pilot.state == rp.CANCELED
    wait_until(lambda: system.jobs()[0]['state'] == 'ended')


def test_a_bootstrap_that_fails(managers: Managers, system: BatchSystem, base: Path) -> None:
    """It says why itself, as several batch systems do not even tell that a job has failed."""
    defined(base, system, pre_bootstrap_0=['echo no luck >&2; false'])
    said = managers.failed(managers.submitted())
    assert 'a command of pre_bootstrap_0 failed with exit code 1' in said
    assert 'no luck' in said.splitlines()[-1]


def test_what_the_batch_system_refuses(managers: Managers) -> None:
    said = managers.failed(managers.submitted(queue='nowhere'))
    assert re.search(r"nowhere|Unknown queue", said)
    assert '#' not in said.partition(' see ')[0]   # the script that was submitted is not shown


def test_a_job_that_is_killed_in_the_queue(managers: Managers, system: BatchSystem) -> None:
    system.hold()
    pilot = managers.submitted()
    number = wait_until(system.jobs)[0]['id']
    wait_until(lambda: pilot.state in (rp.PMGR_ACTIVE_PENDING, *FINAL))
    name = f'{pilot_host()}.{number}' if system.system == 'loadl' else str(number)
    system.run(*CANCEL[system.system], name)
    said = managers.failed(pilot)
    assert str(number) in said, said
    system.release()


def pilot_host() -> str:
    """The name of this machine, which is the first node."""
    return subprocess.run(['/bin/hostname'], capture_output=True, text=True, check=True).stdout.strip()

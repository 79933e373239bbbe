"""The job that an application runs in, found by its variables."""

from __future__ import annotations

import pytest
from resource_manager_support import MadeUp, allocate

from rp_agent.resource_manager.batch import BatchSystem
from rp_agent.resource_manager.systems import find
from rp_agent.resource_manager.systems.find import enclosing, hint
from rp_agent.resource_manager.systems.slurm import Slurm
from rp_api.errors import PlatformError, ResourceError
from rp_api.platforms.systems import BATCH_SYSTEMS

TWO = {'SLURM_JOB_ID': '17', 'SLURM_JOB_NODELIST': 'n[1-2]', 'SLURM_JOB_CPUS_PER_NODE': '8(x2)'}


@pytest.mark.parametrize(('environ', 'name'), [
    ({'SLURM_JOB_ID': '1'}, 'SLURM'), ({'PBS_JOBID': '1'}, 'PBSPRO'),
    ({'PBS_JOBID': '1', 'PBS_NUM_PPN': '4'}, 'TORQUE'), ({'LSB_JOBID': '1'}, 'LSF'),
    ({'COBALT_JOBID': '1'}, 'COBALT'), ({'LOADL_STEP_ID': 'h.1.0'}, 'LOADLEVELER'),
    ({'JOB_ID': '1', 'SGE_TASK_ID': 'undefined'}, 'SGE'), ({'JOB_ID': '1'}, None), ({}, None),
    ({'FLUX_URI': 'local:///f'}, 'FLUX'), ({'FLUX_URI': 'local:///f', 'SLURM_JOB_ID': '1'}, 'SLURM')])
def test_batch_systems_are_recognised(environ: dict[str, str], name: str | None) -> None:
    found = enclosing(MadeUp(environ))
    assert (found and found.NAME) == name


def test_job_variables_are_those_of_the_resource_managers() -> None:
    for system in BATCH_SYSTEMS:
        if system.agent:
            manager = find.find(system.resource_manager)
            assert isinstance(manager, BatchSystem)
            assert (system.resource_manager, system.job_variable) == (manager.NAME, manager.JOB)


def test_all_nodes_without_a_size() -> None:
    assert allocate('ALLOCATION', TWO, {}, here=['n1']).names == ('n1', 'n2')
    assert allocate('ALLOCATION', TWO, {}, cores=3, here=['n1']).names == ('n1',)


def test_more_than_the_job_has() -> None:
    with pytest.raises(ResourceError, match='nodes=3 of the pilot description is more than the 2 that job 17 of SLURM'):
        allocate('ALLOCATION', TWO, {}, nodes=3, here=['n1'])


def test_outside_of_a_job() -> None:
    with pytest.raises(PlatformError, match='does not run inside of a job: none of the variables COBALT_JOBID, FLUX_U'):
        allocate('ALLOCATION', {})


def test_hint() -> None:
    assert 'job 17 of SLURM with 2 nodes, of which this pilot uses 1' in hint(MadeUp(TWO), 1)
    assert hint(MadeUp(TWO), 2) == hint(MadeUp({}), 1) == hint(MadeUp({'SLURM_JOB_ID': '17'}), 1) == ''
    assert allocate('FORK', TWO, {}, cores=1).hint
    assert isinstance(find.find('SLURM'), Slurm)

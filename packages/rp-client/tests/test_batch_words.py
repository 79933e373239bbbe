"""What batch systems say about jobs, as their documentation and their programs show it."""

from __future__ import annotations

import pytest

from rp_client.launcher.batch.systems.base import (
    CANCELED,
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    BatchSystem,
    Status,
    Submitting,
)
from rp_client.launcher.batch.systems.cobalt import Cobalt
from rp_client.launcher.batch.systems.flux import Flux
from rp_client.launcher.batch.systems.host import Host
from rp_client.launcher.batch.systems.lsf import LSF
from rp_client.launcher.batch.systems.pbspro import PBSPro
from rp_client.launcher.batch.systems.registry import batch_system
from rp_client.launcher.batch.systems.sge import GridEngine
from rp_client.launcher.batch.systems.slurm import Slurm
from rp_client.launcher.batch.systems.torque import Torque

SCONTROL = ('JobId={} JobName=a JobState=RUNNING UserId=me(1) GroupId=us(1) QOS=normal JobState={} Reason={} '
            'Dependency=(null) ExitCode={} DerivedExitCode=9:9 RunTime=00:00:25 NodeList=c[1-4]')


@pytest.mark.parametrize(('state', 'reason', 'code', 'status'), [
    ('PENDING', 'Resources', '0:0', Status(QUEUED, 'JobState=PENDING Reason=Resources')),
    ('PENDING', 'None', '0:0', Status(QUEUED, 'JobState=PENDING')),
    ('CONFIGURING', 'None', '0:0', Status(QUEUED, 'JobState=CONFIGURING')),
    ('RUNNING', 'None', '0:0', Status(RUNNING, 'JobState=RUNNING')),
    ('COMPLETING', 'None', '0:0', Status(RUNNING, 'JobState=COMPLETING')),
    ('COMPLETED', 'None', '0:0', Status(DONE, 'JobState=COMPLETED ExitCode=0:0', 0)),
    ('FAILED', 'NonZeroExitCode', '3:0', Status(FAILED, 'JobState=FAILED Reason=NonZeroExitCode ExitCode=3:0', 3)),
    ('FAILED', 'None', '0:9', Status(FAILED, 'JobState=FAILED ExitCode=0:9', 137)),
    ('CANCELLED', 'None', '0:15', Status(CANCELED, 'JobState=CANCELLED ExitCode=0:15', 143)),
    ('TIMEOUT', 'TimeLimit', '0:1', Status(FAILED, 'JobState=TIMEOUT Reason=TimeLimit ExitCode=0:1', 129)),
    ('NODE_FAIL', 'NodeDown', '1:0', Status(FAILED, 'JobState=NODE_FAIL Reason=NodeDown ExitCode=1:0', 1)),
    ('OUT_OF_MEMORY', 'OutOfMemory', '0:125',
     Status(FAILED, 'JobState=OUT_OF_MEMORY Reason=OutOfMemory ExitCode=0:125', 253)),
])
def test_slurm(state: str, reason: str, code: str, status: Status) -> None:
    line = SCONTROL.replace('JobState=RUNNING ', '', 1).format(17, state, reason, code)
    assert Slurm().read(f'slurm_load_jobs error: Invalid job id specified\n{line}\n') == {'17': status}


@pytest.mark.parametrize(('told', 'start'), [('Unknown', ''), ('2026-12-01T08:00:00', '2026-12-01T08:00:00')])
def test_the_start_that_slurm_expects(told: str, start: str) -> None:
    line = f'JobId=17 JobState=PENDING Reason=Priority StartTime={told} ExitCode=0:0'
    assert Slurm().read(line) == {'17': Status(QUEUED, 'JobState=PENDING Reason=Priority', start=start)}
    running = f'JobId=17 JobState=RUNNING Reason=None StartTime={told} ExitCode=0:0'
    assert Slurm().read(running) == {'17': Status(RUNNING, 'JobState=RUNNING')}


def test_slurm_forgets_jobs() -> None:
    """Then accounting knows them, if there is any."""
    assert Slurm().read('') == {}
    assert Slurm().read_history('17|CANCELLED by 1000|0:15\n18|COMPLETED|0:0\n') == {
        '17': Status(CANCELED, 'State=CANCELLED by 1000 ExitCode=0:15', 143),
        '18': Status(DONE, 'State=COMPLETED ExitCode=0:0', 0)}
    assert Slurm().read_history('sacct: error: Problem talking to the database') == {}


QSTAT = '''\
Job Id: 12.server
    Job_Name = pilot.0000
    job_state = {}
    Variable_List = PBS_O_HOME=/home/me,PBS_O_LANG=C,
\tPBS_O_PATH=/bin
{}
'''


@pytest.mark.parametrize(('state', 'more', 'status'), [
    ('Q', '    comment = Not Running: Insufficient amount of resource: ncpus\n',
     Status(QUEUED, 'job_state = Q, comment = Not Running: Insufficient amount of resource: ncpus')),
    ('H', '    Hold_Types = u\n', Status(QUEUED, 'job_state = H, Hold_Types = u')),
    ('H', '    Hold_Types = s\n', Status(QUEUED, 'job_state = H, Hold_Types = s', unschedulable=True)),
    ('Q', '    comment = Can Never Run: Insufficient amount of resource: ncpus\n',
     Status(QUEUED, 'job_state = Q, comment = Can Never Run: Insufficient amount of resource: ncpus',
            unschedulable=True)),
    ('Q', '    estimated.start_time = Tue Dec  1 08:00:00 2026\n',
     Status(QUEUED, 'job_state = Q', start='Tue Dec  1 08:00:00 2026')),
    ('R', '', Status(RUNNING, 'job_state = R')),
    ('E', '', Status(RUNNING, 'job_state = E')),
    ('F', '    Exit_status = 0\n', Status(DONE, 'job_state = F, exit_status = 0', 0)),
    ('F', '    Exit_status = 3\n', Status(FAILED, 'job_state = F, exit_status = 3', 3)),
    ('F', '    Exit_status = 271\n', Status(CANCELED, 'job_state = F, exit_status = 271', 271)),
    ('F', '    Exit_status = -29\n', Status(FAILED, 'job_state = F, exit_status = -29', -29)),
    ('F', '', Status(CANCELED, 'job_state = F')),
])
def test_pbs_pro(state: str, more: str, status: Status) -> None:
    assert PBSPro().read(QSTAT.format(state, more)) == {'12.server': status}


def test_pbs_pro_queues() -> None:
    queues = 'Queue: workq\n    queue_type = Execution\n    started = {}\nQueue: other\n    started = True\n'
    job = QSTAT.format('Q', '    queue = workq\n')
    assert PBSPro().read(queues.format(True) + job) == {'12.server': Status(QUEUED, 'job_state = Q')}
    assert PBSPro().read(queues.format(False) + job) == {
        '12.server': Status(QUEUED, 'job_state = Q, queue workq: started = False', unschedulable=True)}


def test_torque() -> None:
    output = QSTAT.format('C', '    exit_status = 0') + QSTAT.replace('12.', '13.').format('C', '    exit_status = 1')
    assert Torque().read(output) == {'12.server': Status(DONE, 'job_state = C, exit_status = 0', 0),
                                     '13.server': Status(FAILED, 'job_state = C, exit_status = 1', 1)}


QSTAT_SGE = '''\
job-ID  prior   name       user         state submit/start at     queue                          slots ja-task-ID
-----------------------------------------------------------------------------------------------------------------
     11 0.55500 pilot.0000 me           r     06/24/2013 17:24:50 all.q@node1                        8
     12 0.00000 pilot.0001 me           qw    06/24/2013 17:24:50                                    8
     13 0.00000 pilot.0002 me           hqw   06/24/2013 17:24:50                                    8
     14 0.55500 pilot.0003 me           Eqw   06/24/2013 17:24:50                                    8
     15 0.55500 pilot.0004 me           dr    06/24/2013 17:24:50 all.q@node1                        8
14: error reason    1:          can't chdir to /nowhere: No such file or directory
'''


def test_grid_engine_queue() -> None:
    assert GridEngine().read(QSTAT_SGE) == {
        '11': Status(RUNNING, 'state r'), '12': Status(QUEUED, 'state qw'), '13': Status(QUEUED, 'state hqw'),
        '14': Status(FAILED, "state Eqw, error reason: can't chdir to /nowhere: No such file or directory",
                     stays=True),
        '15': Status(RUNNING, 'state dr')}


def test_grid_engine_history() -> None:
    record = '''\
==============================================================
qname        all.q
jobname      pilot.0000
jobnumber    {}
failed       {}
deleted_by   {}
exit_status  {}
'''
    output = (record.format(11, '0', 'NONE', 0) + record.format(12, '0', 'NONE', '3                   (Quit)')
              + record.format(13, '100 : assumedly after job', 'NONE', 137)
              + record.format(14, '100 : assumedly after job', 'me@host', 137)
              + record.format(15, '37  : qmaster enforced h_rt, h_cpu, or h_vmem limit', 'NONE', 137))
    assert GridEngine().read_history(output) == {
        '11': Status(DONE, 'failed 0, exit_status 0', 0),
        '12': Status(FAILED, 'failed 0, exit_status 3', 3),
        '13': Status(FAILED, 'failed 100 : assumedly after job, exit_status 137', 137),
        '14': Status(CANCELED, 'failed 100 : assumedly after job, exit_status 137, deleted by me@host', 137),
        '15': Status(FAILED, 'failed 37  : qmaster enforced h_rt, h_cpu, or h_vmem limit, exit_status 137', 137)}


@pytest.mark.parametrize(('line', 'status'), [
    ('7|PEND|-|-|New job is waiting for scheduling;', Status(QUEUED, 'STAT PEND: New job is waiting for scheduling')),
    ('7|PSUSP|-|-|-', Status(QUEUED, 'STAT PSUSP')),
    ('7|RUN|-|-|-', Status(RUNNING, 'STAT RUN')),
    ('7|DONE|-|-|-', Status(DONE, 'STAT DONE', 0)),
    ('7|EXIT|3|-|-', Status(FAILED, 'STAT EXIT, exit code 3', 3)),
    ('7|EXIT|130|TERM_OWNER: job killed by owner|-',
     Status(CANCELED, 'STAT EXIT, exit code 130, TERM_OWNER: job killed by owner', 130)),
    ('7|EXIT|140|TERM_RUNLIMIT: job killed after reaching LSF run time limit|-',
     Status(FAILED, 'STAT EXIT, exit code 140, TERM_RUNLIMIT: job killed after reaching LSF run time limit', 140)),
])
def test_lsf(line: str, status: Status) -> None:
    assert LSF().read(f'{line}\n') == {'7': status}


FLUX_QUEUES = 'batch|started\ndebug|stopped\n'


@pytest.mark.parametrize(('line', 'status'), [
    ('17|batch|SCHED||||', Status(QUEUED, 'state SCHED')),
    ('17|debug|SCHED||||', Status(QUEUED, 'state SCHED, queue debug is stopped', unschedulable=True)),
    ('17|debug|RUN||||', Status(RUNNING, 'state RUN')),
    ('17|batch|CLEANUP|COMPLETED|0||', Status(RUNNING, 'state CLEANUP')),
    ('17|batch|INACTIVE|COMPLETED|0||', Status(DONE, 'result COMPLETED, exit code 0', 0)),
    ('17|batch|INACTIVE|FAILED|3||', Status(FAILED, 'result FAILED, exit code 3', 3)),
    ('17|batch|INACTIVE|CANCELED||cancel|by user', Status(CANCELED, 'result CANCELED, cancel: by user')),
    ('17|batch|INACTIVE|TIMEOUT|142|timeout|resource allocation expired',
     Status(FAILED, 'result TIMEOUT, exit code 142, timeout: resource allocation expired', 142)),
    ('17|batch|INACTIVE|FAILED||alloc|alloc denied due to type="unsatisfiable" | more',
     Status(FAILED, 'result FAILED, alloc: alloc denied due to type="unsatisfiable" | more')),
])
def test_flux(line: str, status: Status) -> None:
    assert Flux().read(f'{FLUX_QUEUES}{line}\n') == {'17': status}


def test_flux_without_named_queues() -> None:
    assert Flux().read('|stopped\n17||SCHED||||\n')['17'].unschedulable
    assert Flux().read('17||SCHED||||\n')['17'] == Status(QUEUED, 'state SCHED')   # one that knows no list of queues


def test_cobalt() -> None:
    output = """
    JobID             : 12
    JobName           : pilot.0000
    State             : user_hold
    JobID             : 13
    State             : running
"""
    assert Cobalt().read(output) == {'12': Status(QUEUED, 'State user_hold'), '13': Status(RUNNING, 'State running')}
    when = 'Mon Jun 24 17:24:43 2013 +0000 (UTC) Info:'
    log = (f'JobID 12\n{when} task completed normally with an exit code of 0; initiating job cleanup and removal\n'
           f'JobID 13\n{when} task completed normally with an exit code of 3; initiating job cleanup and removal\n'
           'JobID 14\n')
    assert Cobalt().read_history(log) == {'12': Status(DONE, 'exit code 0', 0), '13': Status(FAILED, 'exit code 3', 3)}


def test_host() -> None:
    assert Host().read('7.99 runs\n8.99 ended 0\n9.99 ended 3\n10.99 ended\nsh: line 1: noise\n') == {
        '7.99': Status(RUNNING, 'it runs'), '8.99': Status(DONE, 'exit code 0', 0),
        '9.99': Status(FAILED, 'exit code 3', 3),
        '10.99': Status(FAILED, 'its processes were killed, or the host was started again')}


@pytest.mark.parametrize(('url', 'name'), [
    ('slurm://localhost/', 'Slurm'), ('slurm+ssh://me@host:22/', 'Slurm'), ('pbspro+gsissh://host', 'PBS Pro'),
    ('ssh://host/', 'the host'), ('cobalt://localhost', 'Cobalt'),
    ('torque://localhost', 'Torque'), ('sge://localhost?memreqs=h_vmem', 'Grid Engine'), ('lsf://localhost', 'LSF')])
def test_known(url: str, name: str) -> None:
    system = batch_system(url)
    assert system.name == name


@pytest.mark.parametrize(('system', 'reason'), [
    (Slurm, 'PartitionTimeLimit'), (Slurm, 'PartitionNodeLimit'), (Slurm, 'PartitionDown'), (Slurm, 'BadConstraints'),
    (Slurm, 'QOSMaxWallDurationPerJobLimit'), (Slurm, 'AssocMaxNodePerJobLimit'), (Slurm, 'QOSMaxGRESPerNode'),
    (Slurm, 'AssocGrpCPUMinutesLimit'), (Slurm, 'InvalidQOS'), (Slurm, 'JobHeldAdmin'),
    (GridEngine, 'no suitable queues'), (LSF, 'There are no suitable hosts for the job'),
])
def test_reasons_that_do_not_pass(system: type[BatchSystem], reason: str) -> None:
    assert system.is_never(reason)


@pytest.mark.parametrize('reason', [
    'None', 'Resources', 'Priority', 'AssocMaxJobsLimit', 'QOSMaxJobsPerUserLimit', 'QOSGrpCpuLimit', 'JobHeldUser',
    'AssocGrpCPURunMinutesLimit', 'ReqNodeNotAvail,_UnavailableNodes:n[1-2]', 'Dependency', 'BeginTime', 'Licenses',
    'QOSMaxCpuPerUserLimit', 'Reservation'])
def test_reasons_of_slurm_that_pass(reason: str) -> None:
    assert not Slurm.is_never(reason)


@pytest.mark.parametrize(('system', 'message'), [
    (Slurm, 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)'),
    (Slurm, 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation'),
    (PBSPro, 'Connection refused\nqsub: cannot connect to server server1 (errno=15010)'),
    (GridEngine, 'error: commlib error: got select error (Connection refused)'),
    (LSF, 'LSF is down. Please wait ...'), (LSF, 'Cannot connect to LSF. Please wait ...'),
    (Flux, 'flux-batch: ERROR: Unable to connect to Flux: broker socket /run/flux/local was not found'),
])
def test_messages_of_batch_systems_that_are_not_there(system: type[BatchSystem], message: str) -> None:
    assert system.is_unreachable(message)


POLICY = ('Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user\'s size and/or time '
          'limits)')


@pytest.mark.parametrize(('system', 'message', 'full'), [
    *((Slurm, f'sbatch: error: {limit}\nsbatch: error: {POLICY}', True) for limit in (
        'AssocMaxSubmitJobLimit', 'AssocGrpSubmitJobsLimit', 'QOSMaxSubmitJobPerUserLimit', 'QOSGrpSubmitJobsLimit',
        'QOSMaxSubmitJobPerAccountLimit')),
    (Slurm, f'sbatch: error: AssocMaxWallDurationPerJobLimit\nsbatch: error: {POLICY}', False),
    (Slurm, f'sbatch: error: QOSMaxNodePerUserLimit\nsbatch: error: {POLICY}', False),
    (PBSPro, "qsub: would exceed queue generic's per-user limit", True), (PBSPro, 'qsub: Unknown queue', False),
    (GridEngine, 'Unable to run job: job rejected: Only 2 jobs are allowed per user (current job count: 2)', True),
    (GridEngine, 'Unable to run job: Job was rejected because job requests unknown queue', False),
    (LSF, 'User <u>: Pending job threshold reached. Retrying in 60 seconds...', True)])
def test_messages_of_batch_systems_that_have_enough_jobs(system: type[BatchSystem], message: str, full: bool) -> None:
    assert system.is_full(message) == full


@pytest.mark.parametrize(('system', 'message'), [
    (Slurm, 'sbatch: error: Batch job submission failed: Invalid partition name specified'),
    (PBSPro, 'qsub: Unknown queue'),
    (GridEngine, 'Unable to run job: Job was rejected because job requests unknown queue'),
    (LSF, 'nowhere: No such queue. Job not submitted.'), (Flux, 'flux-batch: ERROR: [Errno 22] unsatisfiable request')])
def test_messages_of_batch_systems_that_refuse(system: type[BatchSystem], message: str) -> None:
    assert not system.is_unreachable(message)


@pytest.mark.parametrize(('system', 'output', 'job'), [
    (Slurm(), 'welcome\nSubmitted batch job 42 on cluster c\n', '42'),
    (PBSPro(), 'qsub: note\n42.server1\n', '42.server1'),
    (GridEngine(), 'Your job 42 ("pilot.0000") has been submitted\n', '42'), (Flux(), '17179869184\n', '17179869184'),
    (LSF(), 'Job <42> is submitted to queue <batch>.\n', '42'), (Slurm(), 'nothing of the kind\n', ''),
])
def test_ids_of_submitted_jobs(system: Submitting, output: str, job: str) -> None:
    assert system.submitted(output) == job

"""Outputs of batch systems about a job, for each event that a user hears of; formats as in test_batch_words.py."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """An event, and the output about job 42; `history` is that of the program for jobs which have ended."""

    event: str
    output: str = ''
    history: str = ''


def _slurm(event: str, state: str, reason: str, code: str = '0:0') -> Sample:
    return Sample(event, f'JobId=42 JobName=a UserId=me(1) JobState={state} Reason={reason} ExitCode={code}\n')


def _pbs(event: str, state: str, *fields: str) -> Sample:
    lines = ''.join(f'    {field}\n' for field in fields)
    return Sample(event, f'Queue: workq\n    started = True\nQueue: night\n    started = False\n'
                  f'Job Id: 42.server\n    job_state = {state}\n{lines}')


def _sge(event: str, state: str, *notes: str) -> Sample:
    row = f'     42 0.55500 pilot.0000 me           {state:5} 06/24/2013 17:24:50                   8\n'
    return Sample(event, row + ''.join(f'42: {note}\n' for note in notes))


def _sge_ended(event: str, failed: str, code: int, deleted_by: str = 'NONE') -> Sample:
    return Sample(event, '', f'{"=" * 62}\njobnumber    42\nfailed       {failed}\ndeleted_by   {deleted_by}\n'
                  f'exit_status  {code}\n')


def _lsf(event: str, line: str) -> Sample:
    return Sample(event, f'42|{line}\n')


def _flux(event: str, line: str) -> Sample:
    return Sample(event, f'batch|started\ndebug|stopped\n42|{line}\n')


WAITS, TOO_LARGE, STOPPED, HELD = 'waits for its turn', 'asks for too much', 'queue stopped', 'held'
FAILED, TIMEOUT, NODE_LOST, CANCELLED = 'ends with exit code 3', 'time is over', 'node lost', 'cancelled'

SAMPLES: dict[str, list[Sample]] = {
    'slurm': [
        _slurm(WAITS, 'PENDING', 'Resources'), _slurm(TOO_LARGE, 'PENDING', 'PartitionNodeLimit'),
        _slurm(STOPPED, 'PENDING', 'PartitionDown'), _slurm(HELD, 'PENDING', 'JobHeldAdmin'),
        _slurm(FAILED, 'FAILED', 'NonZeroExitCode', '3:0'), _slurm(TIMEOUT, 'TIMEOUT', 'TimeLimit', '0:15'),
        _slurm(NODE_LOST, 'NODE_FAIL', 'NodeDown', '1:0'), _slurm(CANCELLED, 'CANCELLED', 'None', '0:15')],
    'pbspro': [
        _pbs(WAITS, 'Q', 'queue = workq', 'comment = Not Running: Insufficient amount of resource: ncpus'),
        _pbs(TOO_LARGE, 'Q', 'queue = workq', 'comment = Can Never Run: Insufficient amount of resource: ncpus'),
        _pbs(STOPPED, 'Q', 'queue = night'), _pbs(HELD, 'H', 'queue = workq', 'Hold_Types = s'),
        _pbs(FAILED, 'F', 'Exit_status = 3'), _pbs(TIMEOUT, 'F', 'Exit_status = -29'),
        _pbs(NODE_LOST, 'F', 'Exit_status = -11'), _pbs(CANCELLED, 'F', 'Exit_status = 271')],
    'sge': [
        _sge(WAITS, 'qw', 'verification: found possible assignment with 8 slots'),
        _sge(TOO_LARGE, 'qw', 'verification: no suitable queues'),
        _sge(STOPPED, 'qw', 'instance all.q@n1   BIP   0/0/16   0.1   lx-amd64   d'),
        _sge_ended(FAILED, '0', 3), _sge_ended(TIMEOUT, '37  : qmaster enforced h_rt, h_cpu, or h_vmem limit', 137),
        _sge_ended(CANCELLED, '100 : assumedly after job', 137, 'me@host')],
    'lsf': [
        _lsf(WAITS, 'PEND|-|-|New job is waiting for scheduling;'),
        _lsf(TOO_LARGE, 'PEND|-|-|There are no suitable hosts for the job;'),
        _lsf(STOPPED, 'PEND|-|-|The queue has been inactivated by administrator;'),
        _lsf(FAILED, 'EXIT|3|-|-'),
        _lsf(TIMEOUT, 'EXIT|140|TERM_RUNLIMIT: job killed after reaching LSF run time limit|-'),
        _lsf(NODE_LOST, 'EXIT|-|TERM_UNKNOWN: LSF cannot determine a termination reason|-'),
        _lsf(CANCELLED, 'EXIT|130|TERM_OWNER: job killed by owner|-')],
    'flux': [
        _flux(WAITS, 'batch|SCHED||||'),
        _flux(TOO_LARGE, 'batch|INACTIVE|FAILED||alloc|alloc denied due to type="unsatisfiable"'),
        _flux(STOPPED, 'debug|SCHED||||'), _flux(FAILED, 'batch|INACTIVE|FAILED|3||'),
        _flux(TIMEOUT, 'batch|INACTIVE|TIMEOUT|142|timeout|resource allocation expired'),
        _flux(NODE_LOST, 'batch|INACTIVE|FAILED|137|node-failure|lost contact with node n1'),
        _flux(CANCELLED, 'batch|INACTIVE|CANCELED||cancel|')],
    'torque': [_pbs(WAITS, 'Q', 'queue = workq'), _pbs(STOPPED, 'Q', 'queue = night'),
               _pbs(FAILED, 'C', 'exit_status = 3'), _pbs(CANCELLED, 'C', 'exit_status = 271')],
    'cobalt': [Sample(HELD, '    JobID             : 42\n    State             : admin_hold\n'),
               Sample(FAILED, '', 'JobID 42\ntask completed normally with an exit code of 3; cleanup\n')],
    'condor': [Sample(HELD, '42, 0, 5, The job exceeded a limit\n'), Sample(FAILED, '', '42, 0, 4, 3\n'),
               Sample(CANCELLED, '', '42, 0, 3, undefined\n')],
    'loadl': [Sample(WAITS, 'host.42.0!I\n'), Sample(HELD, 'host.42.0!S\n'), Sample(CANCELLED, 'host.42.0!CA\n')],
}

"""Ends of jobs are no failures of tasks: what may run again, or has not started, runs on another pilot."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import pilot_description, processes_of, processes_with, wait_until

import radical.pilot as rp

pytestmark = [pytest.mark.fault, pytest.mark.disorder('agents end in the middle of their work')]

ANSWERS = {   # what programs do when they are told to end
    'dies': 'until [ -e {base}/go ]; do sleep 0.02; done',
    'exits with 9': 'trap "exit 9" TERM; until [ -e {base}/go ]; do sleep 0.02; done',
    'exits with 0': 'trap "exit 0" TERM; until [ -e {base}/go ]; do sleep 0.02; done'}


def agent_of(pilot: rp.Pilot) -> int:
    (agent,) = [pid for pid, command in processes_with(pilot.pilot_sandbox).items() if 'rp_agent.cli' in command]
    return agent


@pytest.mark.parametrize('scheduler', [rp.SCHEDULER_ROUND_ROBIN, rp.SCHEDULER_BACKFILLING])
def test_agent_that_is_told_to_end(session: rp.Session, base: Path, monkeypatch: pytest.MonkeyPatch,
                                   scheduler: str) -> None:
    """Most of its tasks get the signal first, as when a batch system signals all processes of a job in any order."""
    monkeypatch.setenv('RADICAL_PILOT_BF_OVERSUBSCRIPTION', '200')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session, scheduler=scheduler)
    ending, other = pmgr.submit_pilots([pilot_description(base, cores=7, exit_on_error=False) for _ in range(2)])
    tmgr.add_pilots(ending)

    def submit(answer: str, **description: object) -> rp.Task:
        command = f'echo $RP_TASK_ID >> {base}/ran; ' + ANSWERS[answer].format(base=base)
        return tmgr.submit_tasks(rp.TaskDescription({
            'executable': '/bin/sh', 'arguments': ['-c', command], 'literal_arguments': True, **description}))

    again = [submit(answer, **description) for answer in ANSWERS for description in (
        {'restartable': True}, {'retries': 1})]
    plain = submit('dies')
    tmgr.wait_tasks([task.uid for task in (*again, plain)], state=rp.AGENT_EXECUTING, timeout=40)
    wait_until(lambda: (base / 'ran').exists() and len((base / 'ran').read_text().split()) == 7)
    waiting = [submit('dies', after=[plain.uid] if number else []) for number in range(2)]
    waiting += [submit('dies') for _ in range(3)]
    tmgr.wait_tasks([task.uid for task in waiting if task is not waiting[1]], state=rp.AGENT_SCHEDULING, timeout=40)
    agent = agent_of(ending)
    time.sleep(0.5)   # until it waits for events: stopped at work, it would see ends of tasks before its signal
    os.kill(agent, signal.SIGSTOP)   # it sees all of it at once
    for task in (*again[:4], plain):
        for pid in processes_of(task):
            with suppress(ProcessLookupError):   # its shell has ended it
                os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not processes_of(plain))
    os.kill(agent, signal.SIGTERM)
    os.kill(agent, signal.SIGCONT)
    assert plain.wait(timeout=40) == rp.FAILED
    assert (plain.attempts, plain.error and plain.error.kind) == (1, 'pilot')
    assert 'was told to end by a signal' in str(plain.exception)
    moved = [task for task in waiting if task is not waiting[1]]
    wait_until(lambda: all(task.pilot is None for task in (*again, *moved)))
    assert 'was told to end by a signal' in str(again[0].reason)
    assert str(waiting[0].reason).startswith('waits for another pilot: ')
    tmgr.add_pilots(other)
    (base / 'go').touch()
    tmgr.wait_tasks(timeout=40)
    assert [(task.state, task.pilot, task.attempts, task.losses) for task in again] == [
        (rp.DONE, other.uid, 2, 1)] * len(again)
    assert [(task.state, task.pilot, task.attempts, task.losses) for task in moved] == [
        (rp.DONE, other.uid, 1, 0)] * len(moved)
    assert waiting[1].state == rp.CANCELED   # the task that it is after has failed
    ran = Counter((base / 'ran').read_text().split())
    assert ran == {**{task.uid: 2 for task in again}, plain.uid: 1, **{task.uid: 1 for task in moved}}

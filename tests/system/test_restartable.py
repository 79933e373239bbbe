"""Tasks that may be restarted go to another pilot when theirs fails; others fail with it."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until

import radical.pilot as rp
from rp_api.failures.retry_rules import RESTARTS

pytestmark = pytest.mark.fault


class Site:
    """A session whose pilots can be killed."""

    def __init__(self, session: rp.Session, base: Path) -> None:
        self.base = base
        self.pmgr, self.tmgr = rp.PilotManager(session), rp.TaskManager(session)
        self.states: dict[str, list[str]] = {}
        self.tmgr.register_callback(lambda task, state: self.states.setdefault(task.uid, []).append(state))

    def pilot(self) -> rp.Pilot:
        """An active pilot, which gets tasks."""
        pilot: rp.Pilot = self.pmgr.submit_pilots(pilot_description(self.base, exit_on_error=False))
        self.tmgr.add_pilots(pilot)
        assert pilot.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE
        return pilot

    def submit(self, **values: object) -> rp.Task:
        """A task that runs until there is a file `go`."""
        command = f'until [ -e {self.base}/go ]; do sleep 0.02; done; echo $RP_PILOT_ID'
        return self.tmgr.submit_tasks(rp.TaskDescription({
            'executable': '/bin/sh', 'arguments': ['-c', command], 'restartable': True} | values))

    def kill(self, pilot: rp.Pilot) -> None:
        """Kill a pilot's agent, and wait until that is known."""
        (pid,) = [pid for pid, command in processes_with(pilot.pilot_sandbox).items() if 'rp_agent.cli' in command]
        os.kill(pid, signal.SIGKILL)
        assert pilot.wait(timeout=30) == rp.FAILED

    def go(self) -> None:
        """Let the tasks end."""
        (self.base / 'go').touch()


@pytest.fixture
def site(session: rp.Session, base: Path) -> Site:
    return Site(session, base)


def test_tasks_go_to_the_pilot_that_is_left(site: Site) -> None:
    """Their states do not go back, and each says how often it was given to a pilot."""
    first, second = site.pilot(), site.pilot()
    tasks = [site.submit() for _ in range(4)]
    (stays,) = [site.submit(restartable=False, pilot=first.uid)]
    site.tmgr.wait_tasks(state=rp.AGENT_EXECUTING, timeout=30)
    assert {task.attempts for task in tasks} == {1}
    lost = [task for task in tasks if task.pilot == first.uid]
    assert len(lost) == 2
    site.kill(first)
    assert stays.wait(timeout=30) == rp.FAILED
    wait_until(lambda: all(task.pilot == second.uid for task in tasks), 30)
    site.go()
    assert set(site.tmgr.wait_tasks([task.uid for task in tasks], timeout=30)) == {rp.DONE}
    assert {task.stdout for task in tasks} == {f'{second.uid}\n'}
    assert [task.attempts for task in tasks] == [2 if task in lost else 1 for task in tasks]
    assert lost[0].as_dict()['attempts'] == 2
    wait_until(lambda: all(site.states[task.uid][-1] == rp.DONE for task in tasks))
    for task in tasks:
        assert len(set(site.states[task.uid])) == len(site.states[task.uid]) == 15


def test_tasks_wait_for_another_pilot(site: Site) -> None:
    task = site.submit()
    pilot = site.pilot()
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    site.kill(pilot)
    wait_until(lambda: task.pilot is None)
    assert task.state == rp.AGENT_EXECUTING
    site.go()
    site.pilot()
    assert (task.wait(timeout=30), task.attempts) == (rp.DONE, 2)


def test_number_of_attempts_is_limited(site: Site) -> None:
    task = site.submit()
    for attempt in range(1, RESTARTS + 1):
        pilot = site.pilot()
        wait_until(partial(processes_with, f'RP_TASK_SANDBOX={pilot.pilot_sandbox}/{task.uid}'), 30)
        assert (task.pilot, task.attempts) == (pilot.uid, attempt)
        site.kill(pilot)
    assert task.wait(timeout=30) == rp.FAILED
    assert task.attempts == RESTARTS
    assert 'SIGKILL' in str(task.exception)


def test_task_without_a_pilot_left_fails(session: rp.Session, base: Path) -> None:
    """As other tasks do that wait, unless the pilot is to be replaced (`exit_on_error`)."""
    site = Site(session, base)
    pilot = site.pmgr.submit_pilots(pilot_description(base))
    site.tmgr.add_pilots(pilot)
    task = site.submit()
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    site.kill(pilot)
    assert task.wait(timeout=30) == rp.FAILED
    assert 'no pilot is left' in str(task.exception)


def test_task_that_waits_for_another_pilot_can_be_cancelled(site: Site) -> None:
    task = site.submit()
    pilot = site.pilot()
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    site.kill(pilot)
    task.cancel()
    assert task.wait(timeout=30) == rp.CANCELED


def test_cancelled_pilot_takes_its_tasks_along(site: Site) -> None:
    """Nobody has asked for them to be started again."""
    first, _ = site.pilot(), site.pilot()
    task = site.submit(pilot=first.uid)
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    first.cancel()
    assert task.wait(timeout=30) == rp.CANCELED
    assert task.attempts == 1


def test_files_are_brought_to_the_other_pilot(site: Site) -> None:
    (site.base / 'in').write_text('data')
    first, second = site.pilot(), site.pilot()
    tasks = [site.submit(input_staging=['in'], output_staging=[f'in > out.{number}']) for number in range(2)]
    site.tmgr.wait_tasks(state=rp.AGENT_EXECUTING, timeout=30)
    site.kill(first)
    site.go()
    assert set(site.tmgr.wait_tasks(timeout=30)) == {rp.DONE}
    assert {task.pilot for task in tasks} == {second.uid}
    assert [(site.base / f'out.{number}').read_text() for number in range(2)] == ['data', 'data']


def _process_of(sandbox: str, name: str) -> int:
    """The sub-agent of that name, whose output goes to a file in the sandbox; its guard comes after it."""
    found = []
    for link in Path('/proc').glob('[0-9]*/fd/[12]'):
        try:
            if os.readlink(link).startswith(f'{sandbox}/{name}.'):
                found.append(int(link.parts[2]))
        except OSError:   # it has ended, or is not ours
            continue
    return min(found)


def test_tasks_of_a_lost_executor_run_again_in_another(session: rp.Session, base: Path) -> None:
    """The process of one of two executors is killed: restartable tasks run again, others fail with the cause."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, cores=4, _config={
        'components': {'agent_executing': {'count': 2, 'target': 'process'}}}))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'restartable': number < 3, 'arguments': ['-c', (
            f'echo $RP_TASK_ID >>{base}/ran; until test -e {base}/go; do sleep 0.05; done')]})
        for number in range(4)])
    wait_until(lambda: (base / 'ran').exists() and len((base / 'ran').read_text().split()) == 4)
    os.kill(_process_of(str(pilot.pilot_sandbox).removeprefix('file://localhost'), 'agent_executing.0001'),
            signal.SIGKILL)
    wait_until(lambda: len((base / 'ran').read_text().split()) > 4)
    (base / 'go').touch()
    tmgr.wait_tasks(timeout=60)
    assert [task.state for task in tasks[:3]] == [rp.DONE] * 3
    assert tasks[3].state in (rp.DONE, rp.FAILED)
    assert pilot.state == rp.PMGR_ACTIVE

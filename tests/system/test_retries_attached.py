"""Attempts of tasks whose application or agent has gone, whatever coordinates the session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until
from reattaching import backend, server  # noqa: F401

import radical.pilot as rp

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures('backend')]

APPLICATION = """
import os
import sys
import radical.pilot as rp

session = rp.Session(uid='session')
pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
    'resource': 'local.exact', 'cores': 4, 'runtime': 10, 'sandbox': sys.argv[1],
    'exit_on_error': False})))
command = 'echo x >> ../tries; n=$(wc -l < ../tries); test -e ../../../go || exit 3; echo try $n'.replace('$', '\\\\$')
task = tmgr.submit_tasks(rp.TaskDescription({
    'executable': '/bin/sh', 'arguments': ['-c', command], 'retries': 1000, 'retry_delay': 0.1,
    'retry_with': {'environment': {'AGAIN': '1'}}}))
while len(task.history) < 2:
    pass
os._exit(9)
"""


def test_application_that_dies_between_two_attempts(base: Path) -> None:
    """The agent goes on, and the next application sees all attempts."""
    done = subprocess.run([sys.executable, '-c', APPLICATION, str(base)], timeout=50, check=False)
    assert done.returncode == 9
    with rp.Session(uid='session') as session:
        (task,) = session.get_task_managers('tmgr.0000').get_tasks()
        wait_until(lambda: len(task.history) >= 3, 30)
        assert task.state == rp.AGENT_EXECUTING
        Path(str(task.pilot_sandbox), '..', '..', 'go').touch()
        assert task.wait(timeout=30) == rp.DONE
        assert task.attempts == len(task.history) + 1 >= 4
        assert task.read_stdout() == f'try {task.attempts}\n'
        assert [each['attempt'] for each in task.history] == list(range(1, task.attempts))


def test_application_that_comes_when_the_pilot_is_lost(base: Path) -> None:
    """It gives the task to another pilot, with the attempts of the first one."""
    done = subprocess.run([sys.executable, '-c', APPLICATION, str(base)], timeout=50, check=False)
    assert done.returncode == 9
    (agent,) = [pid for pid, command in processes_with(str(base)).items() if 'rp_agent.cli' in command]
    os.kill(agent, signal.SIGKILL)
    with rp.Session(uid='session') as session:
        (task,) = session.get_task_managers('tmgr.0000').get_tasks()
        wait_until(lambda: any(each['kind'] == 'pilot' for each in task.history), 30)
        before = len(task.history)
        assert before >= 3
        assert len({tuple(each) for each in task.history}) == 1   # all have the same keys
        assert task.pilot is None
        other = session.get_pilot_managers('pmgr.0000').submit_pilots(
            pilot_description(base, exit_on_error=False))
        session.get_task_managers('tmgr.0000').add_pilots(other)
        wait_until(lambda: len(task.history) > before, 30)
        Path(other.pilot_sandbox, '..', '..', 'go').touch()
        assert task.wait(timeout=30) == rp.DONE
        assert task.attempts == len(task.history) + 1
        assert [each['attempt'] for each in task.history] == list(range(1, task.attempts))
        assert {each['pilot'] for each in task.history} == {'pilot.0000', other.uid}

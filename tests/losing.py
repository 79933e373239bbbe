"""Pilots that are declared lost while their agents are stopped, and an application that dies then.

`losing.py UID RESOURCE`, in the directory of the session: submits a pilot and a task, has the pilot declared lost, and
dies before it has ended the agent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from conftest import hub_pid, processes_with

import radical.pilot as rp

LEASE = {'heartbeat': {'timeout': 1}}
"""Settings of a session that does not wait long for agents."""


def with_a_task(session: rp.Session, resource: str) -> rp.Pilot:
    """A pilot that runs a task for a long time."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot: rp.Pilot = pmgr.submit_pilots(rp.PilotDescription({
        'resource': resource, 'cores': 2, 'runtime': 10, 'sandbox': os.getcwd()}))
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['1000']}))
    assert task.wait(rp.AGENT_EXECUTING, timeout=60) == rp.AGENT_EXECUTING, (task.exception, pilot.exception)
    return pilot


def agent_of(pilot: rp.Pilot) -> int:
    """The process id of its agent, which has no other task to start."""
    sandbox = os.fspath(pilot.pilot_sandbox).removeprefix('sftp://localhost').removeprefix('file://localhost')
    (pid,) = [pid for pid, command in processes_with(f'{sandbox}/agent_0.cfg').items() if 'rp_agent.cli' in command]
    return pid


def lose(session: rp.Session, pilot: rp.Pilot) -> int:
    """Have a pilot on this host declared lost whose agent only does not answer; gives the agent."""
    agent = agent_of(pilot)
    os.kill(agent, signal.SIGSTOP)
    os.kill(hub_pid(session), signal.SIGKILL)   # the next hub does not know whether the agent lives
    assert pilot.wait(timeout=60) == rp.FAILED
    assert 'silent' in str(pilot.exception), pilot.exception
    return agent


def lost_and_left(resource: str) -> int:
    """The agent of a pilot that was declared lost in a session whose application has died then."""
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, sys.path))}
    died = subprocess.run([sys.executable, __file__, 'session', resource], capture_output=True, text=True,
                          timeout=100, env=environment)
    assert died.returncode == -signal.SIGKILL, died.stderr
    return int(died.stdout)


def main() -> None:
    uid, resource = sys.argv[1:]
    session = rp.Session(uid=uid, cfg=LEASE)
    print(lose(session, with_a_task(session, resource)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == '__main__':
    main()

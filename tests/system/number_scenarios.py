"""Scenarios in which processes get the numbers that a test wants: run in a PID namespace of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from conftest import wait_until

import radical.pilot as rp
from rp_api.system.processes import process_table
from rp_client.flow.pilot_flow import LAST_WORD

LAST_PID = Path('/proc/sys/kernel/ns_last_pid')
COUNT = 12


def begin() -> None:
    """An application: it submits tasks that wait for a file, says so, and stays."""
    session = rp.Session(uid='session')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.exact', 'cores': 2, 'runtime': 10, 'sandbox': os.getcwd()}))
    tmgr.add_pilots(pilot)
    pilot.wait(rp.PMGR_ACTIVE, timeout=60)
    print('active', flush=True)
    sys.stdin.readline()
    tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sh', 'arguments': [
        '-c', f'until [ -e {os.getcwd()}/go ]; do sleep 0.02; done']}) for _ in range(COUNT)])
    signal.pause()


def agent_and_those_that_look_like_it() -> list[int]:
    """The numbers of the processes with the command line of the agent: those ahead of their tasks have it, too."""
    found = []
    for pid in process_table():
        try:
            if b'rp_agent.cli' in Path(f'/proc/{pid}/cmdline').read_bytes():
                found.append(pid)
        except OSError:   # it has ended
            continue
    return sorted(found)


def attach_when_numbers_were_used_up() -> None:
    """The children of the agent have lower numbers than the agent: none of them is taken for it."""
    LAST_PID.write_text('20000')
    application = subprocess.Popen([sys.executable, __file__, 'begin'], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
    assert application.stdin is not None
    assert application.stdout is not None
    assert application.stdout.readline() == 'active\n'
    agent, = agent_and_those_that_look_like_it()
    LAST_PID.write_text('400')
    application.stdin.write('\n')
    application.stdin.flush()
    wait_until(lambda: agent_and_those_that_look_like_it()[0] < agent, what='a child that is ahead of its task')
    application.kill()
    application.communicate()
    with rp.Session(uid='session') as session:
        pilot, = session.get_pilot_managers('pmgr.0000').get_pilots()
        tmgr = session.get_task_managers('tmgr.0000')
        Path('go').touch()
        assert tmgr.wait_tasks(timeout=60) == [rp.DONE] * COUNT, [task.exception for task in tmgr.get_tasks()]
        # long enough for the end of any of these children to be taken for that of the agent
        more = tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': [2 * LAST_WORD]}))
        assert (more.wait(timeout=60), pilot.state) == (rp.DONE, rp.PMGR_ACTIVE), (more.exception, pilot.exception)
    assert agent_and_those_that_look_like_it() == []


SCENARIOS = {scenario.__name__: scenario for scenario in (begin, attach_when_numbers_were_used_up)}

if __name__ == '__main__':
    SCENARIOS[sys.argv[1]]()

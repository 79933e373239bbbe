"""Ends of tasks upon which an agent has acted, although the hub did not hear of them before the agent was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until

import radical.pilot as rp
from rp_api.coordination import spool_file

pytestmark = [pytest.mark.fault, pytest.mark.disorder('agents end in the middle of their work')]


def test_ends_that_the_hub_has_not_heard_of(session: rp.Session, base: Path) -> None:
    """Each task runs as often as it says, and none runs again after a task that is after it."""
    def task(uid: str, code: int = 0, then: str = '', **description: object) -> rp.TaskDescription:
        command = f'echo {uid} >> {base}/ran; {then}until [ -e {base}/go ]; do sleep 0.02; done; exit {code}'
        return rp.TaskDescription({'uid': uid, 'executable': '/bin/sh', 'arguments': ['-c', command],
                                   'literal_arguments': True, **description})

    def ran() -> list[str]:
        return (base / 'ran').read_text().split() if (base / 'ran').exists() else []

    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, exit_on_error=False))
    tmgr.add_pilots(pilot)
    tasks = {each.uid: each for each in tmgr.submit_tasks([
        task('a', restartable=True), task('b', after={'a': 'ended'}), task('c', after=['a'], restartable=True),
        task('x', 3, retries=2, retry_delay=0.1), task('y', after={'x': 'failed'}),
        task('z', 3, f'test $(grep -cx z {base}/ran) = 1 || exec sleep 600; ', retries=1, retry_delay=0.1)])}
    wait_until(lambda: {'a', 'x'} <= set(ran()))
    (hub,) = [pid for pid, command in processes_with(str(base)).items() if 'rp_api.coordination.hub' in command]
    (agent,) = [pid for pid, command in processes_with(pilot.pilot_sandbox).items() if 'rp_agent.cli' in command]
    spool = Path(pilot.pilot_sandbox.removeprefix('file://localhost'), 'agent_0.updates')
    os.kill(hub, signal.SIGSTOP)
    try:
        (base / 'go').touch()
        wait_until(lambda: ran().count('z') == 2)
        wait_until(lambda: spool.exists() and {*'abcxy'} <= {
            update.uid for update in spool_file.read(spool).tasks if update.state in rp.FINAL
            or update.state == rp.TMGR_STAGING_OUTPUT_PENDING})
        os.kill(agent, signal.SIGKILL)
    finally:
        os.kill(hub, signal.SIGCONT)
    tmgr.wait_tasks([*'abcxy'], timeout=40)
    assert {uid: (tasks[uid].state, tasks[uid].attempts, tasks[uid].losses) for uid in 'abcxy'} == {
        uid: (rp.FAILED, 3, 0) if uid == 'x' else (rp.DONE, 1, 0) for uid in 'abcxy'}
    z = tasks['z']
    wait_until(lambda: z.pilot is None)
    assert (z.attempts, z.losses, [entry['lost'] for entry in z.history]) == (2, 1, [None, 'death'])
    assert sorted(ran()) == [*'abc', *'xxx', 'y', *'zz']

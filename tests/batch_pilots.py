"""Pilots on batch systems: a platform of their own for a test, and sessions on it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_until

import radical.pilot as rp

FINAL = (rp.DONE, rp.FAILED, rp.CANCELED)


def platform(base: Path, endpoint: str, manager: str, **fields: Any) -> dict[str, str]:
    """Define the platform `test.machine`, whose sandboxes are below `base`; gives the environment that knows it."""
    files = fields.pop('filesystem_endpoint', 'file://localhost/')
    known = {'schemas': {'batch': {'job_manager_endpoint': endpoint, 'filesystem_endpoint': files}},
             'default_schema': 'batch', 'default_queue': 'debug', 'resource_manager': manager, 'cores_per_node': 8,
             'gpus_per_node': 0, 'default_remote_workdir': str(base / 'work'),
             'launch_methods': {'order': ['FORK'], 'FORK': {}}}
    directory = base / '.radical' / 'pilot' / 'configs'
    directory.mkdir(parents=True, exist_ok=True)
    (directory / 'resource_test.json').write_text(json.dumps({'machine': known | fields}))
    return {'RADICAL_CONFIG_USER_DIR': str(base), 'RADICAL_BASE': str(base)}


def use(environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process, and what it starts, in an environment."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


class Managers:
    """The managers of a session."""

    def __init__(self, session: rp.Session) -> None:
        self.session = session
        self.pmgr = rp.PilotManager(session=session)
        self.tmgr = rp.TaskManager(session=session)

    def submitted(self, **description: Any) -> rp.Pilot:
        """A pilot on `test.machine` that was just submitted."""
        known = {'resource': 'test.machine', 'cores': 8, 'runtime': 10}
        pilot: rp.Pilot = self.pmgr.submit_pilots(rp.PilotDescription(known | description))
        return pilot

    def active(self, **description: Any) -> rp.Pilot:
        """A pilot that is active, and gets the tasks of the task manager."""
        pilot = self.submitted(**description)
        self.tmgr.add_pilots(pilot)
        pilot.wait([rp.PMGR_ACTIVE, *FINAL], timeout=40)
        assert pilot.state == rp.PMGR_ACTIVE, (pilot.state, pilot.exception, pilot.exception_detail)
        return pilot

    def failed(self, pilot: rp.Pilot) -> str:
        """What a pilot says that has failed."""
        pilot.wait(FINAL, timeout=40)
        assert pilot.state == rp.FAILED, pilot.state
        return f'{pilot.exception} {pilot.exception_detail}'

    def outputs(self, count: int, script: str, **description: Any) -> list[str]:
        """What tasks print that run a shell script."""
        known = {'executable': '/bin/sh', 'arguments': ['-c', script]}
        tasks = self.tmgr.submit_tasks([rp.TaskDescription(known | description) for _ in range(count)])
        self.tmgr.wait_tasks(timeout=40)
        assert {task.state for task in tasks} == {rp.DONE}, [(task.exception, task.stderr) for task in tasks]
        return [task.stdout.strip() for task in tasks]


def sandbox(pilot: rp.Pilot) -> Path:
    """The directory of a pilot on this machine."""
    return Path(os.fspath(pilot.pilot_sandbox).partition('://localhost')[2] or os.fspath(pilot.pilot_sandbox))


def runs(script: Path) -> list[str]:
    """The tasks that have begun, each time they did."""
    return script.read_text().splitlines() if script.exists() else []


def marking(base: Path, then: str, **description: object) -> rp.TaskDescription:
    """A task that leaves a mark each time it runs."""
    return rp.TaskDescription({'executable': '/bin/sh', 'arguments': [
        '-c', f'echo $RP_TASK_ID >>{base}/ran; {then}'], **description})


ANSWERS = {
    'none': 'exec sleep 600',
    'exit 9': "trap 'exit 9' TERM; sleep 600 & wait",
    'exit 0': "trap 'exit 0' TERM; sleep 600 & wait",
    'ignored': "trap '' TERM; exec sleep 600"}
"""What programs do when the batch system ends their job."""


def ends_beside_an_idle_pilot(managers: Managers, base: Path, end: Callable[[rp.Pilot], object],
                              first: Mapping[str, object], second: Mapping[str, object]) -> None:
    """Check that the job of a pilot of eight cores, which `end` ends, costs its tasks nothing but a run.

    Whatever programs answer to the signal, and if the agent is killed before they have ended.
    """
    loser = managers.active(exit_on_error=False, **first)
    again = [task for then in ANSWERS.values() for task in managers.tmgr.submit_tasks([
        marking(base, f'test $(grep -cx $RP_TASK_ID {base}/ran) = 2 && exit; {then}', literal_arguments=True, **option)
        for option in ({'restartable': True}, {'retries': 1})])]
    wait_until(lambda: len(runs(base / 'ran')) == len(again))
    waiting = managers.tmgr.submit_tasks([marking(base, ':') for _ in range(4)])
    other = managers.active(exit_on_error=False, **second)
    end(loser)
    managers.tmgr.wait_tasks(timeout=60)
    assert {(task.state, task.pilot, task.attempts, task.losses) for task in again} == {(rp.DONE, other.uid, 2, 1)}
    assert [(task.state, task.pilot, task.attempts) for task in waiting] == [(rp.DONE, other.uid, 1)] * 4
    assert sorted(runs(base / 'ran')) == sorted(task.uid for task in [*again, *again, *waiting])
    loser.wait(FINAL, timeout=40)
    assert loser.state == rp.FAILED

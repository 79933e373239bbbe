"""Signals that warn a job (`sbatch --signal=USR1@60`, `scancel -s`) end none of our processes; some tasks get them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until

import radical.pilot as rp
from rp_api.system.signals import WARNINGS

OURS = re.compile(r'rp_agent|rp_api\.coordination\.hub|rp_raptor|bootstrap_|rp-guard')

SCRIPT = """
for name in HUP USR1 USR2 ALRM XCPU; do trap "echo $name" $name; done
touch begun
until [ -e {base}/go ]; do sleep 0.02; done
"""


def warn(base: Path) -> set[str]:
    """Send all warnings to all processes of ours, and return which of our programs there were."""
    found = {pid: command for pid, command in processes_with(str(base)).items() if OURS.search(command)}
    for number in sorted(WARNINGS):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    return {OURS.findall(command)[0] for command in found.values()}


@pytest.mark.fault
@pytest.mark.parametrize('form', ['with a master', 'with partitions'])
def test_warnings(session: rp.Session, base: Path, form: str) -> None:
    values = {'partitions': 2} if form == 'with partitions' else {}
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, cores=5, **values))
    tmgr.add_pilots(pilot)
    wants, other = tmgr.submit_tasks([
        rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', SCRIPT.format(base=base)],
                            'literal_arguments': True, 'forward_signals': signals, 'pre_exec': ['true']})
        for signals in (['USR1', 'SIGXCPU'], [])])
    workers = []
    if form == 'with a master':
        (master,) = tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
        workers = master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 1}))
        tmgr.wait_tasks([workers[0].uid], state=rp.AGENT_EXECUTING, timeout=60)
        (call,) = master.submit_tasks([rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '1 + 1'})])
        assert call.wait(timeout=60) == rp.DONE
    boxes = [Path(str(task.wait(rp.AGENT_EXECUTING, timeout=60) and task.sandbox).removeprefix('file://localhost'))
             for task in (wants, other)]
    wait_until(lambda: all((box / 'begun').exists() for box in boxes))
    assert {'rp_agent', 'rp_api.coordination.hub'} <= warn(base)
    said = boxes[0] / f'{wants.uid}.out'
    wait_until(lambda: said.exists() and sorted(said.read_text().split()) == ['USR1', 'XCPU'])
    if workers:
        (call,) = master.submit_tasks([rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '2 + 2'})])
        assert (call.wait(timeout=60), call.return_value) == (rp.DONE, 4)
        assert workers[0].state == rp.AGENT_EXECUTING
    (base / 'go').touch()
    assert tmgr.wait_tasks([wants.uid, other.uid], timeout=60) == [rp.DONE, rp.DONE]
    assert (sorted(wants.stdout.split()), other.stdout) == (['USR1', 'XCPU'], '')
    (after,) = tmgr.submit_tasks([rp.TaskDescription({'executable': 'true'})])
    assert (after.wait(timeout=60), pilot.state) == (rp.DONE, rp.PMGR_ACTIVE)

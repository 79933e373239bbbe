"""A RAPTOR worker in a container runs calls there, with the Python of the agent."""

from __future__ import annotations

import sys
from pathlib import Path

from conftest import Run

import radical.pilot as rp

TIMEOUT = 45.0


def test_a_worker_runs_calls_in_its_container(run: Run, image: Path) -> None:
    container = {'image': str(image), 'tool': 'charliecloud', 'binds': ['/usr/lib', '/usr/lib64']}
    master, = run.pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    worker, = master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 2, 'container': container}))
    tasks = master.submit_tasks([
        rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': 'open("/etc/of-the-image").read()'}),
        rp.TaskDescription({'mode': rp.TASK_SHELL, 'command': 'cat /etc/of-the-image; test ! -e /etc/debian_version'}),
        rp.TaskDescription({'mode': rp.TASK_EVAL, 'code': '__import__("sys").executable'})])
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=TIMEOUT)
    evaluated, shell, python = tasks
    assert [task.state for task in tasks] == [rp.DONE] * 3, (worker.stderr, [task.exception_detail for task in tasks])
    assert evaluated.return_value == 'of the image\n'
    assert shell.stdout == 'of the image\n'
    assert python.return_value == sys.executable

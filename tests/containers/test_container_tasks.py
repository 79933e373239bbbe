"""Tasks in containers of Charliecloud and Podman, on a real pilot."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, processes_of, processes_with, wait_until

import radical.pilot as rp

from .conftest import records

TIMEOUT = 30.0

pytestmark = pytest.mark.parametrize('tool', ['charliecloud', 'podman'])


def sh(command: str, image: Path, tool: str, **container: Any) -> dict[str, Any]:
    """The attributes of a task that runs a shell command in a container."""
    return {'executable': '/bin/sh', 'arguments': ['-c', command],
            'container': {'image': str(image), 'tool': tool, **container}}


def test_the_program_sees_the_image_its_sandbox_and_its_variables(shared: Run, image: Path, tool: str,
                                                                  tmp_path: Path) -> None:
    (tmp_path / 'data').write_text('of the node\n')
    before = records()
    command = (r'cat /etc/of-the-image /data; pwd; echo \$A \$RP_RANK; echo oops >&2; echo done > result; '
               r'test ! -e /etc/debian_version')
    task = shared.one(**sh(command, image, tool, binds=[f'{tmp_path}/data:/data']), environment={'A': 'b $HOME'},
                      pre_exec=['test -e /etc/debian_version && echo outside'])
    assert task.state == rp.DONE, (task.exception_detail, task.stderr)
    sandbox = Path(str(task.sandbox))
    assert (task.stdout or '').splitlines() == ['outside', 'of the image', 'of the node', str(sandbox),
                                                f'b {Path.home()} 0']
    assert task.stderr == 'oops\n'
    assert (sandbox / 'result').read_text() == 'done\n'
    wait_until(lambda: records().keys() <= before.keys(), what='no record is left')


@pytest.mark.long
def test_an_environment_of_type_container(shared: Run, image: Path, tool: str) -> None:
    shared.pilot.prepare_env(tool, {'type': 'container', 'container': {'image': str(image), 'tool': tool}})
    task = shared.one(executable='cat', arguments=['/etc/of-the-image'], named_env=tool)
    assert (task.state, task.stdout) == (rp.DONE, 'of the image\n'), (task.exception_detail, task.stderr)


def test_literal_arguments(shared: Run, image: Path, tool: str) -> None:
    task = shared.one(**sh('test -z "$NO_SUCH" && for i in $(ls -d /etc); do echo "$i $RP_RANK"; done', image, tool),
                      literal_arguments=True, environment={'A': 'b'})
    assert (task.state, task.stdout) == (rp.DONE, '/etc 0\n'), (task.exception_detail, task.stderr)


@pytest.mark.long
def test_ranks_and_exit_codes(shared: Run, image: Path, tool: str) -> None:
    task = shared.one(**sh(r'exit \$((RP_RANK * 7))', image, tool), ranks=2, use_mpi=False)
    assert (task.state, task.exit_code) == (rp.FAILED, 7), task.stderr


def test_a_cancelled_program_gets_the_signal(shared: Run, image: Path, tool: str) -> None:
    command = r"trap 'echo told > told; exit' TERM; echo > started; while :; do sleep 0.1; done"
    task = shared.tmgr.submit_tasks(rp.TaskDescription(sh(command, image, tool)))
    sandbox = Path(str(task.sandbox))
    wait_until((sandbox / 'started').exists)
    task.cancel()
    task.wait(timeout=TIMEOUT)
    assert task.state == rp.CANCELED
    assert (sandbox / 'told').read_text() == 'told\n'
    wait_until(lambda: not processes_with(str(image)) and not processes_of(task), what='nothing is left')


def test_nothing_survives_the_death_of_the_agent(run: Run, image: Path, tool: str) -> None:
    command = r"trap '' TERM HUP; echo > started; while :; do sleep 0.1; done"
    task = run.tmgr.submit_tasks(rp.TaskDescription(sh(command, image, tool)))
    wait_until((Path(str(task.sandbox)) / 'started').exists)
    agent, = [pid for pid, line in processes_with(str(run.pilot.pilot_sandbox)).items() if 'rp_agent' in line]
    os.kill(agent, signal.SIGKILL)
    run.pilot.wait(rp.FAILED, timeout=TIMEOUT)
    wait_until(lambda: not processes_with(str(image)), what='nothing is left')


def test_a_missing_image_is_named(shared: Run, tool: str, tmp_path: Path) -> None:
    task = shared.one(executable='/bin/true', container={'image': f'{tmp_path}/none', 'tool': tool})
    assert task.state == rp.FAILED
    assert f'the image of the container does not exist: {tmp_path}/none' in f'{task.exception} {task.exception_detail}'

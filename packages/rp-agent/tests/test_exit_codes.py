"""The exit code of a task does not depend on the executor that runs it, nor on commands before it."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from executor_support import Harness, sh

from rp_agent.executor.backends.flux.executor import FluxKind
from rp_agent.executor.backends.flux.instance import FluxLauncher
from rp_agent.executor.backends.jobs import JobExecutor
from rp_agent.executor.backends.launcher import InstanceNode
from rp_agent.executor.launching.outcome import code_of
from rp_agent.executor.popen.component import Executor
from rp_agent.executor.shell.component import ShellExecutor
from rp_api import states

STAND_IN = Path(__file__).with_name('flux_stand_in')

ENDS = {'exit 0': 0, 'exit 3': 3, 'exit 127': 127, 'exit 255': 255, 'kill -SEGV $$': -signal.SIGSEGV,
        'kill -TERM $$': -signal.SIGTERM, 'kill -KILL $$': -signal.SIGKILL, 'kill -ABRT $$': -signal.SIGABRT}


def flux(uid: str, tracer: Any, loop: Any, context: Any) -> JobExecutor:
    return JobExecutor(uid, tracer, loop, context, FluxKind(FluxLauncher()), (range(1),),
                           [InstanceNode('localhost', 4)])


@pytest.fixture(params=[Executor, ShellExecutor, flux], ids=['POPEN', 'SHELL', 'FLUX'])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    with tempfile.TemporaryDirectory() as brokers:   # a short name, for sockets
        made = Harness(tmp_path, request.param, PATH=f'{STAND_IN}:{os.environ["PATH"]}', TMPDIR=brokers)
        yield made
        made.close()


@pytest.mark.parametrize('description', [{}, {'pre_exec': ['true']}], ids=['plain', 'script'])
def test_ends(harness: Harness, description: dict[str, Any]) -> None:
    tasks = {command: harness.task(f'task.{number}', **sh('ulimit -c 0; ' + command.replace('$', r'\$')), **description)
             for number, command in enumerate(ENDS)}
    harness.run(*tasks.values())
    assert {command: task.exit_code for command, task in tasks.items()} == ENDS
    for command, task in tasks.items():
        code = ENDS[command]
        assert task.target_state == (states.FAILED if code else states.DONE)
        assert (task.error or {}).get('signal') == (-code if code < 0 else None), command


@pytest.mark.parametrize(('code', 'shell', 'told'), [
    (0, True, 0), (3, True, 3), (128, True, 128), (129, True, -1), (139, True, -11), (143, True, -15), (255, True, 255),
    (139, False, 139), (-11, False, -11), (-11, True, -11)])
def test_codes_of_shells(code: int, shell: bool, told: int) -> None:
    assert code_of(code, shell=shell) == told

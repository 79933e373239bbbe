"""Tasks that a launcher starts, where the executor SHELL starts the launcher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from executor_support import Harness, sh
from launcher_support import launchers, lines

from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.shell import ShellExecutor
from rp_agent.task import LAUNCH_INFO
from rp_api import states
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with launchers(tmp_path) as make:

        def executor(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, *_: Any) -> ShellExecutor:
            return ShellExecutor(uid, tracer, loop, context._replace(launchers=make(loop)), grace=1.0)

        made = Harness(tmp_path, executor)
        yield made
        made.close()


def test_launched_tasks_and_others(harness: Harness) -> None:
    done = harness.task('done', ranks=3, **sh(r'echo \$RP_RANK'))
    scripted = harness.task('scripted', ranks=2, pre_launch=['true'], **sh('true'))
    fails = harness.task('fails', ranks=3, **sh(r'test \$RP_RANK != 1 || exit 7'))
    slow = harness.task('slow', ranks=2, timeout=0.3, **sh('sleep 1000'))
    plain = harness.task('plain')
    harness.run(done, scripted, fails, slow, plain)
    assert sorted(lines(done, 'done.out')) == ['0', '1', '2']
    assert [task.target_state for task in (done, scripted, fails, slow, plain)] == [
        states.DONE, states.DONE, states.FAILED, states.CANCELED, states.DONE], fails.exception_detail
    assert fails.exit_code == 7
    assert (fails.exception_detail or '').startswith('exit code: 7 of rank 1; launched by `')
    assert done.extra[LAUNCH_INFO]['launch_method'] == 'MPIEXEC'

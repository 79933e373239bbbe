"""The executor DRAGON, with a program on PATH that answers as Dragon does, or the one that TEST_DRAGON names.

What it has in common with the others is in test_executor_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from backend_support import REAL_DRAGON, backends
from backend_support import DragonHarness as Harness
from executor_support import sh, text

from rp_api import states


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    with backends(Harness, tmp_path) as made:
        yield made


def test_tasks(make: Callable[..., Harness], tmp_path: Path) -> None:
    harness = make()
    task = harness.task('task', **sh('echo $RP_RANK of $RP_RANKS in $(pwd); echo no >&2; echo $FOO'),
                        environment={'FOO': 'bar'}, pre_exec=['echo before'])
    mpi = harness.task('mpi', ranks=2)
    harness.run(task, mpi)
    assert (task.target_state, task.exit_code) == (states.DONE, 0), task.exception_detail
    assert text(task, 'task.out').splitlines() == ['before', f'0 of 1 in {task.sandbox}', 'bar']
    assert text(task, 'task.err') == 'no\n'
    assert 'use_mpi=False' in str(mpi.exception_detail)
    assert not list(Path(harness.context.pilot_sandbox).glob('dragon.*')), 'keys are left'
    harness.stop()
    assert not harness.instances()


@pytest.mark.skipif(bool(REAL_DRAGON), reason='the real one works')
def test_no_dragon(make: Callable[..., Harness]) -> None:
    harness = make(DRAGON_STAND_IN_FAILS='yes')
    task = harness.run_one()
    assert task.target_state == states.FAILED
    assert 'no active job allocations were found' in str(task.exception_detail)

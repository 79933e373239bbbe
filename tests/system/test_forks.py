"""Forks of an application: what they may do with its session, and that it does not notice them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import radical.pilot as rp

FORKER = Path(__file__).with_name('forker.py')


def result(case: str) -> Any:
    """What came of a case; a fork of a process with threads is no reason for a warning here."""
    done = subprocess.run([sys.executable, '-W', 'ignore::DeprecationWarning', FORKER, case], capture_output=True,
                          text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_whatever_acts_is_refused_in_a_fork(base: Path) -> None:
    """And nothing of it happens; what is known can be read."""
    not_refused, seen, tasks, state = result('refused')
    assert not_refused == {}
    assert seen == [rp.DONE, 'x\n', ['task.000000', 'master'], False]
    assert tasks == ['task.000000', 'master']
    assert state == rp.DONE


def test_what_a_fork_closes_stays_open_here(base: Path) -> None:
    ended, state, closed = result('closes')
    assert ended == [None] * 6
    assert (state, closed) == (rp.DONE, False)


def test_a_fork_does_not_wait_for_locks_of_threads_that_it_has_not(base: Path) -> None:
    assert result('locked') == [True, rp.DONE]


@pytest.mark.parametrize(('case', 'expected'), [
    ('own_session', [True, rp.DONE]), ('pool_inside', [40425, [rp.DONE]]), ('pool_of_sessions', [True] * 4),
    ('in_callback', [rp.DONE, rp.DONE])])
def test_forks_with_work_of_their_own(base: Path, case: str, expected: Any) -> None:
    assert result(case) == expected

"""An application is killed while it opens a session, whatever coordinates it: the next one gets the session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from reattaching import backend, server  # noqa: F401

OPENER = Path(__file__).with_name('opener.py')

KILLS = 10

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures('backend')]


def opened(uid: str, call: int = 0) -> tuple[int, list[str]]:
    """Run an application until the session is open, or it is killed with that call; exit code, and what it says."""
    done = subprocess.run([sys.executable, OPENER, uid, str(call)], stdout=subprocess.PIPE, text=True, timeout=200)
    return done.returncode, done.stdout.split()


def test_session_is_had_after_an_application_that_was_killed_at_any_moment(base: Path) -> None:
    code, (_, calls, attached) = opened('first')
    assert (code, attached) == (0, 'False')
    for number in range(1, KILLS + 1):
        uid = f'killed.{number}'
        code, _ = opened(uid, int(calls) * number // (KILLS + 1))
        assert code == -9
        code, said = opened(uid)
        assert (code, said[0]) == (0, 'go'), f'after call {number} of {KILLS} parts'

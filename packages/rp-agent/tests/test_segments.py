"""Segments of shared memory that killed processes have left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from leftovers import must_end

from rp_agent.executor.backends import instance_supervisor

OURS = {'RP_INSTANCE': 'session.1'}


@pytest.fixture
def segment() -> Iterator[Path]:
    path = instance_supervisor.SHARED_MEMORY / f'rptest.{os.getpid()}'
    path.touch()
    yield path
    path.unlink(missing_ok=True)


def remove(segment: Path, since: float = 0.0) -> bool:
    """Whether it is removed."""
    instance_supervisor.remove_unused_segments('rptest.', since, OURS)
    return not segment.exists()


@pytest.mark.parametrize(('environment', 'removed'), [(OURS, True), ({}, False), ({'RP_INSTANCE': 'other'}, False)])
def test_segments_in_use(segment: Path, environment: dict[str, str], removed: bool) -> None:
    with open(segment) as opened, subprocess.Popen(['/bin/sleep', '1000'], env=environment, stdin=opened) as user:
        opened.close()
        try:
            assert remove(segment) is removed
        finally:
            user.kill()
    must_end([user.pid])


def test_earlier_segments(segment: Path) -> None:
    assert not remove(segment, segment.stat().st_ctime + 1)
    assert remove(segment)


def test_process_that_ends(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no environment, and may still have descriptors."""
    with subprocess.Popen(['/bin/true'], env=OURS) as user:
        os.waitid(os.P_PID, user.pid, os.WEXITED | os.WNOWAIT)
        monkeypatch.setattr(instance_supervisor, '_open', lambda pid: [str(segment)] if pid == user.pid else [])
        assert remove(segment)

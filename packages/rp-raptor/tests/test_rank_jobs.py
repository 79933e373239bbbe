"""MPI jobs of ranks whose launchers do not do as they should; the launchers are shell scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from leftovers import open_descriptors

from rp_api.loop.event_loop import Loop
from rp_raptor.wire.parts import Part
from rp_raptor.worker import job as ranks
from rp_raptor.worker import job_process
from rp_raptor.worker.job import Job
from rp_raptor.worker.job_process import JobCommand
from rp_raptor.worker.rank_processes import STARTS

DEADLINE = 60.0


class Jobs:
    """A job of two ranks, and what its owner is told."""

    def __init__(self, path: Path, text: str) -> None:
        self.loop = Loop()
        self.told: list[tuple[list[int], list[int], str]] = []
        self.failed: list[str] = []
        ends = str(path / 'ends')   # the launcher is a shell script that is given the path for the ends of ranks
        command = JobCommand(['/bin/sh', '-c', text, 'launcher', ends], dict(os.environ), ends)
        self.job = Job(self.loop, Part.whole(2), command, self._tell, self._gone, self._failed)

    def run(self) -> None:
        """Until the job was given up."""
        deadline = self.loop.call_later(DEADLINE, self.loop.stop)
        self.job.start()
        self.loop.run()
        deadline.cancel()
        assert self.failed, self.told

    def _tell(self, part: int, message: list[object]) -> None:
        raise AssertionError(f'{message} to part {part}: there is one part only')

    def _gone(self, guilty: Sequence[int], others: Sequence[int], reason: str, numbers: Sequence[int]) -> bool:
        self.told.append((list(guilty), list(others), reason))
        return False

    def _failed(self, reason: str) -> None:
        self.failed.append(reason)
        self.loop.stop()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Jobs]]:
    before = open_descriptors()
    monkeypatch.setattr(ranks, '_CHECK_INTERVAL_S', 0.01)
    monkeypatch.setattr(job_process, 'EXIT', 0.5)
    made: list[Jobs] = []

    def jobs(text: str) -> Jobs:
        made.append(Jobs(tmp_path, text))
        return made[-1]

    yield jobs
    for each in made:
        each.job.close()
        each.loop.close()
    assert open_descriptors() <= before


@pytest.mark.parametrize('deaf', ['', "trap '' TERM; "], ids=['ends when it is told to', 'has to be killed'])
def test_a_launcher_that_goes_on_without_a_dead_rank(make: Callable[[str], Jobs], tmp_path: Path, deaf: str) -> None:
    jobs = make(f'{deaf}echo $$ >>"$1".pids; echo 1 137 >"$1"; exec sleep 1000')
    jobs.run()
    assert jobs.told == [([1], [0], 'rank 1 was killed by SIGKILL')] * STARTS
    assert jobs.failed == ['rank 1 was killed by SIGKILL, 3 times before it has taken a call']
    pids = (tmp_path / 'ends.pids').read_text().split()
    assert len(pids) == STARTS
    assert not [pid for pid in pids if os.path.exists(f'/proc/{pid}')]


def test_a_launcher_that_starts_nothing(make: Callable[[str], Jobs]) -> None:
    jobs = make('exit 3')
    jobs.run()
    assert jobs.told == [([0, 1], [], 'the MPI job ended with exit code 3')] * STARTS

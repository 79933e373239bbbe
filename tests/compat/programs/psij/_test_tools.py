"""Stand-in for a module that PSI/J's source distribution lacks: what its tests share."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO

from executor_test_params import ExecutorTestParams
from psij import Job, JobAttributes, JobExecutor, JobExecutorConfig, JobState, JobStatus

PLACE = Path.home() / '.psij' / 'test'


def _make_test_dir() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)


def _get_timeout(execparams: ExecutorTestParams) -> timedelta:
    return timedelta(seconds=60)


def _get_executor_instance(execparams: ExecutorTestParams, job: Job | None = None) -> JobExecutor:
    if job is not None and job.spec is not None:
        job.spec.launcher, job.spec.attributes = execparams.launcher, JobAttributes()
    return JobExecutor.get_instance(execparams.executor, config=JobExecutorConfig())


def assert_completed(job: Job, status: JobStatus | None, attached: bool = False) -> None:
    assert status is not None
    assert status.state == JobState.COMPLETED, status


@contextmanager
def _tempfile() -> Iterator[IO[str]]:
    _make_test_dir()
    with tempfile.NamedTemporaryFile('w', dir=PLACE) as file:
        yield file


@contextmanager
def _temppath() -> Iterator[Path]:
    _make_test_dir()
    descriptor, path = tempfile.mkstemp(dir=PLACE)
    os.close(descriptor)
    yield Path(path)
    Path(path).unlink(missing_ok=True)


@contextmanager
def _tempdir(keep: bool = False) -> Iterator[Path]:
    _make_test_dir()
    with tempfile.TemporaryDirectory(dir=PLACE) as path:
        yield Path(path)

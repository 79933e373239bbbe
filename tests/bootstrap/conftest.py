"""Jobs, run by each kind of shell that may be /bin/sh somewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bootstrap.jobs_of_pilots import Job, environment, our_packages

USUAL = {'dash': ['dash'], 'bash': ['bash', '--posix']}
RARE = {'ksh': ['ksh'], 'busybox': ['busybox', 'sh']}


@pytest.fixture(params=USUAL)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    """A job that has not been run."""
    with _job(tmp_path, USUAL[request.param]) as job:
        yield job


@pytest.fixture(params=RARE)
def rare_job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    """The same with other shells."""
    if not shutil.which(RARE[request.param][0]):
        (pytest.fail if 'CI' in os.environ else pytest.skip)(f'not installed: {request.param}')
    with _job(tmp_path, RARE[request.param]) as job:
        yield job


@contextmanager
def _job(base: Path, words: list[str]) -> Iterator[Job]:
    shell = shutil.which(words[0])
    assert shell is not None
    job = Job(base, [shell, *words[1:]])
    yield job
    job.kill()


@pytest.fixture(scope='session')
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the real agent."""
    return environment(tmp_path_factory.mktemp('installed') / 've', our_packages())


@pytest.fixture(scope='session')
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing in it."""
    return environment(tmp_path_factory.mktemp('empty') / 've', [])

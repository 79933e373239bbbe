"""Libraries that compute on executors: joblib, scikit-learn and Dask, on a real pilot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from conftest import Run

import radical.pilot as rp


def library(name: str) -> Any:
    if 'CI' in os.environ:   # there it is installed
        return import_module(name)
    return pytest.importorskip(name, reason=f'{name} is not installed')


@pytest.fixture
def ex(shared: Run) -> Iterator[rp.Executor]:
    with rp.Executor(pilot=shared.pilot) as executor:
        yield executor


def test_joblib(ex: rp.Executor) -> None:
    joblib = library('joblib')
    jobs = [joblib.delayed(lambda n: n ** 2)(n) for n in range(100)]
    with joblib.parallel_config(backend=ex.joblib_backend()):
        assert joblib.Parallel()(jobs) == [n ** 2 for n in range(100)]
        assert joblib.parallel.effective_n_jobs(-1) == 4
        assert joblib.parallel.effective_n_jobs(-2) == 3
        assert list(joblib.Parallel(n_jobs=2, return_as='generator')(jobs)) == [n ** 2 for n in range(100)]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel(n_jobs=2)(joblib.delayed(lambda n: 1 / n)(n - 5) for n in range(100))
        assert joblib.Parallel(n_jobs=2)(jobs[:3]) == [0, 1, 4]
        with pytest.raises(ValueError, match='n_jobs is 0'):
            joblib.parallel.effective_n_jobs(0)


def test_jobs_run_on_the_pilot(ex: rp.Executor) -> None:
    joblib = library('joblib')
    with joblib.parallel_config(backend=ex.joblib_backend()):
        pids = joblib.Parallel(n_jobs=4)(joblib.delayed(lambda: os.getpid())() for _ in range(8))
    assert os.getpid() not in pids


@pytest.mark.long
def test_scikit_learn(ex: rp.Executor) -> None:
    joblib, selection = library('joblib'), library('sklearn.model_selection')
    points, kinds = library('sklearn.datasets').make_classification(120, random_state=1)
    search = selection.GridSearchCV(library('sklearn.svm').SVC(), {'C': [1, 2]}, cv=2, n_jobs=-1)
    here = selection.GridSearchCV(library('sklearn.svm').SVC(), {'C': [1, 2]}, cv=2).fit(points, kinds)
    with joblib.parallel_config(backend=ex.joblib_backend()):
        there = search.fit(points, kinds)
    assert there.best_params_ == here.best_params_
    assert list(there.cv_results_['mean_test_score']) == list(here.cv_results_['mean_test_score'])


@pytest.mark.long
def test_dask(ex: rp.Executor) -> None:
    dask, array = library('dask'), library('dask.array')
    increment = dask.delayed(lambda n: n + 1)
    assert dask.compute(sum(increment(n) for n in range(20)), scheduler=ex) == (210,)
    assert array.ones((200, 200), chunks=(50, 50)).sum().compute(scheduler=ex) == 40_000
    with pytest.raises(ZeroDivisionError):
        dask.delayed(lambda n: 1 / n)(0).compute(scheduler=ex)

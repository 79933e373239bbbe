"""How long a pilot has, and what a signal means for it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from rp_agent import lifetime
from rp_agent.lifetime import Lifetime


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job began 20 seconds ago, and time stands still."""
    monkeypatch.setattr(lifetime, '_age', lambda pid: 20.0)
    monkeypatch.setattr(lifetime, 'time', SimpleNamespace(monotonic=lambda: 1000.0))


def a_pilot(minutes: int, **platform: Any) -> Lifetime:
    return Lifetime({'runtime': minutes, 'platform': platform})


@pytest.mark.parametrize(('minutes', 'left'), [(10, 600 - 20 - 15), (1, 60 - 20 - 6), (60, 3600 - 20 - 15)])
def test_in_a_job_an_agent_ends_before_the_batch_system_ends_it(minutes: int, left: float) -> None:
    assert a_pilot(minutes, resource_manager='SLURM').left == pytest.approx(left)


def test_without_a_batch_system_nobody_else_ends_it() -> None:
    assert a_pilot(10, resource_manager='FORK').left == a_pilot(10).left == 600


def test_a_job_that_is_older_than_its_runtime() -> None:
    assert a_pilot(0, resource_manager='SLURM').left == 1


def test_a_signal() -> None:
    assert a_pilot(10).told_to_end() == ('CANCELED', 'was told to end by a signal')
    assert a_pilot(1, resource_manager='SLURM').told_to_end() == ('DONE', 'reached its runtime of 1 minutes')
    state, reason = a_pilot(10, resource_manager='SLURM').told_to_end()
    assert state == 'FAILED'
    assert reason == 'was told to end by a signal, before its runtime was over'


def test_a_job_is_as_old_as_its_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of a job of Flux is that of its broker, and as old as the machine is up."""
    monkeypatch.setattr(os, 'getsid', lambda pid: 1)
    monkeypatch.setattr(os, 'getpgrp', lambda: 2)
    monkeypatch.setattr(lifetime, '_age', {1: 1e6, 2: 20.0}.__getitem__)
    assert a_pilot(10, resource_manager='FLUX').left == 600 - 20 - 15

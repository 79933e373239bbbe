"""Launch models: exact times for given times, with seeds."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rp_agent.executor.simulated import launch_model
from rp_api.errors import PlatformError


def times(options: dict[str, Any], *launched: float, ranks: int = 1) -> list[float]:
    """When tasks run that are launched at these times."""
    model = launch_model(options)
    return [model.runs_at(now, ranks) for now in launched]


def test_without_a_description_tasks_run_at_once() -> None:
    assert times({}, 1.0, 1.0, 2.5) == [1.0, 1.0, 2.5]


def test_constant_latencies_overlap() -> None:
    assert times({'distribution': 'constant', 'seconds': 0.5}, 1, 1, 1.25) == [1.5, 1.5, 1.75]


def test_a_rate_makes_tasks_wait_for_each_other() -> None:
    assert times({'rate': 4}, 0, 0, 0, 10, 10) == [0, 0.25, 0.5, 10, 10.25]


def test_a_rate_and_a_latency() -> None:
    """The second task does not wait for the first one to run, only for it to be taken."""
    assert times({'seconds': 3, 'rate': 2}, 0, 0, 0) == [3.0, 3.5, 4.0]


def test_normal() -> None:
    random = Random(7)
    expected = [max(0.0, random.normalvariate(0.1, 0.1)) for _ in range(50)]
    assert times({'distribution': 'normal', 'mean': 0.1, 'deviation': 0.1, 'seed': 7}, *[0.0] * 50) == expected
    assert 0.0 in expected


def test_lognormal() -> None:
    random = Random(3)
    expected = [0.1 * random.lognormvariate(0, 0.5) for _ in range(50)]
    assert times({'distribution': 'lognormal', 'median': 0.1, 'sigma': 0.5, 'seed': 3}, *[0.0] * 50) == expected


def test_no_spread_is_a_constant() -> None:
    assert times({'distribution': 'lognormal', 'median': 0.25, 'sigma': 0}, 1.0) == [1.25]
    assert times({'distribution': 'normal', 'mean': 0.25, 'deviation': 0}, 1.0) == [1.25]


@pytest.mark.parametrize('distribution', [{'distribution': 'normal', 'mean': 1, 'deviation': 1},
                                          {'distribution': 'lognormal', 'median': 1, 'sigma': 1}])
def test_seeds(distribution: dict[str, Any]) -> None:
    launched = [0.0] * 10
    assert times(distribution, *launched) == times(distribution | {'seed': 0}, *launched)
    assert times(distribution, *launched) != times(distribution | {'seed': 1}, *launched)


@pytest.mark.parametrize(('ranks', 'seconds'), [(1, 1.0), (2, 1.0), (4, 2.0), (5, 2.5), (6, 3.0), (8, 3.0), (999, 3.0)])
def test_table(ranks: int, seconds: float) -> None:
    """Straight lines between the points, and nothing beyond them."""
    table = {'distribution': 'table', 'seconds': [[6, 3], [2, 1]]}
    assert times(table, 0.0, ranks=ranks) == [seconds]


@pytest.mark.parametrize(('options', 'message'), [
    ({'distribution': 'gamma'}, "launch_model.distribution is 'gamma', allowed: constant, normal, lognormal, table"),
    ({'distribution': ['normal']}, 'allowed: constant'),
    ({'secs': 1}, "distribution 'constant' has the unknown options 'secs'"),
    ({'seconds': -1}, 'launch_model.seconds is -1, allowed: a number, at least 0'),
    ({'seconds': '1'}, "seconds is '1'"),
    ({'rate': math.inf}, 'launch_model.rate is inf, allowed: a number'),
    ({'rate': math.nan}, 'rate is nan'),
    ({'rate': True}, 'rate is True'),
    ({'distribution': 'normal', 'mean': 1}, 'launch_model.deviation is None, allowed: a number'),
    ({'distribution': 'normal', 'mean': 1, 'deviation': 1, 'seed': 'x'}, "seed is 'x', allowed: a whole number"),
    ({'distribution': 'table'}, 'list of pairs'),
    ({'distribution': 'table', 'seconds': []}, 'list of pairs'),
    ({'distribution': 'table', 'seconds': [[1]]}, 'list of pairs'),
    ({'distribution': 'table', 'seconds': [[1, -2]]}, 'list of pairs'),
])
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlatformError) as caught:
        launch_model(options)
    assert message in str(caught.value)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 10), max_size=50), st.floats(0.1, 100), st.floats(0, 2))
def test_no_launcher_is_faster_than_its_rate(gaps: list[float], rate: float, seconds: float) -> None:
    now, launched = 0.0, []
    for gap in gaps:
        now += gap
        launched.append(now)
    ran = times({'seconds': seconds, 'rate': rate}, *launched)
    assert all(run >= start + seconds - 1e-9 for start, run in zip(launched, ran, strict=True))
    assert all(later - earlier >= 1 / rate - 1e-9 for earlier, later in pairwise(ran))

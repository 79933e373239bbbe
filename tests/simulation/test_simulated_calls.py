"""Function calls all together are what they would be one by one."""

from __future__ import annotations

import csv
import heapq
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rp_api.errors import DescriptionError
from rp_api.simulation.model import SHAPES
from rp_client.cli.program import main
from rp_client.simulation import Cost, Model, Platform
from rp_client.simulation.calls import Calls, draw, of_master, simulate_calls
from rp_profiling.check import check_session


def one_by_one(free: np.ndarray[Any, Any], lasts: np.ndarray[Any, Any]) -> tuple[float, float]:
    """The times at which the last call begins, and the last one ends, if each goes to the rank that is free first."""
    ranks = free.tolist()
    heapq.heapify(ranks)
    begins = ends = 0.0
    for last in lasts:
        begins = heapq.heappop(ranks)
        heapq.heappush(ranks, begins + last)
        ends = max(ends, begins + last)
    return begins, ends


@pytest.mark.parametrize('shape', SHAPES)
def test_calls_take_as_long_as_one_by_one(shape: str) -> None:
    cost = Cost(10.0, spread=0.5, shape=shape)
    free = np.linspace(0, 30, 50)
    together, single = [], []
    for seed in range(40):
        random = np.random.default_rng(seed)
        starts, ends = of_master(random, free, 1000, cost)
        assert len(starts) == len(ends) == 1000
        together.append((starts.max(), ends.max()))
        single.append(one_by_one(free, draw(np.random.default_rng(1000 + seed), cost, (1000,))))
    assert np.mean(together, axis=0) == pytest.approx(np.mean(single, axis=0), rel=0.03)


@pytest.mark.parametrize(('rate', 'ranks', 'gap'), [(20.0, 100, 0.0), (20.0, 100, 2.0), (20.0, 400, 0.1)])
def test_a_master_hands_out_calls_one_after_the_other(rate: float, ranks: int, gap: float) -> None:
    """Below its rate, at it, and with twice as many ranks as it can feed."""
    model, calls = Model(call_rate=rate, call_gap=gap), Calls(4000, Cost(10.0, spread=0.3), ranks=ranks)
    found = [simulate_calls(Platform.of(nodes=2, cores=ranks), calls, model, seed=seed).ttx for seed in range(5)]
    expected = [fed(np.random.default_rng(seed), calls, model) for seed in range(5)]
    assert np.mean(found) == pytest.approx(np.mean(expected), rel=0.03)


def fed(random: np.random.Generator, calls: Calls, model: Model) -> float:
    """The end of the last call, if each waits for the master and for a rank."""
    ranks, ready, ends = [0.0] * calls.ranks, 0.0, 0.0
    for length in draw(random, calls.duration, (calls.count,)):
        ready += 1 / model.call_rate
        begins = max(ready, heapq.heappop(ranks))
        ready = max(ready, begins - 1 / model.call_rate)   # it hands out nothing in advance
        ends = max(ends, begins + length)
        heapq.heappush(ranks, begins + length + model.call_gap)
    return ends


def test_no_rank_has_two_calls_at_a_time_and_none_waits_for_nothing() -> None:
    starts, ends = of_master(np.random.default_rng(1), np.zeros(7), 100, Cost(10.0, spread=1.0))
    times = sorted([(start, 1) for start in starts] + [(end, -1) for end in ends])
    level = np.cumsum([change for _, change in times])
    assert level.max() == 7
    last = starts.max()
    assert min(count for (time, _), count in zip(times, level, strict=True) if 0 < time < last) >= 6


def test_fewer_calls_than_ranks() -> None:
    starts, ends = of_master(np.random.default_rng(1), np.array([3.0, 1.0, 2.0]), 2, Cost(10.0))
    assert sorted(starts) == [1.0, 2.0]
    assert sorted(ends) == [11.0, 12.0]


def test_masters_and_workers_run_as_long_as_there_are_calls(tmp_path: Path) -> None:
    calls = Calls(10_001, Cost(10.0, spread=0.5), masters=2, workers=4, ranks=8, start=Cost(5.0))
    result = simulate_calls(Platform.of(nodes=9, cores=8), calls, Model(bootstrap=Cost(20.0), launch=Cost(1.0)),
                            directory=tmp_path / 'session', interval=5.0)
    assert result.result.tasks == 10
    assert sum(result.done) == 10_001
    assert max(result.running) == 64
    assert result.utilisation == pytest.approx(10_001 * 10 / (72 * result.walltime), rel=0.05)
    assert 64 / 10 * 0.9 < result.rate < 64 / 10 * 1.1
    assert not check_session(tmp_path / 'session')
    with (tmp_path / 'session' / 'calls.csv').open() as stream:
        rows = list(csv.DictReader(stream))
    assert sum(int(row['done']) for row in rows) == 10_001
    assert int(rows[-1]['running']) == 0


def test_the_same_seed_gives_the_same_calls() -> None:
    calls, platform = Calls(2000, Cost(3.0, spread=1.0), workers=2, ranks=4), Platform.of(nodes=3, cores=4)
    found = [simulate_calls(platform, calls, Model(), seed=seed) for seed in (1, 1, 2)]
    assert found[0] == found[1]
    assert found[0] != found[2]


@pytest.mark.parametrize(('values', 'sentence'), [
    ({'calls': 0, 'duration': 1}, 'count is 0, allowed are whole numbers from 1 on'),
    ({'calls': 5}, 'duration is None'),
    ({'calls': 5, 'duration': 0}, 'duration of calls is 0'),
    ({'calls': 5, 'duration': 1, 'slaves': 2}, 'calls: '),
    ({'calls': 5, 'duration': 1, 'workers': 3, 'ranks': 4}, 'too small for all masters and workers'),
])
def test_what_cannot_be_simulated_is_refused(values: dict[str, Any], sentence: str, tmp_path: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DescriptionError, match=sentence):
        simulate_calls(Platform.of(nodes=2, cores=4), Calls.of(values), Model())
    path = tmp_path / 'calls.json'
    path.write_text(json.dumps(values))
    assert main(['simulate', str(path), '--cores', '4', '--nodes', '2']) == 1
    assert sentence in capsys.readouterr().err


def test_the_command_says_what_calls_make_of_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'calls.json'
    path.write_text('{"calls": 5000, "duration": {"mean": 4, "spread": 0.5},\n "workers": 3, "ranks": 4}\n')
    assert main(['simulate', str(path), '--cores', '4', '--nodes', '4', '--compare', '5']) == 0
    assert '% of core-time in calls, ' in capsys.readouterr().out

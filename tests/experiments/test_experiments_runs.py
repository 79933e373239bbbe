"""Small runs of the experiments, in the simulator and for real, with their tables and pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import benchmarks_on_path  # noqa: F401
import pytest
from experiments import drawings, functions, here, runs, workloads
from experiments.paper import Paper, Reported
from experiments.runs import Run
from experiments.simulated import Figures, figures, simulate_run, simulate_runs
from experiments.table import Outcome, table, within

from rp_client.simulation import Cost, Platform
from rp_profiling.check import check_session

PNG = b'\x89PNG'


def small_run(name: str = '3.1024', tasks: int = 24, nodes: int = 8, allocated: int = 9) -> Run:
    """A run of heterogeneous tasks on a few nodes of Summit."""
    run = next(run for run in runs.heterogeneous() if run.name == name)
    return replace(run, tasks=tasks, platform=Platform.of(nodes, runs.SUMMIT_CORES, runs.SUMMIT_GPUS),
                   allocated=allocated, workload=workloads.heterogeneous(tasks, [nodes // 2] * 2),
                   model=run.model.changed(launchers=2))


def test_figures_are_those_of_the_traces(tmp_path: Path) -> None:
    run = small_run()
    found = simulate_run(run, run.model, tmp_path / 'session')
    assert not check_session(tmp_path / 'session')
    assert 600 < found.ttx < 1000
    assert 42 < found.ovh < 43   # bootstrap, the first pass of the scheduler, teardown
    assert found.failed == 0
    assert sum(found.shares.values()) == pytest.approx(100)
    assert found.shares['lost'] == pytest.approx(100 / 9)
    assert found.ru == found.shares['exec cmd']
    # the tasks fill their nodes: 500 to 900 s of each are used
    assert 60 < found.ru * 9 / 8 < 90
    assert found.ru_running == pytest.approx(found.ru * (found.ttx + found.ovh) / found.ttx, rel=0.01)
    assert simulate_run(run, run.model, tmp_path / 'again') == found


def test_launches_that_fail(tmp_path: Path) -> None:
    run = small_run()
    found = simulate_run(run, run.model.changed(failures=1.0), tmp_path / 'session')
    assert found.failed == run.tasks
    assert found.ru < 0.01   # nothing runs, but for as long as it takes to launch


def test_acknowledgements_are_measured(tmp_path: Path) -> None:
    run = replace(runs.weak()[0], model=runs.weak()[0].model.changed(acknowledge=Cost(20.0), acknowledge_rate=0.0))
    found = simulate_run(run, run.model, tmp_path / 'session')
    assert found.acknowledge == pytest.approx((20.0, 0.0), abs=1e-3)


def test_launches_are_measured(tmp_path: Path) -> None:
    run = replace(runs.weak()[0], model=runs.weak()[0].model.changed(launch=Cost(20.0), first_launch=Cost(5.0)))
    found = simulate_run(run, run.model, tmp_path / 'session')
    assert found.prepare == pytest.approx((25.0, 0.0), abs=1e-3)


def test_figures_of_repeated_runs_are_means(tmp_path: Path) -> None:
    run = replace(small_run(), repeats=2)
    found = simulate_runs(run, run.model, tmp_path)
    one, other = (simulate_run(run, run.model, tmp_path / f'again.{seed}', seed) for seed in (1, 2))
    assert one.ttx != other.ttx
    assert found.ttx == pytest.approx((one.ttx + other.ttx) / 2)
    assert found.ttx_spread == pytest.approx(abs(one.ttx - other.ttx) / 2 ** 0.5)
    assert found.prepare == pytest.approx([(first + second) / 2
                                           for first, second in zip(one.prepare, other.prepare, strict=True)])
    assert sum(found.shares.values()) == pytest.approx(100)


def test_our_scheduler_on_the_same_launcher() -> None:
    for run in runs.all_runs():
        ours = run.ours()
        assert ours.placement.mean(run.platform.nodes) < run.model.placement.mean(run.platform.nodes)
        assert ours.lookahead == 0
        own = {'name': '', 'placement': 0, 'search': 0, 'lookahead': 0}
        assert ours.changed(**own) == run.model.changed(**own)


def test_table_says_what_is_within_the_spread() -> None:
    run = small_run()
    found = Figures(900.0, 60.0, 72.0, 77.0, 0.0, 1.0, (0.0, 0.0), (0.0, 0.0), 0, {})
    outcome = Outcome(run, found, replace(found, ru_running=80.0))
    paper = Paper([Reported(run.name, 'ru_running', 70.0, 5.0, 'data', 'x'),
                   Reported(run.name, 'ovh', 61.0, None, 'text', 'x')])
    lines = table([outcome], paper).splitlines()
    assert lines[2] == f'| {run.title} | RU | 70 ± 5 % * | 77 % | +7 points | **no** | 80 % |'
    assert lines[3] == '|  | OVH | 61 s | 60 s | -1.6 % | none reported | 60 s |'


def test_average_of_sizes_is_held_against_that_of_the_paper() -> None:
    found = Figures(900.0, 60.0, 72.0, 77.0, 0.0, 1.0, (0.0, 0.0), (0.0, 0.0), 0, {}, ttx_spread=20.0)
    sizes = [replace(found, ttx=ttx) for ttx in (900.0, 910.0, 935.0)]
    outcomes = [Outcome(run, each, each) for run, each in zip(runs.weak(), sizes, strict=False)]
    paper = Paper([Reported('1.32', 'ttx', 902.6, 3.4, 'data', 'x'),
                   Reported('1.32-128', 'ttx', 922.0, 14.0, 'text', 'x')])
    lines = table(outcomes, paper).splitlines()
    assert lines[2] == '| 32 tasks, 1,024 cores | TTX | 903 ± 3.4 s * | 900 ± 20 s | -0.3 % | see the average | 900 s |'
    assert lines[3] == '| average of 32 to 128 tasks | TTX | 922 ± 14 s | 915 s | -0.8 % | yes | 915 s |'
    assert len(lines) == 4
    assert within(outcomes, paper) == (1, 1)
    assert len(table(outcomes[:2], paper).splitlines()) == 3
    assert within(outcomes[:2], paper) == (0, 0)


def test_pictures(tmp_path: Path) -> None:
    run = runs.weak()[0]
    found = simulate_run(run, run.model, tmp_path / 'session')
    outcomes = [Outcome(run, found, found)]
    drawings.over_time(tmp_path / 'session', 'a run', tmp_path / 'time.png')
    drawings.ttx_of('1', outcomes, Paper([Reported(run.name, 'ttx', 922.0, None, 'text', 'x')]), tmp_path / 'ttx.png')
    drawings.shares(outcomes, tmp_path / 'shares.png')
    for name in ('time', 'ttx', 'shares'):
        assert (tmp_path / f'{name}.png').read_bytes().startswith(PNG)


def test_function_calls(tmp_path: Path) -> None:
    result = functions.experiment_5(tmp_path / 'session', calls=20_000, masters=2, workers=3)
    length, busy = functions.steady(result)
    start, tail = functions.edges(result)
    assert 0 < start + length + tail <= len(result.running) * result.interval
    assert sum(result.done) == 20_000
    # all ranks of six of eight nodes
    assert busy == pytest.approx(75)
    assert length > 0
    drawings.calls(result, tmp_path / 'calls.png')
    assert (tmp_path / 'calls.png').read_bytes().startswith(PNG)


def test_little_law_contradicts_the_mean_of_the_paper() -> None:
    assert functions.CALL.mean() == pytest.approx(10.54, abs=0.01)
    cores = functions.NODES * functions.CORES
    assert functions.CALLS * 34 / cores / 3600 == pytest.approx(3.05, abs=0.01)


def test_real_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, 'FLOPS', 1e6)
    session = here.run_tasks(tmp_path, 2, here.computing(4))
    found = figures(Path(session))
    assert found.ttx > 0
    assert found.ru > 0
    assert not check_session(session)


def test_real_tasks_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, 'FLOPS', -1)
    with pytest.raises(RuntimeError, match='1 tasks did not end well'):
        here.run_tasks(tmp_path, 1, here.computing(1))

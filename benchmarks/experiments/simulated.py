"""One run in the simulator, and its figures, which `rp_profiling` reads from the traces as from those of a real run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev

from experiments.runs import Run
from rp_client.simulation import Model, simulate
from rp_profiling.analyse.durations import durations, moments
from rp_profiling.analyse.utilisation import Analysis
from rp_profiling.read.columns import TICKS
from rp_profiling.read.session import read_trace
from rp_profiling.read.trace import NEVER, Trace


@dataclass(frozen=True)
class Figures:
    """The figures of a run: seconds, and percent of what was allocated."""

    ttx: float
    """From when the first task is with the executor until the last one is known to have ended, as in the data that were
    published with the paper (time in the state AGENT_EXECUTING)."""
    ovh: float
    """Return the seconds in which there were nodes and no task ran."""
    ru: float
    """Of the cores."""
    ru_running: float
    """Of the cores, in the time in which any task ran: what is in `ovh` does not count."""
    gpu_ru: float
    scheduling: float
    """From when the first task is at the scheduler until the last one is placed."""
    prepare: tuple[float, float]
    """Mean and standard deviation, from when the launcher has a task until its program runs."""
    acknowledge: tuple[float, float]
    """Mean and standard deviation, from the end of a program until the executor knows it."""
    failed: int
    shares: dict[str, float]
    """Of the cores, by activity; what was allocated and never used is `lost`."""
    ttx_spread: float = 0.0
    """The standard deviation of `ttx`, if these are the means of several runs."""


def simulate_runs(run: Run, model: Model, directory: Path) -> Figures:
    """The means of the figures of a run with a model, repeated with other seeds; `directory` gets their traces."""
    return means([simulate_run(run, model, directory / str(seed), seed) for seed in range(1, run.repeats + 1)])


def means(found: Sequence[Figures]) -> Figures:
    """The means of the figures of several runs."""
    if len(found) == 1:
        return found[0]
    simple = {name: mean(getattr(each, name) for each in found)
              for name in ('ttx', 'ovh', 'ru', 'ru_running', 'gpu_ru', 'scheduling')}
    return replace(found[0], **simple, prepare=_mean_pair([each.prepare for each in found]),
                   acknowledge=_mean_pair([each.acknowledge for each in found]),
                   failed=round(mean(each.failed for each in found)),
                   shares={name: mean(each.shares[name] for each in found) for name in found[0].shares},
                   ttx_spread=stdev(each.ttx for each in found))


def simulate_run(run: Run, model: Model, directory: Path, seed: int = 1) -> Figures:
    """The figures of a run with a model; its traces are in a new directory."""
    result = simulate(run.platform, run.workload, model, directory=directory, seed=seed)
    return figures(directory, run.platform.nodes / run.allocated, result.failed)


def figures(directory: Path, part: float = 1.0, failed: int = 0) -> Figures:
    """The figures of a session on that part of the allocated nodes."""
    trace = read_trace(directory)
    analysis = Analysis(trace)
    cores = analysis.utilisation('core')
    shares = {name: share * part for name, share in cores.shares.items()}
    ru, life = shares['exec cmd'], float(cores.times[-1] - cores.times[0])
    return Figures(
        ttx=_between(moments(trace, 'AGENT_EXECUTING'), moments(trace, 'AGENT_STAGING_OUTPUT_PENDING')),
        ovh=analysis.overhead,
        ru=ru,
        ru_running=ru * life / (life - analysis.overhead) if life > analysis.overhead else 0.0,
        gpu_ru=analysis.utilisation('GPU').shares['exec cmd'] * part,
        scheduling=_between(moments(trace, 'AGENT_SCHEDULING'), moments(trace, 'schedule_ok')),
        prepare=_moments(trace, 'launch_start', 'rank_start'),
        acknowledge=_moments(trace, 'last rank_stop', 'task_run_stop'),
        failed=failed,
        shares={**shares, 'lost': 100 * (1 - part)},
    )


def _moments(trace: Trace, start: str, stop: str) -> tuple[float, float]:
    """Mean and standard deviation of the time between two events of all tasks."""
    times = durations(trace, start, stop)
    return (float(times.mean()), float(times.std())) if len(times) else (0.0, 0.0)


def _mean_pair(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return mean(first for first, _ in pairs), mean(second for _, second in pairs)


def _between(starts: object, stops: object) -> float:
    """Seconds from the first of the starts to the last of the stops."""
    first, last = (times[times != NEVER] for times in (starts, stops))   # type: ignore[index]
    return float(last.max() - first.min()) / TICKS if len(first) and len(last) else 0.0

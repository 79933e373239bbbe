"""Experiment 5: 126,471,524 function calls on 7,000 nodes of Frontera, in the simulator.

RAPTOR's masters and workers are simulated as tasks, their calls all together (docs/guides/simulator.md). The paper
gives an average of 34 s for a call. That contradicts what it says beside it: 390,000 calls at a time and 37,000 of
them in a second are, by Little's law, 10.5 s for each; with 34 s on 392,000 cores, they would take three hours, and
not the 62 minutes that Fig. 10 shows. Calls take 10.5 s here. The rate of a master and the time of a rank between two
calls are those of our RAPTOR, measured with `raptor_scale.py`.
"""

from __future__ import annotations

from pathlib import Path

from rp_client.simulation import Cost, Model, Platform, load_model
from rp_client.simulation.calls import Calls, CallsResult, simulate_calls

CALLS = 126_471_524
MASTERS, WORKERS, RANKS = 70, 99, 56
NODES, CORES = 7000, 56
CONCURRENT, RATE = 390_000, 37_000
"""Calls at a time, and calls in a second (Figs. 10b and 10c)."""

CALL = Cost(CONCURRENT / RATE, spread=0.5)
"""The spread is assumed: the paper says only that calls differ, by the ligand that is docked."""

OURS = load_model('ours')
FRONTERA = Model(name='paper-frontera', source='IV-D: less than 300 s to bootstrap and to launch all',
                 bootstrap=Cost(200.0), launch=Cost(50.0, spread=3 ** -0.5, shape='uniform'),
                 call_rate=OURS.call_rate, call_gap=OURS.call_gap)
"""Masters and workers come up evenly from 200 to 300 s after the nodes are there."""


def experiment_5(directory: Path, calls: int = CALLS, masters: int = MASTERS, workers: int = WORKERS) -> CallsResult:
    """Its figures; one node for each master and for each worker."""
    platform = Platform.of(masters * (workers + 1), CORES)
    wanted = Calls(calls, CALL, masters, workers, RANKS, master={'cores_per_rank': CORES})
    return simulate_calls(platform, wanted, FRONTERA, directory=directory, seed=1)


def steady(result: CallsResult) -> tuple[float, float]:
    """Of the longest stretch with nearly all ranks busy: its seconds, and percent of all cores that run calls in it."""
    most = max(result.running)
    busy = [running for running in result.running if running >= 0.98 * most]
    return len(busy) * result.interval, 100 * sum(busy) / len(busy) / result.cores


def edges(result: CallsResult) -> tuple[float, float]:
    """Seconds from the first call until nearly all ranks are busy, and from when they are not any more to the end."""
    most = max(result.running)
    busy = [number for number, running in enumerate(result.running) if running >= 0.98 * most]
    first = next(number for number, running in enumerate(result.running) if running)
    return (busy[0] - first) * result.interval, (len(result.running) - busy[-1]) * result.interval

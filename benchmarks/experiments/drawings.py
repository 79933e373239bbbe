"""The pictures: TTX of experiments 1 and 2 (Fig. 6), utilisation of all runs (Fig. 7), and of single runs over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.paper import Paper
from experiments.table import Outcome
from experiments.workloads import MEAN
from rp_profiling.analyse.utilisation import Analysis
from rp_profiling.draw.pictures import COLOURS, all_pictures
from rp_profiling.draw.plot import draw
from rp_profiling.read.session import read_trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rp_client.simulation.calls import CallsResult

DPI = 90
_COLOURS = {**COLOURS, 'lost': '#a50f15'}
_ORDER = ('exec cmd', 'prepare exec', 'launcher', 'scheduling', 'draining', 'idle', 'bootstrap', 'termination', 'lost')


def over_time(session: Path, title: str, target: Path) -> None:
    """Utilisation of cores, concurrency and rates of one session (Figs. 9 and 10), below each other."""
    wanted = ('core-utilisation', 'concurrency', 'rates')
    pictures = [each for each in all_pictures(Analysis(read_trace(session))) if each.name in wanted]
    figure = _figure(9, 3.2 * len(pictures))
    for picture, axes in zip(pictures, figure.subplots(len(pictures), squeeze=False)[:, 0], strict=True):
        draw(picture, axes)
    figure.suptitle(title)
    _save(figure, target)


def calls(result: CallsResult, target: Path) -> None:
    """Calls that run, and calls that end in a second, over time (Figs. 10b and 10c)."""
    times = [result.interval * number for number in range(len(result.running))]
    figure = _figure(9, 6)
    above, below = figure.subplots(2, sharex=True)
    above.fill_between(times, result.running, step='post', color=COLOURS['exec cmd'], linewidth=0)
    above.axhline(result.cores, color='grey', linestyle='--')
    above.set(ylabel='calls that run (dashed: cores)', title='Experiment 5: function calls')
    below.step(times, [done / result.interval for done in result.done], where='post', color='#2c7fb8')
    below.set(ylabel='calls/s', xlabel='time [s]')
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.margins(x=0)
    _save(figure, target)


def ttx_of(experiment: str, outcomes: Iterable[Outcome], paper: Paper, target: Path) -> None:
    """TTX by the number of cores: paper, reproduced and ours (Fig. 6)."""
    chosen = [each for each in outcomes if each.run.name.startswith(f'{experiment}.')]
    cores = [each.run.cores for each in chosen]
    figure = _figure(7, 4)
    axes = figure.subplots()
    reported = [(each.run.cores, row) for each in chosen if (row := paper.find(each.run.name, 'ttx'))]
    axes.errorbar([size for size, _ in reported], [row.value for _, row in reported],
                  yerr=[row.spread or 0.0 for _, row in reported], fmt='o', color='black', label='paper', capsize=3)
    axes.plot(cores, [each.reproduced.ttx for each in chosen], color='#d95f0e', marker='.', label='reproduced')
    axes.plot(cores, [each.ours.ttx for each in chosen], color='#2c7fb8', marker='.', label='our scheduler')
    axes.plot(cores, [MEAN * each.run.generations for each in chosen], color='grey', linestyle='--', label='ideal')
    axes.set(xscale='log', xlabel='cores', ylabel='TTX [s]', title=f'Experiment {experiment}: TTX')
    axes.set_xticks(cores, [f'{size:,}' for size in cores], rotation=45, fontsize='small')
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    _save(figure, target)


def shares(outcomes: Sequence[Outcome], target: Path) -> None:
    """Draw the activity of the cores in each run: reproduced on the left, with our scheduler on the right (Fig. 7)."""
    figure = _figure(11, 5)
    axes = figure.subplots()
    for offset, which in ((-0.2, 'reproduced'), (0.2, 'ours')):
        bottom = [0.0] * len(outcomes)
        for activity in _ORDER:
            heights = [getattr(each, which).shares[activity] for each in outcomes]
            axes.bar([place + offset for place in range(len(outcomes))], heights, 0.36, bottom, linewidth=0,
                     color=_COLOURS[activity], label=activity if which == 'reproduced' else None)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set_xticks(range(len(outcomes)), [each.run.title.replace(', ', '\n') for each in outcomes], rotation=60,
                    fontsize='x-small')
    axes.set(ylabel='% of core-time', ylim=(0, 100),
             title='Utilisation: reproduced (left) and with our scheduler (right)')
    axes.legend(loc='upper left', bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize='small')
    _save(figure, target)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout='constrained')
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=DPI)

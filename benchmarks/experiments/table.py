"""The table paper | reproduced | ours, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from experiments.paper import Paper, Reported
from experiments.runs import Run
from experiments.simulated import Figures


class Outcome(NamedTuple):
    """A run with what was found."""

    run: Run
    reproduced: Figures
    ours: Figures


HEAD = ('run', 'figure', 'paper', 'reproduced', 'off by', 'within the spread', 'ours')
FIGURES = {'ttx': ('TTX', 's'), 'ru_running': ('RU', '%'), 'ovh': ('OVH', 's'),
           'scheduling': ('until all are placed', 's'), 'acknowledge': ('acknowledge', 's')}
SHOWN = {'1': ('ttx', 'scheduling', 'acknowledge'), '2': ('ttx',), '3': ('ru_running', 'ovh'),
         '4': ('ru_running', 'ovh')}
"""Of each experiment, what the paper or the data published with it give numbers for."""


def table(outcomes: Iterable[Outcome], paper: Paper) -> str:
    """All figures of the runs that the paper gives numbers for."""
    return markdown(HEAD, [row for outcome in outcomes for row in _rows(outcome, paper)])


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ['---'] * len(head), *rows]
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def _rows(outcome: Outcome, paper: Paper) -> Iterable[Sequence[str]]:
    title = outcome.run.title
    for figure in SHOWN[outcome.run.name.partition('.')[0]]:
        reported = paper.find(outcome.run.name, figure)
        if reported is not None:
            name, unit = FIGURES[figure]
            value = _mean(getattr(outcome.reproduced, figure))
            yield (title, name, cited(reported, unit), f'{number(value)} {unit}', off_by(reported, value, unit),
                   _verdict(reported, value), f'{number(_mean(getattr(outcome.ours, figure)))} {unit}')
            title = ''


def cited(reported: Reported, unit: str) -> str:
    """A reported value, with a star if it is not from the text of the paper."""
    spread = f' ± {number(reported.spread)}' if reported.spread is not None else ''
    return f'{number(reported.value)}{spread} {unit}' + ('' if reported.origin == 'text' else ' *')


def number(value: float) -> str:
    """A value without digits that mean nothing."""
    if value >= 10:
        return f'{value:,.0f}'
    return f'{value:.2g}' if value >= 0.01 else '< 0.01'


def off_by(reported: Reported, value: float, unit: str) -> str:
    """How far a value is from what is reported: percent, and of percents points."""
    if unit == '%':
        return f'{round(value - reported.value):+d} points'
    return f'{100 * (value / reported.value - 1):+.1f} %'


def _verdict(reported: Reported, value: float) -> str:
    return {None: 'none reported', True: 'yes', False: '**no**'}[reported.holds(value)]


def within(outcomes: Iterable[Outcome], paper: Paper, figure: str) -> tuple[int, int]:
    """How many runs have a figure that is within the reported spread, of how many for which one is reported."""
    verdicts = [row.holds(_mean(getattr(outcome.reproduced, figure))) for outcome in outcomes
                if (row := paper.find(outcome.run.name, figure)) and row.spread is not None]
    return verdicts.count(True), len(verdicts)


def _mean(figure: float | Sequence[float]) -> float:
    return figure[0] if isinstance(figure, Sequence) else figure

"""The table paper | reproduced | ours, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import NamedTuple

from experiments.paper import Paper, Reported
from experiments.runs import AVERAGES, Run
from experiments.simulated import Figures


class Outcome(NamedTuple):
    """A run with what was found."""

    run: Run
    reproduced: Figures
    ours: Figures


HEAD = ('run', 'figure', 'paper', 'reproduced', 'off by', 'within the spread', 'ours')
FIGURES = {'ttx': ('TTX', 's'), 'ru_running': ('RU', '%'), 'ovh': ('OVH', 's'),
           'scheduling': ('until all are placed', 's'), 'prepare': ('prepare', 's'),
           'acknowledge': ('acknowledge', 's')}
SHOWN = {'1': ('ttx', 'scheduling', 'prepare', 'acknowledge'), '2': ('ttx',), '3': ('ru_running', 'ovh'),
         '4': ('ru_running', 'ovh')}
"""Of each experiment, what the paper or the data published with it give numbers for."""
AVERAGED = 'see the average'
_MEMBERS = {name for names in AVERAGES.values() for name in names}


def table(outcomes: Iterable[Outcome], paper: Paper) -> str:
    """All figures of the runs that the paper gives numbers for."""
    known = list(outcomes)
    rows: list[Sequence[str]] = []
    for outcome in known:
        rows += _rows(outcome, paper)
        rows += [_average(name, known, paper) for name, members in AVERAGES.items() if members[-1] == outcome.run.name]
    return markdown(HEAD, filter(None, rows))


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
            spread = outcome.reproduced.ttx_spread if figure == 'ttx' else 0.0
            verdict = AVERAGED if figure == 'ttx' and outcome.run.name in _MEMBERS else _verdict(reported, value)
            yield (title, name, cited(reported, unit), f'{number(value)}{_more_or_less(spread)} {unit}',
                   off_by(reported, value, unit), verdict, f'{number(_mean(getattr(outcome.ours, figure)))} {unit}')
            title = ''


def _average(name: str, outcomes: Sequence[Outcome], paper: Paper) -> Sequence[str]:
    """The row of the average of some runs; empty if not all of them are there."""
    reported, value = paper.find(name, 'ttx'), average(name, outcomes)
    if reported is None or value is None:
        return ()
    ours = mean(outcome.ours.ttx for outcome in outcomes if outcome.run.name in AVERAGES[name])
    return (f'average of {name.partition(".")[2].replace("-", " to ")} tasks', 'TTX', cited(reported, 's'),
            f'{number(value)} s', off_by(reported, value, 's'), _verdict(reported, value), f'{number(ours)} s')


def average(name: str, outcomes: Iterable[Outcome]) -> float | None:
    """The average TTX of the runs of that name; None if not all of them are there."""
    found = [outcome.reproduced.ttx for outcome in outcomes if outcome.run.name in AVERAGES[name]]
    return mean(found) if len(found) == len(AVERAGES[name]) else None


def cited(reported: Reported, unit: str) -> str:
    """A reported value, with a star if it is not from the text of the paper."""
    star = '' if reported.origin == 'text' else ' *'
    return f'{number(reported.value)}{_more_or_less(reported.spread)} {unit}{star}'


def _more_or_less(spread: float | None) -> str:
    return f' ± {number(spread)}' if spread else ''


def number(value: float) -> str:
    """A value without digits that mean nothing."""
    if value >= 10:
        return f'{value:,.0f}'
    return f'{value:.2g}' if value >= 0.01 else '< 0.01'


def off_by(reported: Reported, value: float, unit: str) -> str:
    """Return the deviation from the reported value: in percent, or in points if both are percentages."""
    if unit == '%':
        return f'{round(value - reported.value):+d} points'
    return f'{100 * (value / reported.value - 1):+.1f} %'


def _verdict(reported: Reported, value: float) -> str:
    return {None: 'none reported', True: 'yes', False: '**no**'}[reported.holds(value)]


def within(outcomes: Sequence[Outcome], paper: Paper) -> tuple[int, int]:
    """Count the TTX (averages included) within the reported spread, and those for which a spread is reported."""
    found = {outcome.run.name: outcome.reproduced.ttx for outcome in outcomes if outcome.run.name not in _MEMBERS}
    found |= {name: value for name in AVERAGES if (value := average(name, outcomes)) is not None}
    verdicts = [row.holds(value) for name, value in found.items()
                if (row := paper.find(name, 'ttx')) and row.spread is not None]
    return verdicts.count(True), len(verdicts)


def _mean(figure: float | Sequence[float]) -> float:
    return figure[0] if isinstance(figure, Sequence) else figure

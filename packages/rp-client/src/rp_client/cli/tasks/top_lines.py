"""The lines of `rp top`, made from an overview of the session for 80 columns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rp_api import states
from rp_client.cli.tables import cut, shown_span
from rp_client.inspect.overview import Overview
from rp_client.inspect.rows import Row

_BARS = ' ▁▂▃▄▅▆▇█'
_BAR_WIDTH = 10
_SHARES = (('done', 'green'), ('failed', 'red'), ('canceled', 'yellow'), ('running', 'cyan'), ('waiting', 'dim'))
_WIDTH, _MIN_LAST = 76, 10

Line = list[tuple[str, str]]
"""Parts of a line, each a text and its style."""


def lines(found: Overview, rates: Sequence[float]) -> Iterator[Line]:
    """Yield the lines from top to bottom; `rates` are the tasks per second of the last looks."""
    yield [(found.session, 'bold'), (time.strftime('  %H:%M:%S', time.localtime(found.now)), '')]
    yield from _progress(found)
    yield _rates(found, rates)
    yield from _table(('PILOT', 'STATE', 'CORES IN USE', 'GPUS', 'TASKS', ''), map(_pilot, found.pilots[:6]),
                      'no pilots')
    yield from _table(('WAITING LONGEST', 'FOR', 'REASON'), (
        [(row['uid'], ''), (shown_span(found.now - row['submitted'] if row['submitted'] else None), ''),
         (row['reason'] or row['state'], '')] for row in found.waiting), 'no task waits')
    yield from _table(('FAILED', 'TASKS', 'EXAMPLE', 'REASON'), (
        [(each['cause'].removeprefix('failed.'), 'red'),
         *((str(each[name]), '') for name in ('tasks', 'example', 'reason'))]
        for each in found.failures[:5]), 'no task has failed')


def _numbers(found: Overview) -> dict[str, int]:
    return {'done': found.counts.get(states.DONE, 0), 'failed': found.counts.get(states.FAILED, 0),
            'canceled': found.counts.get(states.CANCELED, 0), 'running': found.group('running'),
            'waiting': found.group('waiting')}


def _progress(found: Overview) -> Iterator[Line]:
    """Yield a bar with the shares of states, and their numbers."""
    numbers = _numbers(found)
    total = sum(numbers.values())
    bar: Line = []
    position, so_far = 0, 0
    for name, style in _SHARES if total else ():
        so_far += numbers[name]
        end = round(_WIDTH * so_far / total)
        bar.append((('━' if name != 'waiting' else '╌') * (end - position), style))
        position = end
    yield bar
    yield [(f'{total} tasks: ' + (', '.join(f'{numbers[name]} {name}' for name, _ in _SHARES if numbers[name])
                                  or 'none'), '')]


def _rates(found: Overview, rates: Sequence[float]) -> Line:
    if found.rate is None:
        return [('rate: -', '')]
    most = max(rates, default=0.0)
    bars = ''.join(_BARS[round(8 * rate / most)] if most else ' ' for rate in rates)
    left = (sum(_numbers(found).values()) - found.ended) / found.rate if found.rate else None
    return [(f'rate: {found.rate:.4g} tasks/s' + (f', {shown_span(left)} left  ' if left else '  '), ''),
            (bars, 'cyan')]


def _pilot(pilot: Row) -> Line:
    cores, gpus = pilot['cores'] or 0, pilot['gpus'] or 0
    busy = min(cores, pilot['busy_cores'])
    full = round(_BAR_WIDTH * busy / cores) if cores else 0
    return [(pilot['uid'], ''), (pilot['state'].replace('PMGR_', '').replace('ACTIVE_PENDING', 'PENDING'), ''),
            ('█' * full + '░' * (_BAR_WIDTH - full) + f' {busy}/{cores}', 'green'),
            (f'{min(gpus, pilot["busy_gpus"]):g}/{gpus:g}' if gpus else '-', ''), (str(pilot['tasks']), ''),
            (pilot['reason'] or pilot['resource'] or '', '')]


def _table(head: Sequence[str], rows: Iterator[Line], none: str) -> Iterator[Line]:
    """Yield an empty line and a table whose last column has the room that the others leave, or a text without rows."""
    yield []
    found = [[(name, 'bold') for name in head], *rows]
    if len(found) == 1:
        yield [(none, 'dim')]
        return
    widths = [max(len(line[column][0]) for line in found) for column in range(len(head) - 1)]
    widths.append(max(_MIN_LAST, _WIDTH - sum(widths) - 2 * len(widths)))
    for line in found:
        cells = [(cut(text, width).ljust(width + 2), style) for (text, style), width in zip(line, widths, strict=True)]
        yield [*cells[:-1], (cells[-1][0].rstrip(), cells[-1][1])]

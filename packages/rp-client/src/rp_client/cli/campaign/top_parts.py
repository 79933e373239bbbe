"""The parts of the screen of `rp top`, made from an overview of the session for 80 columns."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rp_api import states
from rp_client.cli.tables import shown_span
from rp_client.inspect.overview import Overview
from rp_client.inspect.rows import Row

_BARS = ' ▁▂▃▄▅▆▇█'
_BAR_WIDTH = 10
_SHARES = (('done', 'green'), ('failed', 'red'), ('canceled', 'yellow'), ('running', 'cyan'), ('waiting', 'dim'))
_WIDTH, _MIN_LAST = 76, 10


def parts(found: Overview, rates: Sequence[float]) -> list[RenderableType]:
    """Return the parts from top to bottom; `rates` are the tasks per second of the last looks."""
    return [_head(found), _progress(found), _rates(found, rates), _pilots(found.pilots), _waiting(found),
            _failures(found)]


def _head(found: Overview) -> Text:
    clock = time.strftime('%H:%M:%S', time.localtime(found.now))
    return Text.assemble((found.session, 'bold'), f'  {clock}')


def _numbers(found: Overview) -> dict[str, int]:
    return {'done': found.counts.get(states.DONE, 0), 'failed': found.counts.get(states.FAILED, 0),
            'canceled': found.counts.get(states.CANCELED, 0), 'running': found.group('running'),
            'waiting': found.group('waiting')}


def _progress(found: Overview) -> Text:
    """Return a bar with the shares of states, and their numbers."""
    numbers = _numbers(found)
    total = sum(numbers.values())
    text = Text()
    position, so_far = 0, 0
    for name, style in _SHARES:
        so_far += numbers[name]
        end = round(_WIDTH * so_far / total) if total else 0
        text.append(('━' if name != 'waiting' else '╌') * (end - position), style)
        position = end
    text.append('\n' if total else '')
    text.append(f'{total} tasks: ')
    text.append(', '.join(f'{numbers[name]} {name}' for name, _ in _SHARES if numbers[name]) or 'none')
    return text


def _rates(found: Overview, rates: Sequence[float]) -> Text:
    if found.rate is None:
        return Text('rate: -')
    most = max(rates, default=0.0)
    line = ''.join(_BARS[round(8 * rate / most)] if most else ' ' for rate in rates[-40:])
    left = (sum(_numbers(found).values()) - found.ended) / found.rate if found.rate else None
    return Text.assemble(f'rate: {found.rate:.4g} tasks/s', f', {shown_span(left)} left  ' if left else '  ',
                         (line, 'cyan'))


def _pilots(pilots: Sequence[Row]) -> RenderableType:
    rows: list[list[Text | str]] = []
    for pilot in pilots[:6]:
        cores, busy = pilot['cores'] or 0, min(pilot['cores'] or 0, pilot['busy_cores'])
        full = round(_BAR_WIDTH * busy / cores) if cores else 0
        bar = Text.assemble(('█' * full, 'green'), ('░' * (_BAR_WIDTH - full), 'dim'), f' {busy}/{cores}')
        gpus = f'{min(pilot["gpus"], pilot["busy_gpus"]):g}/{pilot["gpus"]:g}' if pilot['gpus'] else '-'
        rows.append([pilot['uid'], pilot['state'].replace('PMGR_', '').replace('ACTIVE_PENDING', 'PENDING'), bar, gpus,
                     str(pilot['tasks']), pilot['reason'] or pilot['resource'] or ''])
    return _table(('PILOT', 'STATE', 'CORES IN USE', 'GPUS', 'TASKS', ''), rows) if rows else Text('no pilots', 'dim')


def _waiting(found: Overview) -> RenderableType:
    rows: list[list[Text | str]] = []
    for row in found.waiting:
        since = found.now - row['submitted'] if row['submitted'] else None
        rows.append([row['uid'], shown_span(since), row['reason'] or row['state']])
    return _table(('WAITING LONGEST', 'FOR', 'REASON'), rows) if rows else Text('no task waits', 'dim')


def _failures(found: Overview) -> RenderableType:
    rows: list[list[Text | str]] = [
        [Text(each['cause'].removeprefix('failed.'), 'red'), str(each['tasks']), each['example'], each['reason']]
        for each in found.failures[:5]]
    return _table(('FAILED', 'TASKS', 'EXAMPLE', 'REASON'), rows) if rows else Text('no task has failed', 'dim')


def _table(head: tuple[str, ...], rows: Sequence[Sequence[Text | str]]) -> Table:
    """Return a table whose last column has the room that the others leave."""
    widths = [max(len(line[column]) for line in (head, *rows)) for column in range(len(head) - 1)]
    table = Table(box=None, pad_edge=False, header_style='bold', padding=(0, 2, 0, 0))
    for name, width in zip(head, [*widths, max(_MIN_LAST, _WIDTH - sum(widths) - 2 * len(widths))], strict=True):
        table.add_column(name, no_wrap=True, overflow='ellipsis', width=width)
    for row in rows:
        table.add_row(*row)
    return table

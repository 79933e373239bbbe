"""Writes a session's report, one HTML file: figures, violations, and pictures that can be zoomed.

The file is self-contained: it opens without a network.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from rp_profiling.analyse.calls import figures
from rp_profiling.analyse.durations import TASK, durations, final_states
from rp_profiling.analyse.usage import TaskKind, Usage, shown_bytes
from rp_profiling.analyse.utilisation import ACTIVITIES, Analysis
from rp_profiling.check import Findings
from rp_profiling.draw.pictures import TIME, Layer, Picture, all_pictures
from rp_profiling.read.columns import TICKS
from rp_profiling.write.slots import CORE, GPU

_VIOLATIONS_SHOWN = 200
"""Violations listed in a report."""

KINDS_SHOWN = 20
"""Kinds of tasks, and of failures, in a report."""

USED = 'tasks', 'failed', 'cores', 'used', 'memory', 'peak', 'time limit [s]', 'longest [s]', 'GPUs', 'GPU use'
"""The heads of `usage_row`."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
<script type="application/json" id="pictures">{pictures}</script>
<script>
{script}</script>
</body>
</html>
"""


def write_report(analysis: Analysis, findings: Findings, path: str | Path, title: str,
                 usage: Usage | None = None) -> None:
    """Write the report of a session, with the usage of its tasks if that is known."""
    pictures = [picture for picture in all_pictures(analysis) if picture.x_label == TIME]   # they share the axis
    body = '\n'.join([_summary(analysis), _findings(findings), *_usage(usage), *_figures(pictures),
                      _utilisation(analysis), _durations(analysis)])
    room = resources.files(__package__) / 'page'
    Path(path).write_text(_PAGE.format(
        title=escape(title), style=(room / 'report.css').read_text(), body=body, pictures=_json(pictures),
        script=(room / 'report.js').read_text()), encoding='utf-8')


def summary(analysis: Analysis) -> dict[str, str]:
    """Return the main figures of a session as text."""
    trace = analysis.trace
    tasks = trace.entities('task')
    states = Counter(final_states(trace)[tasks])
    first, last = trace.span
    used = {kind: analysis.utilisation(kind) for kind in (CORE, GPU)}
    lines = {
        'tasks': f'{len(tasks)} (' + ', '.join(f'{count} {state or "not final"}' for state, count
                                               in sorted(states.items())) + ')',
        'pilots': str(len(trace.entities('pilot'))),
        'events': f'{len(trace)} in {len(trace.files)} profiles',
        'length': f'{(last - first) / TICKS:.3f} s',
        'TTX': f'{analysis.ttx:.3f} s: from the first task at the scheduler to the end of the last one',
        'OVH': f'{analysis.overhead:.3f} s: resources were available and no task ran',
    }
    if len(analysis.calls):
        calls = figures(analysis.calls)
        lines['calls'] = (f'{calls.calls:,} on {calls.ranks} ranks, {calls.failed:,} failed; best second '
                          f'{calls.rate:,.0f}/s; ranks in calls {100 * calls.use:.1f} %; median {calls.median:.3g} s')
    for kind, each in used.items():
        if each.available:
            lines[f'RU of {kind}s'] = (f'{each.shares["exec cmd"]:.1f} % of {each.available:.0f} s on at most '
                                       f'{each.most:g} {kind}s')
    return lines


def duration_rows(analysis: Analysis) -> list[tuple[str, int, float, float, float, float]]:
    """Return for each stage of tasks: name, number of tasks, mean, median, 99 % and longest in seconds."""
    rows = []
    for name, (start, stop) in TASK.items():
        seconds = durations(analysis.trace, start, stop)
        if len(seconds):
            middle, high = np.percentile(seconds, [50, 99])
            rows.append((name, len(seconds), float(seconds.mean()), float(middle), float(high), float(seconds.max())))
    return rows


def usage_row(kind: TaskKind) -> list[str]:
    """Return the figures of a kind of tasks as text, under the heads `USED`; empty for what is not known."""
    cores, gpus = kind.mean('cpu'), kind.mean('gpu')
    return [str(kind.tasks), str(kind.causes.total() or ''), str(kind.cores), '' if cores is None else f'{cores:.2f}',
            shown_bytes(kind.memory) if kind.memory else '', shown_bytes(kind.peak) if kind.peak else '',
            f'{kind.timeout:g}' if kind.timeout else '', f'{kind.longest:.3g}' if kind.longest else '',
            f'{kind.gpus:g}' if kind.gpus else '', '' if gpus is None else f'{100 * gpus:.0f} %']


def _usage(usage: Usage | None) -> Iterable[str]:
    if usage and usage.kinds:
        rows = [(str(kind), *usage_row(kind), '; '.join(kind.suggestions())) for kind in usage.kinds[:KINDS_SHOWN]]
        yield '<h2>Requested and used, by kind of task</h2>' + _table(['', *USED, 'suggestion'], rows)
    if usage and usage.failures:
        yield '<h2>Failed tasks</h2>' + _table(['tasks', 'cause', 'program', 'example', 'its reason'],
                                               usage.failures[:KINDS_SHOWN])


def _summary(analysis: Analysis) -> str:
    rows = ''.join(f'<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>'
                   for name, value in summary(analysis).items())
    return f'<table>{rows}</table>'


def _findings(findings: Findings) -> str:
    if findings:
        lines = ''.join(f'<li>{escape(str(each))}</li>' for each in findings.violations[:_VIOLATIONS_SHOWN])
        text = (f'<p class="wrong">{findings.counts.total()} violations of the event catalogue</p>'
                f'<ol class="violations">{lines}</ol>')
    else:
        text = '<p class="fine">no violations: all orders, states and accounts are correct</p>'
    remarks = ''.join(f'<p class="note">{escape(remark)}</p>' for remark in findings.remarks)
    return f'<h2>Check</h2>{text}{remarks}'


def _figures(pictures: Sequence[Picture]) -> Iterable[str]:
    if pictures:
        yield ('<p class="hint">The wheel zooms, dragging selects an interval, and a double click resets the view; a '
               'click on a name in a legend hides or shows it.</p>')
    for number, picture in enumerate(pictures):
        yield (f'<section id="picture-{number}"><h2>{escape(picture.title)}</h2><div class="legend"></div>'
               f'<canvas aria-label="{escape(picture.title)}"></canvas><div class="values"></div>'
               f'<p class="note">{escape(picture.note)}</p></section>')


def _utilisation(analysis: Analysis) -> str:
    shares = {kind: analysis.utilisation(kind) for kind in (CORE, GPU)}
    kinds = [kind for kind, used in shares.items() if used.available]
    rows = [(name, meaning, *(f'{shares[kind].shares[name]:.2f} %' for kind in kinds))
            for name, meaning in ACTIVITIES.items()]
    return '<h2>Use of the devices</h2>' + _table(['activity', '', *(f'{kind}s' for kind in kinds)], rows)


def _durations(analysis: Analysis) -> str:
    rows = [(name, count, *(f'{value:.6f}' for value in values)) for name, count, *values in duration_rows(analysis)]
    return '<h2>Time of tasks, by stage</h2>' + _table(
        ['', 'tasks', 'mean [s]', 'median [s]', '99 % [s]', 'longest [s]'], rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = ''.join(f'<th>{escape(each)}</th>' for each in heads)
    lines = ''.join('<tr>' + ''.join(_cell(each) for each in row) + '</tr>' for row in rows)
    return f'<table><tr>{head}</tr>{lines}</table>'


def _cell(value: Any) -> str:
    text = str(value)
    is_number = text.removesuffix(' %').replace('.', '', 1).isdigit()
    return f'<td class="number">{text}</td>' if is_number else f'<td>{escape(text)}</td>'


def _json(pictures: Sequence[Picture]) -> str:
    """Return the pictures as the script reads them, escaped so that no text can close the script element."""
    data = [{'name': picture.name, 'form': picture.form, 'y_label': picture.y_label,
             'layers': [_layer(layer) for layer in picture.layers]} for picture in pictures]
    return json.dumps(data, separators=(',', ':')).replace('<', '\\u003c')


def _layer(layer: Layer) -> dict[str, str]:
    return {'name': layer.name, 'colour': layer.colour, 'x': _packed(layer.x), 'y': _packed(layer.y)}


def _packed(values: Any) -> str:
    return base64.b64encode(np.asarray(values, '<f4').tobytes()).decode()

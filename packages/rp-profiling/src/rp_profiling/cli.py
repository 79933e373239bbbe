"""The command `rp trace`: figures, checks, pictures and exports of a session's traces."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_profiling.analyse.usage import Usage, usage_of

if TYPE_CHECKING:
    from rp_profiling.analyse.utilisation import Analysis
    from rp_profiling.read.trace import Trace

EXTRA = "rp trace: reading traces needs more packages than writing them: pip install 'rp-profiling[analysis]'"


ACTIONS = ('stats', 'check', 'report', 'plot', 'export')

TasksOf = Callable[[Path], Iterable[Mapping[str, Any]]]
"""Returns the tasks of the session in a directory as rows, see `rp_profiling.analyse.usage`; none if it has none."""


def trace(arguments: list[str], tasks_of: TasksOf = lambda directory: (),
          choose: Callable[[str | None], str] | None = None) -> int:
    """Analyse and check the traces of a session, draw and export them.

    Args:
        arguments: Those of the command.
        tasks_of: Returns what the traces do not have; default: it is not known.
        choose: Returns the directory of the session of a uid, or of the latest one for None; raises an error if there
            is none.
    """
    options = make_parser().parse_args(_action_first(arguments), argparse.Namespace(tasks_of=tasks_of))
    options.session = _directory(options.session or options.chosen, choose)
    try:
        code: int = options.run(options)
        return code
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] not in ('numpy', 'matplotlib', 'pandas'):
            raise
        print(f'{EXTRA} ({error.name} is not installed)', file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument('session', nargs='?', metavar='SESSION', help='the uid of a session, or its directory (default: '
                       'the latest one)')
    where.add_argument('--session', dest='chosen', metavar='SESSION', help='the same')
    where.add_argument('--sandbox', action='append', default=[], metavar='DIR',
                       help='the sandbox of a pilot, if it is not found automatically; can be given several times')
    where.add_argument('--json', action='store_true', help='print JSON, for programs')
    parser = argparse.ArgumentParser(prog='rp trace', description=(trace.__doc__ or '').partition('\n')[0])
    actions = parser.add_subparsers(dest='action', metavar='ACTION', required=True)
    stats, check, report, plot, export = (actions.add_parser(name, help=text, parents=[where]) for name, text in (
        ('stats', 'figures: states, TTX, OVH, utilisation, durations of the stages of tasks'),
        ('check', 'check the session against the event catalogue; exit code 1 for violations'),
        ('report', 'write an HTML file with everything, which needs no network'),
        ('plot', 'draw all pictures into files'), ('export', 'write the trace for other programs')))
    plot.add_argument('--format', default='png', choices=('png', 'svg', 'pdf'), help='of the files (default: png)')
    export.add_argument('--form', default='chrome', choices=('chrome', 'csv'),
                        help='chrome: for ui.perfetto.dev and chrome://tracing; csv: all events, in order of time')
    for action, what in ((report, 'the file (default: SESSION.html)'), (plot, 'a directory (default: SESSION.plots)'),
                         (export, 'the file (default: SESSION.json or SESSION.csv)')):
        action.add_argument('-o', '--output', metavar='PATH', help=what)
    for action, run in ((stats, _stats), (check, _check), (report, _report), (plot, _plot), (export, _export)):
        action.set_defaults(run=run)
    return parser


def _action_first(words: Sequence[str]) -> list[str]:
    """Return the words with the action first: in version 2.0 it was behind the session."""
    for place, word in enumerate(words):
        if word in ACTIONS and words[max(0, place - 1)] not in ('--sandbox', '--session'):
            return [word, *words[:place], *words[place + 1:]]
    return list(words)


def _directory(session: str | None, choose: Callable[[str | None], str] | None) -> Path:
    for base in ('', os.environ.get('RADICAL_PILOT_BASE', '')) if session else ():
        path = Path(base) / str(session)
        if path.is_dir():
            return path
    if choose is not None:
        return Path(choose(session))
    raise NotADirectoryError(f'there is no session {session!r} here, or in $RADICAL_PILOT_BASE' if session else
                             'name a session')


def _read(options: argparse.Namespace) -> Trace:
    from rp_profiling.read.session import read_trace

    found = read_trace(options.session, options.sandbox)
    if not any(found.places):
        print('rp trace: there are no profiles of pilots: fetch them with session.close(download=True), or name their '
              'sandboxes with --sandbox', file=sys.stderr)
    return found


def _analysis(options: argparse.Namespace) -> Analysis:
    from rp_profiling.analyse.utilisation import Analysis
    from rp_profiling.read.description import read_description

    return Analysis(_read(options), read_description(options.session))


def _target(options: argparse.Namespace, ending: str) -> Path:
    return Path(options.output or f'{options.session.resolve().name}{ending}')


def _stats(options: argparse.Namespace) -> int:
    from rp_profiling.draw.report import duration_rows, summary
    from rp_profiling.write.slots import CORE, GPU

    analysis = _analysis(options)
    stages, usage = duration_rows(analysis), usage_of(options.tasks_of(options.session))
    uses = {kind: used for kind in (CORE, GPU) if (used := analysis.utilisation(kind)).available}
    if options.json:
        heads = ('stage', 'tasks', 'mean', 'median', 'p99', 'longest')
        return _print_json({
            'figures': summary(analysis), 'stages': [dict(zip(heads, row, strict=True)) for row in stages],
            'use': {kind: {activity: {'percent': share, 'seconds': used.spent[activity]}
                           for activity, share in used.shares.items()} for kind, used in uses.items()},
            'kinds': [{'kind': str(kind), 'tasks': kind.tasks, 'failed': kind.causes, 'cores': kind.cores,
                       'gpus': kind.gpus, 'cores_used': kind.mean('cpu'), 'gpus_used': kind.mean('gpu'),
                       'memory': kind.memory, 'peak': kind.peak, 'longest': kind.longest,
                       'suggestions': kind.suggestions()} for kind in usage.kinds],
            'failures': [failures._asdict() for failures in usage.failures]})
    for name, value in summary(analysis).items():
        print(f'{name:14}{value}')
    for kind, used in uses.items():
        print(f'\nuse of {kind}s')
        for activity, share in used.shares.items():
            print(f'  {activity:26}{share:8.2f} %{used.spent[activity]:16.3f} s')
    print(f'\n{"time of tasks, by stage":30}{"tasks":>9}{"mean":>12}{"median":>12}{"99 %":>12}{"longest":>12}')
    for name, count, *values in stages:
        print(f'  {name:28}{count:9}' + ''.join(f'{value:12.6f}' for value in values))
    _print_usage(usage)
    return 0


def _print_usage(usage: Usage) -> None:
    from rp_profiling.draw.report import KINDS_SHOWN, USED, usage_row

    if usage.kinds:
        print('\nrequested and used, by kind of task')
    for kind in usage.kinds[:KINDS_SHOWN]:
        figures = (f'{head} {value}' for head, value in zip(USED, usage_row(kind), strict=True) if value)
        print(f'  {kind}: {", ".join(figures)}', *kind.suggestions(), sep='\n    ')
    if usage.failures:
        print('\nfailed tasks', *usage.failures[:KINDS_SHOWN], sep='\n  ')


def _check(options: argparse.Namespace) -> int:
    from rp_profiling.check import check_trace

    found = _read(options)
    findings = check_trace(found)
    if options.json:
        _print_json({'events': len(found), 'profiles': len(found.files), 'violations': findings.counts,
                     'listed': list(map(vars, findings.violations)), 'remarks': findings.remarks})
        return 1 if findings else 0
    if str(findings):
        print(findings)
    print(f'{len(found)} events in {len(found.files)} profiles: {findings.counts.total()} violations')
    return 1 if findings else 0


def _report(options: argparse.Namespace) -> int:
    from rp_profiling.check import check_trace
    from rp_profiling.draw.report import write_report

    analysis = _analysis(options)
    path = _target(options, '.html')
    usage = usage_of(options.tasks_of(options.session))
    write_report(analysis, check_trace(analysis.trace), path, options.session.resolve().name, usage)
    return _tell_files(options, [path])


def _plot(options: argparse.Namespace) -> int:
    from rp_profiling.draw.pictures import all_pictures
    from rp_profiling.draw.plot import save

    return _tell_files(options, save(all_pictures(_analysis(options)), _target(options, '.plots'), options.format))


def _export(options: argparse.Namespace) -> int:
    from rp_profiling.draw.export import write_chrome, write_csv

    write, ending = (write_chrome, '.json') if options.form == 'chrome' else (write_csv, '.csv')
    path = _target(options, ending)
    write(_analysis(options), path)
    return _tell_files(options, [path])


def _tell_files(options: argparse.Namespace, paths: Iterable[Path]) -> int:
    if options.json:
        return _print_json({'files': list(map(str, paths))})
    print(*paths, sep='\n')
    return 0


def _print_json(found: Mapping[str, Any]) -> int:
    print(json.dumps(found, indent=2, default=str))
    return 0

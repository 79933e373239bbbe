"""The command `rp task`: the tasks of a session, their data and outputs; cancels them, and runs them again."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from rp_api.errors import PilotError
from rp_client.cli import options as shared
from rp_client.cli.commands import WrongUsage
from rp_client.cli.tables import print_table, shown
from rp_client.cli.tasks.owner import act
from rp_client.inspect.outputs import Output
from rp_client.inspect.rows import output_of, row_of
from rp_client.inspect.select import Selection

if TYPE_CHECKING:
    from rp_api.coordination.records import Numbered, Records
    from rp_client.inspect.rows import Row

_COLUMNS: shared.Columns = {
    'UID': 'uid', 'NAME': 'name', 'ARGUMENTS': lambda row: shown(f'{row["program"] or "-"} {row["arguments"] or ""}'),
    'STATE': 'state', 'REASON': 'reason', 'NODE': 'node', 'START': 'started', 'ELAPSED': 'duration', 'CPU': 'cpu',
    'MEMORY': 'memory'}

_LIMIT, _LINES = 50, 10
"""Tasks that are listed, and lines that `rp task tail` shows, by default."""


def task(arguments: list[str]) -> int:
    """List and show the tasks of a session and their outputs, cancel them, or run them again."""
    options = make_parser().parse_args(arguments)
    with shared.records(options) as records:
        return options.run(options, records)   # type: ignore[no-any-return]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    as_json, chosen = shared.as_json(), _filters()
    parser = argparse.ArgumentParser(prog='rp task', description=task.__doc__)
    add = shared.actions(parser, shared.where())
    command = add('list', _list, 'List tasks in the order of their submission.', chosen, as_json)
    command.add_argument('--limit', type=int, default=_LIMIT, metavar='N', help='tasks at most; 0 for all '
                         f'(default: {_LIMIT})')
    command.add_argument('--after', metavar='UID', help='only tasks that were submitted after this one')
    command.add_argument('--count', action='store_true', help='only count them, by state')
    add('info', _info, 'Show everything that is known of a task.', as_json).add_argument('uid', metavar='UID')
    for name, text in (('cat', 'Print the standard output of a task.'),
                       ('tail', 'Print the last lines of the standard output of a task.')):
        command = add(name, _print_output, text)
        command.add_argument('uid', metavar='UID')
        command.add_argument('file', nargs='?', metavar='FILE', help='a file in its sandbox instead')
        command.add_argument('--stderr', action='store_true', help='its standard error instead')
        command.set_defaults(lines=None, follow=False)
    command.add_argument('-n', '--lines', type=int, default=_LINES, metavar='N', help=f'(default: {_LINES})')
    command.add_argument('-f', '--follow', action='store_true', help='print what is written later, until the task ends')
    for name, text in (('cancel', 'Cancel tasks.'),
                       ('retry', 'Submit tasks that have failed or were cancelled again, as new tasks UID.retry1 ...')):
        command = add(name, _act, text, chosen, as_json)
        command.add_argument('uid', nargs='*', metavar='UID')
        command.add_argument('--all', action='store_true', help='all tasks of the session')
    return parser


def _filters() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group('which tasks')
    group.add_argument('--state', action='append', default=[], metavar='STATE', help='those in a state: waiting, '
                       'running, done, failed, canceled, or one of the states of tasks; can be given several times')
    group.add_argument('--failed', action='store_true', help='those that have failed, or that a time limit or a failed '
                       'dependency has ended')
    group.add_argument('--slow', action='store_true', help='those that take, or took, much longer than others of their '
                       'kind')
    group.add_argument('--name', metavar='PATTERN', help='those with this name, such as fit-*')
    group.add_argument('--node', metavar='PATTERN', help='those on this node')
    group.add_argument('--pilot', metavar='UID', help='those on this pilot')
    group.add_argument('--where', metavar='EXPR', help="those that meet a condition, such as 'cpu > 3 and exit_code == "
                       "1'; its names are the fields of --json")
    return parent


def _filtered(options: argparse.Namespace) -> dict[str, Any]:
    """Return the filters that were given."""
    return {name: value for name in ('state', 'failed', 'slow', 'name', 'node', 'pilot', 'where')
            if (value := getattr(options, name))}


def _chosen(options: argparse.Namespace, records: Records, after: int, *, reasons: bool) -> Iterator[Row]:
    """Yield the rows of the tasks that the options choose; wrong options raise `WrongUsage`."""
    filters = _filtered(options)
    try:
        yield from Selection(filters.pop('state', ()), **filters).rows(records, after, reasons=reasons)
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def _list(options: argparse.Namespace, records: Records) -> int:
    after = _find(records, options.after)[0] if options.after else 0
    rows = _chosen(options, records, after, reasons=not options.count)
    if options.count:
        counts = Counter(row['state'] for row in rows) if after or _filtered(options) else records.counts()
        if options.json:
            shared.print_json(counts)
        else:
            print_table(('STATE', 'TASKS'), ((state, str(count)) for state, count in sorted(counts.items())))
        return 0
    page = list(islice(rows, options.limit)) if options.limit else rows
    shared.print_rows(options, page, _COLUMNS, shorten=('ARGUMENTS', 'REASON', 'NAME', 'NODE'))
    if isinstance(page, list) and len(page) == options.limit and next(rows, None) is not None:
        print(f'there are more (the session has {records.count()} tasks): --after {page[-1]["uid"]} shows the next '
              f'ones, --limit {10 * options.limit} more at once', file=sys.stderr)
    return 0


def _find(records: Records, uid: str) -> Numbered:
    found = records.numbered(uid)
    if found is None:
        raise PilotError(f'there is no task {uid} in {records.uid} (rp task list)')
    return found


def _info(options: argparse.Namespace, records: Records) -> int:
    found = _find(records, options.uid)[1]
    history = found.get('history') or []
    shared.print_fields(options, row_of(found, records) | {
        'session': records.uid, 'stdout': output_of(found, records, 'stdout'),
        'stderr': output_of(found, records, 'stderr'),
        'history': history if options.json else [], 'description': found['description']})
    for attempt in history if not options.json else ():
        print(f'attempt {attempt.get("attempt", "?"):<4}{shown(attempt.get("reason"))}')
    return 0


def _print_output(options: argparse.Namespace, records: Records) -> int:
    output = Output(records, _find(records, options.uid)[1], options.file, stderr=options.stderr)
    output.tail(sys.stdout.buffer, options.lines, follow=options.follow)
    return 0


def _act(options: argparse.Namespace, records: Records) -> int:
    filters = _filtered(options)
    if bool(options.uid) == bool(filters or options.all):
        raise WrongUsage(f'name tasks, or choose them by options such as --state; rp task {options.command} --all '
                         'means all')
    for uid in options.uid:
        _find(records, uid)
    if options.command == 'retry' and not (options.uid or options.state or options.failed):
        options.state = ['failed', 'canceled']
    elif options.command == 'cancel' and not (options.uid or options.state):
        options.state = ['waiting', 'running']
    return act(options, records, options.command, options.uid or [
        row['uid'] for row in _chosen(options, records, 0, reasons=False)])

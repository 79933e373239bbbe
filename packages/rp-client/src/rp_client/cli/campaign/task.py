"""The command `rp task`: the tasks of a session, their data and outputs; cancels them, and runs them again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from rp_api.errors import PilotError
from rp_client.cli import options as shared
from rp_client.cli.commands import WrongUsage
from rp_client.cli.tables import print_table, shown, shown_clock, shown_size, shown_span

if TYPE_CHECKING:
    from rp_api.coordination.records import Numbered, Records
    from rp_client.inspect.rows import Row

_HEAD = ('UID', 'NAME', 'ARGUMENTS', 'STATE', 'REASON', 'NODE', 'START', 'ELAPSED', 'CPU', 'MEMORY')
_LINES = 10
"""Lines that `rp task tail` shows by default."""


def task(arguments: list[str]) -> int:
    """List and show the tasks of a session and their outputs, cancel them, or run them again."""
    options = make_parser().parse_args(arguments)
    run = {'list': _list, 'info': _info, 'cat': _cat, 'tail': _tail, 'cancel': _act, 'retry': _act}[options.command]
    return run(options)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    where, as_json, chosen = shared.where(), shared.as_json(), _filters()
    parser = argparse.ArgumentParser(prog='rp task', description=task.__doc__)
    commands = parser.add_subparsers(dest='command', required=True, metavar='ACTION')

    def add(name: str, text: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[*parents, where])

    command = add('list', 'List tasks in the order of their submission.', chosen, as_json)
    command.add_argument('--limit', type=int, default=shared.LIMIT, metavar='N', help='tasks at most; 0 for all '
                         f'(default: {shared.LIMIT})')
    command.add_argument('--after', metavar='UID', help='only tasks that were submitted after this one')
    command.add_argument('--count', action='store_true', help='only count them, by state')
    command = add('info', 'Show everything that is known of a task.', as_json)
    command.add_argument('uid', metavar='UID')
    for name, text in (('cat', 'Print the standard output of a task.'),
                       ('tail', 'Print the last lines of the standard output of a task.')):
        command = add(name, text)
        command.add_argument('uid', metavar='UID')
        command.add_argument('file', nargs='?', metavar='FILE', help='a file in its sandbox instead')
        command.add_argument('--stderr', action='store_true', help='its standard error instead')
    command.add_argument('-n', '--lines', type=int, default=_LINES, metavar='N', help=f'(default: {_LINES})')
    command.add_argument('-f', '--follow', action='store_true', help='print what is written later, until the task ends')
    for name, text in (('cancel', 'Cancel tasks.'),
                       ('retry', 'Submit tasks that have failed or were cancelled again, as new tasks UID.retry1 ...')):
        command = add(name, text, chosen, as_json)
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


def _chosen(options: argparse.Namespace, records: Records, after: int, *, reasons: bool = True) -> Iterator[Row]:
    """Yield the rows of the tasks that the options choose; wrong options raise `WrongUsage`."""
    from rp_client.inspect.select import Selection

    try:
        selection = Selection(options.state, failed=options.failed, slow=options.slow, name=options.name,
                              node=options.node, pilot=options.pilot, where=options.where)
        yield from selection.rows(records, after, reasons=reasons)
    except ValueError as error:
        raise WrongUsage(str(error)) from None


def _list(options: argparse.Namespace) -> int:
    with shared.records(options) as records:
        after = _find(records, options.after)[0] if options.after else 0
        rows = _chosen(options, records, after, reasons=not options.count)
        if options.count:
            return _count(options, records, rows)
        shown_rows = list(islice(rows, options.limit)) if options.limit else rows
        if options.json:
            shared.print_json_rows(shown_rows)
        else:
            print_table(_HEAD, map(_cells, shown_rows), shorten=('ARGUMENTS', 'REASON', 'NAME', 'NODE'))
        if isinstance(shown_rows, list) and shown_rows and len(shown_rows) == options.limit:
            _tell_rest(options, records, rows, shown_rows)
    return 0


def _count(options: argparse.Namespace, records: Records, rows: Iterator[Row]) -> int:
    counts: dict[str, int] = {}
    if any((options.after, options.state, options.failed, options.slow, options.name, options.node, options.pilot,
            options.where)):
        for row in rows:
            counts[row['state']] = counts.get(row['state'], 0) + 1
    else:
        counts = records.counts()
    if options.json:
        shared.print_json(counts)
    else:
        print_table(('STATE', 'TASKS'), ((state, str(count)) for state, count in sorted(counts.items())))
    return 0


def _tell_rest(options: argparse.Namespace, records: Records, rows: Iterator[Row], shown_rows: list[Row]) -> None:
    """Tell how many tasks there are, and how to see more, if there are more."""
    if next(rows, None) is not None:
        print(f'there are more (the session has {records.count()} tasks): --after {shown_rows[-1]["uid"]} shows the '
              f'next ones, --limit {10 * options.limit} more at once', file=sys.stderr)


def _cells(row: Row) -> tuple[str, ...]:
    return (row['uid'], shown(row['name']), shown(f'{row["program"] or "-"} {row["arguments"] or ""}'), row['state'],
            shown(row['reason']), shown(row['node']), shown_clock(row['started']), shown_span(row['duration']),
            shown_span(row['cpu']), shown_size(row['memory']))


def _find(records: Records, uid: str) -> Numbered:
    found = records.numbered(uid)
    if found is None:
        raise PilotError(f'there is no task {uid} in {records.uid} (rp task list)')
    return found


def _info(options: argparse.Namespace) -> int:
    from rp_api.values import as_json
    from rp_client.inspect.rows import output_of, row_of

    with shared.records(options) as records:
        found = _find(records, options.uid)[1]
        row: dict[str, Any] = row_of(found, records)
        row |= {'session': records.uid, 'stdout': output_of(found, records, 'stdout'),
                'stderr': output_of(found, records, 'stderr'), 'history': found.get('history') or [],
                'description': found['description']}
        if options.json:
            print(as_json(row))
            return 0
        forms = dict.fromkeys(('submitted', 'placed', 'started', 'ended'), shown_clock) | dict.fromkeys(
            ('duration', 'waiting', 'cpu', 'timeout'), shown_span) | dict.fromkeys(
            ('memory', 'read', 'written', 'gpu_memory', 'requested_memory'), shown_size)
        for name, value in row.items():
            if name not in ('description', 'history') and value not in (None, '', []) and value is not False:
                print(f'{name:11} {forms.get(name, shown)(value)}')
        for attempt in row['history']:
            print(f'attempt {attempt.get("attempt", "?"):<4}{shown(attempt.get("reason"))}')
        print(f'description {as_json(row["description"])}')
    return 0


def _cat(options: argparse.Namespace) -> int:
    from rp_client.inspect.outputs import Output

    with shared.records(options) as records:
        Output(records, _find(records, options.uid)[1], options.file, stderr=options.stderr).copy(sys.stdout.buffer)
    return 0


def _tail(options: argparse.Namespace) -> int:
    from rp_client.inspect.outputs import Output

    with shared.records(options) as records:
        output = Output(records, _find(records, options.uid)[1], options.file, stderr=options.stderr)
        output.tail(sys.stdout.buffer, options.lines, follow=options.follow)
    return 0


def _act(options: argparse.Namespace) -> int:
    from rp_client.cli.campaign.owner import act

    with shared.records(options) as records:
        uids: Iterable[str] = options.uid
        filtered = any((options.state, options.failed, options.slow, options.name, options.node, options.pilot,
                        options.where))
        if bool(options.uid) == (filtered or options.all):
            raise WrongUsage(f'name tasks, or choose them by options such as --state; rp task {options.command} --all '
                             'means all')
        if not options.uid:
            if options.command == 'retry' and not (options.state or options.failed):
                options.state = ['failed', 'canceled']
            elif options.command == 'cancel' and not options.state:
                options.state = ['waiting', 'running']
            uids = [row['uid'] for row in _chosen(options, records, 0, reasons=options.slow or bool(options.where))]
        else:
            for uid in options.uid:
                _find(records, uid)
        return act(options, records, options.command, list(uids))

"""The command `rp calls`: the function calls of RAPTOR."""

from __future__ import annotations

import argparse

from rp_client.cli import options as shared
from rp_client.cli.tables import print_table, shown, shown_span

_HEAD = ('FUNCTION', 'DONE', 'FAILED', 'CANCELED', 'RUNNING', 'WAITING', 'PER SECOND', 'MEAN', 'EXAMPLE', 'REASON')


def calls(arguments: list[str]) -> int:
    """Show the function calls of RAPTOR: counts, rates and failures by function."""
    from rp_client.inspect.calls import functions

    options = make_parser().parse_args(arguments)
    with shared.records(options) as records:
        rows = functions(records)
    if options.json:
        shared.print_json_rows(rows)
        return 0
    print_table(_HEAD, ((
        f'{row["function"]} {row["worker"] or ""}'.strip(), *(str(row[name]) for name in (
            'done', 'failed', 'canceled', 'running', 'waiting')),
        '-' if row['rate'] is None else f'{row["rate"]:.4g}', shown_span(row['mean']), shown(row['example']),
        shown(row['reason'])) for row in rows), shorten=('FUNCTION', 'REASON', 'EXAMPLE'))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    return argparse.ArgumentParser(
        prog='rp calls', description=calls.__doc__, parents=[shared.as_json(), shared.where()],
        epilog='Calls of executors and streams have no description: they are counted by worker, as their ranks have '
               'recorded them. rp task list shows described calls one by one.')

"""The command `rp calls`: the function calls of RAPTOR."""

from __future__ import annotations

import argparse

from rp_client.cli import options as shared
from rp_client.inspect.calls import functions

_COLUMNS: shared.Columns = {
    'FUNCTION': lambda row: f'{row["function"]} {row["worker"] or ""}'.strip(),
    **{name.upper(): name for name in ('done', 'failed', 'canceled', 'running')},
    'WAITING': lambda row: str(row['waiting']),   # a number, where tasks have the time
    'PER SECOND': lambda row: '-' if row['rate'] is None else f'{row["rate"]:.4g}',
    'MEAN': 'mean', 'EXAMPLE': 'example', 'REASON': 'reason'}


def calls(arguments: list[str]) -> int:
    """Show the function calls of RAPTOR: counts, rates and failures by function."""
    options = make_parser().parse_args(arguments)
    with shared.records(options) as records:
        rows = functions(records)
    shared.print_rows(options, rows, _COLUMNS, shorten=('FUNCTION', 'REASON', 'EXAMPLE'))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    return argparse.ArgumentParser(
        prog='rp calls', description=calls.__doc__, parents=[shared.as_json(), shared.where()],
        epilog='Calls of executors and streams have no description: they are counted by worker, as their ranks have '
               'recorded them. rp task list shows described calls one by one.')

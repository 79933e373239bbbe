"""The command `rp top`: a session, live in the terminal."""

from __future__ import annotations

import argparse
import sys

from rp_api.errors import PilotError
from rp_client.cli import options as shared
from rp_client.cli import stores
from rp_client.cli.tasks.top_lines import lines
from rp_client.inspect.overview import look

INTERVAL_S = 2.0
"""Seconds between two looks at a session, at least three times as long as a look takes."""


def top(arguments: list[str]) -> int:
    """Watch a session in the terminal: pilots, utilisation, states, rates, waiting and failed tasks."""
    options = make_parser().parse_args(arguments)
    if options.json or options.once:
        with shared.records(options) as records:
            found = look(records)
        if options.json:
            shared.print_json(found._asdict())
        else:
            print(*(''.join(text for text, _ in line).rstrip() for line in lines(found, [])), sep='\n')
        return 0
    if sys.stdout is None or not sys.stdout.isatty():
        raise PilotError('the output is no terminal: rp top --once prints the same once')
    try:
        from rp_client.cli.tasks.top_screen import TopScreen  # textual may be missing
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] not in ('textual', 'rich'):
            raise
        raise PilotError("rp top needs textual: pip install 'rp-client[top]'; rp top --once does without") from None

    place = stores.choose(options.base, options.dburl, options.session)
    TopScreen(lambda: place.store.records(place.where), options.interval).run()
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(prog='rp top', description=top.__doc__, parents=[shared.as_json(), shared.where()],
                                     epilog='q ends it, r looks again at once.')
    parser.add_argument('--once', action='store_true', help='print it once, without colours')
    parser.add_argument('--interval', type=float, default=INTERVAL_S, metavar='SECONDS',
                        help=f'time between two looks (default: {INTERVAL_S:g})')
    return parser

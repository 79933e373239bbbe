"""The command `rp pilot`: the pilots of a session, and the end of one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rp_api.errors import PilotError
from rp_client.cli import options as shared
from rp_client.cli.commands import WrongUsage
from rp_client.cli.tables import print_table, shown

if TYPE_CHECKING:
    from rp_api.coordination.records import Records

_HEAD = ('UID', 'RESOURCE', 'STATE', 'NODES', 'CORES', 'GPUS', 'TASKS', 'REASON')


def pilot(arguments: list[str]) -> int:
    """List, show and stop the pilots of a session."""
    options = make_parser().parse_args(arguments)
    run = {'list': _list, 'info': _info, 'stop': _stop}[options.command]
    return run(options)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parents = [shared.as_json(), shared.where()]
    parser = argparse.ArgumentParser(prog='rp pilot', description=pilot.__doc__)
    commands = parser.add_subparsers(dest='command', required=True, metavar='ACTION')
    commands.add_parser('list', help='list pilots', parents=parents)
    commands.add_parser('info', help='show everything that is known of a pilot', parents=parents).add_argument(
        'uid', metavar='UID')
    command = commands.add_parser('stop', help='end pilots, and the tasks that run on them', parents=parents)
    command.add_argument('uid', nargs='*', metavar='UID')
    command.add_argument('--all', action='store_true', help='all pilots of the session')
    return parser


def _list(options: argparse.Namespace) -> int:
    from rp_client.inspect.rows import pilot_row

    with shared.records(options) as records:
        rows = [pilot_row(each, records) | {'tasks': records.count_on(each['uid'])} for each in records.pilots()]
    if options.json:
        shared.print_json_rows(rows)
        return 0
    print_table(_HEAD, ((row['uid'], shown(row['resource']), row['state'], *(
        shown(row[name]) for name in ('nodes', 'cores', 'gpus', 'tasks', 'reason'))) for row in rows),
        shorten=('REASON', 'RESOURCE'))
    return 0


def _info(options: argparse.Namespace) -> int:
    from rp_api.values import as_json
    from rp_client.inspect.rows import pilot_row

    with shared.records(options) as records:
        found = _find(records, options.uid)
        row = pilot_row(found, records) | {'tasks': records.count_on(found['uid']),
            'session': records.uid, 'sandbox': (found['record'].get('sandboxes') or {}).get('pilot'),
            'job': (records.note(f'job.{found["uid"]}') or {}).get('handle'), 'log': found.get('notices') or [],
            'description': {name: value for name, value in found['record'].get('description', {}).items()
                            if value not in (None, '', 0, [], {}, False)}}
    if options.json:
        print(as_json(row))
        return 0
    for name, value in row.items():
        if value not in (None, '', [], {}):
            print(f'{name:12}{as_json(value) if isinstance(value, dict) else shown(value)}')
    return 0


def _find(records: Records, uid: str) -> Mapping[str, Any]:
    found = next((each for each in records.pilots() if each['uid'] == uid), None)
    if found is None:
        raise PilotError(f'there is no pilot {uid} in {records.uid} (rp pilot list)')
    return found


def _stop(options: argparse.Namespace) -> int:
    from rp_client.cli.campaign.owner import act

    if bool(options.uid) == options.all:
        raise WrongUsage('name pilots, or say --all')
    with shared.records(options) as records:
        for uid in options.uid:
            _find(records, uid)
        live = [each['uid'] for each in records.pilots() if each['state'] not in ('DONE', 'FAILED', 'CANCELED')
                and not each['record'].get('whole')]
        return act(options, records, 'stop', options.uid or live)

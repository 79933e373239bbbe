"""The command `rp pilot`: the pilots of a session, and the end of one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.description.partitions import WHOLE
from rp_api.errors import PilotError
from rp_client.cli import options as shared
from rp_client.cli.commands import WrongUsage
from rp_client.cli.tasks.owner import act
from rp_client.inspect.rows import pilot_row

if TYPE_CHECKING:
    from rp_api.coordination.records import Records

_COLUMNS = {name.upper(): name for name in ('uid', 'resource', 'state', 'nodes', 'cores', 'gpus', 'tasks', 'reason')}


def pilot(arguments: list[str]) -> int:
    """List, show and stop the pilots of a session."""
    options = make_parser().parse_args(arguments)
    with shared.records(options) as records:
        return options.run(options, records)   # type: ignore[no-any-return]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(prog='rp pilot', description=pilot.__doc__)
    add = shared.actions(parser, shared.as_json(), shared.where())
    add('list', _list, 'List pilots.')
    add('info', _info, 'Show everything that is known of a pilot.').add_argument('uid', metavar='UID')
    command = add('stop', _stop, 'End pilots, and the tasks that run on them.')
    command.add_argument('uid', nargs='*', metavar='UID')
    command.add_argument('--all', action='store_true', help='all pilots of the session')
    return parser


def _row(pilot: Mapping[str, Any], records: Records) -> dict[str, Any]:
    return pilot_row(pilot, records) | {'tasks': records.count_on(pilot['uid'])}


def _list(options: argparse.Namespace, records: Records) -> int:
    shared.print_rows(options, [_row(each, records) for each in records.pilots()], _COLUMNS,
                      shorten=('REASON', 'RESOURCE'))
    return 0


def _info(options: argparse.Namespace, records: Records) -> int:
    found = _find(records, options.uid)
    shared.print_fields(options, _row(found, records) | {
        'session': records.uid, 'sandbox': (found['record'].get('sandboxes') or {}).get('pilot'),
        'job': (records.note(f'job.{found["uid"]}') or {}).get('handle'), 'log': found.get('notices') or [],
        'description': {name: value for name, value in found['record'].get('description', {}).items()
                        if value not in (None, '', 0, [], {}, False)}})
    return 0


def _find(records: Records, uid: str) -> Mapping[str, Any]:
    found = shared.find_pilot(records, uid)
    if found is None:
        raise PilotError(f'there is no pilot {uid} in {records.uid} (rp pilot list)')
    return found


def _stop(options: argparse.Namespace, records: Records) -> int:
    if bool(options.uid) == options.all:
        raise WrongUsage('name pilots, or say --all')
    for uid in options.uid:
        _find(records, uid)
    live = [each['uid'] for each in records.pilots()
            if each['state'] not in states.FINAL and not each['record'].get(WHOLE)]
    return act(options, records, 'stop', options.uid or live)

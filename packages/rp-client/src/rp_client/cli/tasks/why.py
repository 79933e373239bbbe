"""The command `rp why`: the reason of a task or pilot."""

from __future__ import annotations

import argparse

from rp_api.errors import PilotError
from rp_api.reasons.explain import explanation, reason_of, reason_of_pilot
from rp_client.cli import options as shared


def why(arguments: list[str]) -> int:
    """Tell why a task or pilot waits, has failed or is slow, and what to do about it."""
    options = make_parser().parse_args(arguments)
    with shared.records(options) as records:
        task = records.task(options.uid)
        entity = task or shared.find_pilot(records, options.uid)
        if entity is None:
            raise PilotError(f'there is no task or pilot {options.uid} in {records.uid} (rp task list, rp pilot list)')
        if options.json:
            reason = (reason_of if task else reason_of_pilot)(entity, records)
            shared.print_json({'uid': options.uid, 'state': entity['state'], 'session': records.uid,
                               'reason': reason.as_dict() if reason else None})
        else:
            print(explanation(entity, records, pilot=task is None))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(prog='rp why', description=why.__doc__, parents=[shared.as_json(), shared.where()])
    parser.add_argument('uid', metavar='TASK|PILOT', help='the uid of a task, pilot or partition')
    return parser

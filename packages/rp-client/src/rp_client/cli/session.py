"""The command `rp session`: manages sessions in directories and databases."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.description.partitions import WHOLE
from rp_api.errors import PilotError
from rp_api.values import as_json
from rp_client.cli import options as shared
from rp_client.cli import stores
from rp_client.cli.clean import run as clean
from rp_client.cli.commands import WrongUsage
from rp_client.cli.stores import Description
from rp_client.cli.tables import print_table, shown_size, shown_time
from rp_client.inspect import table_files
from rp_client.service.handover import NAME as SERVED

if TYPE_CHECKING:
    from rp_client.handles.session import Session

def session(arguments: list[str]) -> int:
    """List, show, export and purge sessions, and attach to or serve those that run without their application."""
    options = make_parser().parse_args(arguments)
    if options.command not in ('list', 'purge'):
        options.uid = options.uid or options.session
    return options.run(options)   # type: ignore[no-any-return]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(prog='rp session', description=session.__doc__)
    add = shared.actions(parser)
    any_of, one_of = shared.where(session=False), shared.where()
    one_of.add_argument('uid', nargs='?', metavar='UID', help='the same as --session UID')
    add('list', _list, 'List sessions.', shared.as_json(), any_of)
    command = add('show', _show, 'Show one session, with its pilots and their partitions.', shared.as_json(), one_of)
    command.add_argument('--tasks', action='store_true', help='list the tasks, too')
    command = add('export', _export, 'Write all records of a session as lines of JSON, or its tasks as a table.',
                  one_of)
    command.add_argument('--format', default='json', choices=('json', 'csv', 'parquet'),
                         help='json: all records (default); csv and parquet: a table of the tasks')
    command.add_argument('-o', '--output', type=Path, metavar='FILE', help='output file (default: standard output)')
    command = add('purge', _purge, 'Remove the data of sessions that have ended; the same as rp clean --only session '
                  '--yes.', any_of)
    command.add_argument('uid', nargs='*', metavar='UID')
    command.add_argument('--all-closed', action='store_true', help='all closed sessions of the directory')
    command.add_argument('--older-than', type=shared.age, default=0.0, metavar='AGE', help='only those closed so long '
                         'ago, such as 7d')
    hub = argparse.ArgumentParser(add_help=False)
    hub.add_argument('--hub', metavar='tcp://HOST:PORT', help='the stand-alone hub that serves it')
    add('serve', _serve, 'Run the client of a session in place of its application, until one attaches or all tasks and '
        'pilots have ended. Ctrl-C leaves it running.', hub, one_of)
    command = add('attach', _attach, 'Follow a session that runs without its application, until its tasks have ended. '
                  'Ctrl-C leaves it running.', hub, one_of)
    command.add_argument('--cancel', action='store_true', help='end its pilots and close it, without waiting')
    command.add_argument('--wait', action='store_true', help='exit code 1 if tasks failed or were cancelled')
    return parser


def _list(options: argparse.Namespace) -> int:
    found = [each for store in stores.stores(options.base, options.dburl) for each in store.sessions()]
    found.sort(key=lambda each: each['created'])
    if options.json:
        shared.print_json(found)
    elif found:
        print_table(('SESSION', 'CREATED', 'STATE', 'PILOTS', 'TASKS', 'DONE', 'FAILED', 'OTHER', 'SIZE'),
                     (_row(each) for each in found))
    else:
        print('no sessions', file=sys.stderr)
    return 0


def _row(found: Description) -> tuple[str, ...]:
    tasks = found['tasks']
    total = sum(tasks.values())
    done, failed = tasks.get('DONE', 0), tasks.get('FAILED', 0)
    return (found['uid'], shown_time(found['created']), _state(found), str(sum(found['pilots'].values())), str(total),
            str(done), str(failed), str(total - done - failed), shown_size(found['size']))


def _show(options: argparse.Namespace) -> int:
    store, found = stores.find(options.base, options.dburl, options.uid)
    records: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with store.records(found['where']) as opened:
        for record in opened.export():
            records[record['type']].append(record)
    pilots, partitions, tasks = records['pilot'], records['partition'], records['task']
    found['tasks'] = _count(tasks)
    if options.json:
        found |= {'pilots': pilots, 'partitions': partitions} | ({'task_list': tasks} if options.tasks else {})
        shared.print_json(found)
        return 0
    print(f'{found["uid"]}\nstate    {_state(found)}\ncreated  {shown_time(found["created"])}\n'
          f'where    {found["where"]}')
    if found['closed']:
        print(f'closed   {shown_time(found["closed"])}')
    print(f'size     {shown_size(found["size"])}\ntasks    {_counts(found["tasks"])}\n'
          f'pilots   {_counts(_count(pilots))}')
    for pilot in pilots:
        print(f'  {_end(pilot)}')
        for partition in partitions:
            if partition['record'][WHOLE] == pilot['uid']:
                print(f'    {_end(partition)}')
    for task in tasks:
        if 'transport' in task:   # a RAPTOR worker that spans nodes
            print(f'workers  {task["uid"]}  {task["state"]}  {task["transport"]} between its nodes')
    if options.tasks:
        print()
        print_table(('TASK', 'PILOT', 'STATE', 'EXIT', 'REASON'), (
            (task['uid'], task.get('pilot') or '-', task['state'], str(task.get('exit_code', '-')),
             _reason(task).strip()) for task in tasks))
    return 0


def _export(options: argparse.Namespace) -> int:
    from rp_client.inspect.table import stored_table

    if options.format == 'parquet' and options.output is None:
        raise WrongUsage('Parquet is not text: name a file with --output')
    store, found = stores.find(options.base, options.dburl, options.uid)
    with store.records(found['where']) as records:
        if options.format == 'parquet':
            table_files.write_parquet(stored_table(records), options.output)
            return 0
        with (open(options.output, 'x', encoding='utf-8', newline='') if options.output
              else nullcontext(sys.stdout)) as file:
            if options.format == 'csv':
                table_files.write_csv(stored_table(records), file)
            else:
                file.writelines(f'{as_json(record)}\n' for record in chain([{'type': 'session', **found}],
                                                                           records.export()))
    return 0


def _purge(options: argparse.Namespace) -> int:
    """Remove the data of sessions, as `rp clean --only session --yes` does."""
    if bool(options.uid) == options.all_closed or (options.older_than and not options.all_closed):
        raise WrongUsage('name sessions, or use --all-closed, with or without --older-than')
    return clean(argparse.Namespace(
        **vars(options) | {'yes': True, 'everywhere': False, 'only': ['session'], 'larger_than': 0, 'json': False,
                           'closed': options.all_closed}))


def _attach(options: argparse.Namespace) -> int:
    where = _place(options)   # sets the uid
    return follow(options.uid, where, cancel=options.cancel, wait=options.wait)


def _serve(options: argparse.Namespace) -> int:
    from rp_client.service.resident import serve  # takes as long as the whole command without it

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger('radical.pilot').addHandler(logging.NullHandler())   # errors are printed as one sentence
    where = _place(options)
    print(f'{options.uid} is served by this process ({os.getpid()})', file=sys.stderr, flush=True)
    with suppress(KeyboardInterrupt):
        print(f'{options.uid} is left: {serve(options.uid, where)}', file=sys.stderr)
    return 0


def _place(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments with which `Session` attaches to the session, whose uid is in the options then."""
    if options.hub:
        if not options.uid:
            raise WrongUsage('name the session: --hub knows no latest one')
        _check_served(options.hub, options.uid)
        return {'proxy_url': options.hub, 'cfg': {'base': str(options.base or Path.cwd())}}
    store, found = stores.find(options.base, options.dburl, options.uid)
    options.uid = found['uid']
    if found['state'] == 'closed':
        raise PilotError(f'{options.uid} is closed: rp session show {options.uid} shows its results')
    if found['state'] == 'open' and not Path(found['where'], SERVED).exists():
        raise PilotError(f'{options.uid} has its application: it is {_state(found)}')
    where = store.options(found)
    if 'dburl' not in where:   # its hub is in its directory, whatever the environment names
        for name in (stores.DBURL, 'RADICAL_PILOT_PROXY_URL'):
            os.environ.pop(name, None)
    return where


def _check_served(url: str, uid: str) -> None:
    """Raise `PilotError` for an unknown session, for which the hub would start a new one."""
    from rp_api.coordination.service import access as hub_access
    from rp_api.coordination.service.request import ask

    access, url = hub_access.find(url)
    if not ask(access, url, 'knows', {'session': uid}):
        raise PilotError(f'the hub at {url} has no open session {uid} (rp hub status)')


# formats of the output


def _state(found: Description) -> str:
    application = found.get('application')
    if found['state'] == 'open' and application:
        return f'open (pid {application["pid"]} on {application["host"]})'
    return str(found['state'])


def _count(records: Iterable[dict[str, Any]]) -> dict[str, int]:
    return Counter(record['state'] for record in records)


def _counts(counts: dict[str, int]) -> str:
    order = sorted(counts, key=lambda state: (state not in states.FINAL, state))
    return ', '.join(f'{counts[state]} {state}' for state in order) or 'none'


def _end(pilot: dict[str, Any]) -> str:
    """Return the state of a pilot or partition, in one line."""
    return f'{pilot["uid"]}  {pilot["state"]}{_reason(pilot)}'


def _reason(record: dict[str, Any]) -> str:
    """Return why a pilot or task has ended, in one line."""
    text = record.get('exception') or record.get('reason') or ''
    return '  ' + ' '.join(str(text).split()) if text and record['state'] != 'DONE' else ''


def follow(uid: str, where: dict[str, Any], *, cancel: bool, wait: bool) -> int:
    """Attach to a session until its tasks have ended, or close it (`cancel`), and return the exit code."""
    from rp_client.handles.session import Session  # takes as long as the whole command without it

    logging.getLogger('radical.pilot').addHandler(logging.NullHandler())   # errors are printed as one sentence
    session = Session(uid=uid, **where)
    leave = not cancel and session.attached
    try:
        if not session.attached:
            raise PilotError(f'there was no open session {uid} to attach to')
        if cancel:
            print(f'{uid} is closed', file=sys.stderr)
            return 0
        with suppress(KeyboardInterrupt):
            _wait(session)
        failed = _report(session)
    finally:
        session.close(terminate=not leave)
    return 1 if wait and failed else 0


def _wait(session: Session) -> None:
    """Return when all tasks of all managers have ended."""
    from rp_client.progress import TaskProgress

    tasks = [task for tmgr in session.get_task_managers() for task in tmgr.get_tasks()]
    left = sum(task.state not in states.FINAL for task in tasks)
    print(f'{session.uid}: {len(tasks)} tasks, {left} of them have not ended yet', file=sys.stderr, flush=True)
    for tmgr in session.get_task_managers():
        waiting = sum(task.state not in states.FINAL for task in tmgr.get_tasks())
        with TaskProgress(tmgr, waiting):
            tmgr.wait_tasks()


def _report(session: Session) -> bool:
    """Print the states of tasks and pilots, and return whether a task has a state other than DONE."""
    counts = Counter(task.state for tmgr in session.get_task_managers() for task in tmgr.get_tasks())
    pilots = [pilot for pmgr in session.get_pilot_managers() for pilot in pmgr.get_pilots()]
    live = [pilot.uid for pilot in pilots if pilot.state not in states.FINAL]
    print('tasks: ' + (', '.join(f'{count} {state}' for state, count in sorted(counts.items())) or 'none'))
    print(f'{session.uid} stays open' + (f', with {", ".join(live)}' if live else '')
          + f'; rp session attach {session.uid} --cancel ends it')
    return bool(set(counts) - {states.DONE})

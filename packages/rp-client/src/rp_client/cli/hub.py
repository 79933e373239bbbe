"""The command `rp hub`: stand-alone hubs, which serve the sessions of one user on a login node or a service node."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from rp_api.coordination.service import access as hub_access
from rp_api.coordination.service import main
from rp_api.coordination.service.access import HubAccess
from rp_api.coordination.service.request import ask
from rp_api.errors import CoordinationError
from rp_api.system.network import interfaces, resolved
from rp_client.cli import options as shared

STATUS_TIMEOUT = 5.0
"""Seconds to wait for the status of a hub."""


def hub(arguments: list[str]) -> int:
    """Start, inspect and stop a stand-alone hub that serves several sessions."""
    options = make_parser().parse_args(arguments)
    return {'start': _start, 'status': _status, 'stop': _stop, 'list': _list}[options.command](options)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(prog='rp hub', description=hub.__doc__)
    commands = parser.add_subparsers(dest='command', required=True, metavar='ACTION')
    as_json = [shared.as_json()]
    start = commands.add_parser('start', help='start a hub in the background', parents=as_json)
    start.add_argument('--listen', metavar='tcp://HOST[:PORT]', type=_address,
                       help='a network interface, an address or the name of this host (default: the address of the '
                            'last start, else tcp://127.0.0.1 with any free port)')
    start.add_argument('--ports', metavar='FROM-TO', type=_ports, help='ports for sessions (default: any free ones)')
    start.add_argument('--directory', type=Path, metavar='DIR',
                       help='directory of its sessions (default: ~/.radical/pilot/hubs/<name of this host>)')
    start.add_argument('--foreground', action='store_true', help='stay in the foreground until Ctrl-C')
    for name, text in (('status', 'show the status of a hub, and its sessions'), ('stop', 'end a hub')):
        command = commands.add_parser(name, help=text, parents=as_json)
        command.add_argument('hub', nargs='?', metavar='tcp://HOST:PORT', help='URL of the hub (default: the only one)')
        if name == 'stop':
            command.add_argument('--force', action='store_true',
                                 help='even if sessions are open; a hub started again in its directory resumes them')
    commands.add_parser('list', help='list the hubs with an access file on this host', parents=as_json)
    return parser


def _address(text: str) -> str:
    """Return the address with a numeric host, as sockets require, or with the name of an interface."""
    match = re.fullmatch(r'tcp://([^:/\s]+)(:[0-9]{1,5})?', text)
    if match is None:
        raise argparse.ArgumentTypeError(f'{text!r} is not of the form tcp://HOST[:PORT]')
    host, port = match[1], match[2] or ''
    if host in interfaces():
        return f'tcp://{host}{port}'
    found = resolved(host)
    if not found:
        raise argparse.ArgumentTypeError(f'{host!r} is neither an interface nor a known host')
    return f'tcp://{found}{port}'


def _ports(text: str) -> tuple[int, int]:
    match = re.fullmatch(r'([0-9]{1,5})-([0-9]{1,5})', text)
    if match is None or not 0 < int(match[1]) <= int(match[2]) < 65536:
        raise argparse.ArgumentTypeError(f'{text!r} is not of the form FROM-TO, with ports from 1 to 65535')
    return int(match[1]), int(match[2])


def _start(options: argparse.Namespace) -> int:
    directory = options.directory or hub_access.access_directory() / hub_access.short_name()
    config = {'directory': str(directory.absolute()), 'listen': options.listen or '', 'ports': options.ports}
    told = shared.print_json if options.json else _told
    if options.foreground:
        return main.run(config, told)
    answer = main.start(config)
    told(answer)
    return 0 if answer['ok'] else 1


def _told(answer: dict[str, Any]) -> None:
    if answer['ok']:
        print(f'{answer["url"]} (process {answer["pid"]}), access file {answer["access"]}', flush=True)
    else:
        print(f'rp hub: {answer["error"]}', file=sys.stderr)


def _chosen(url: str | None) -> tuple[HubAccess, str]:
    """Return the access file and URL of the hub that the arguments name."""
    if url is not None:
        return hub_access.find(url)
    known = list(hub_access.all_known())
    if len(known) != 1:
        names = ', '.join(access.url for access in known)
        raise CoordinationError(f'which hub? There are {names}' if known else
                                f'there is no hub: no access file is in {hub_access.access_directory()}')
    return known[0], known[0].url


def _status(options: argparse.Namespace) -> int:
    access, url = _chosen(options.hub)
    status = ask(access, url, 'status', timeout=STATUS_TIMEOUT)
    if options.json:
        shared.print_json({'url': access.url, **status})
        return 0
    print(f'{access.url} on {status["host"]} (process {status["pid"]})\n'
          f'directory    {status["directory"]}\n'
          f'access file  {hub_access.path_of(access.host, hub_access.split_url(access.url)[1])}\n'
          f'sessions     {len(status["sessions"])}')
    for session in status['sessions']:
        print(f'  {session["uid"]}  {session["state"]}  {session["endpoint"]}  process {session["pid"]}'
              + (f'  ({session["reason"]})' if session['reason'] else ''))
    return 0


def _stop(options: argparse.Namespace) -> int:
    access, url = _chosen(options.hub)
    left = ask(access, url, 'stop', {'force': options.force})
    if options.json:
        shared.print_json({'url': access.url, 'sessions': left})
        return 0
    print(f'{access.url} has ended' + (f', and serves these sessions no more: {", ".join(left)}' if left else ''))
    return 0


def _list(options: argparse.Namespace) -> int:
    found = []
    for access in hub_access.all_known():
        try:
            sessions = len(ask(access, access.url, 'status', timeout=STATUS_TIMEOUT)['sessions'])
            how = f'{sessions} session{"" if sessions == 1 else "s"}'
        except CoordinationError as error:
            how = str(error)
        found.append({'url': access.url, 'host': access.host, 'status': how})
    if options.json:
        shared.print_json(found)
    else:
        print(*('  '.join(each.values()) for each in found), sep='\n', end='\n' if found else '')
    return 0

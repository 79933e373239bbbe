"""The command `rp platforms`: lists, shows and checks the definitions of platforms."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rp_api.platforms import ResourceConfig, get_platform, get_resource_configs
from rp_api.platforms.definition import UNITS
from rp_client.platform_check.check import BAD, check

_WIDTH = 32
"""Width of the column with names."""


def platforms(arguments: list[str]) -> int:
    """List, show and check the platforms that pilots can run on."""
    options = make_parser().parse_args(arguments)
    return {'list': _list, 'show': _show, 'check': _check}[options.command](options)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(prog='rp platforms', description=platforms.__doc__)
    commands = parser.add_subparsers(dest='command', required=True, metavar='COMMAND')
    listing = commands.add_parser('list', help='list the platforms')
    listing.add_argument('pattern', nargs='?', default='*', metavar='PATTERN', help='labels, for example ornl.*')
    listing.add_argument('--all', action='store_true', help='include retired platforms')
    listing.add_argument('--json', action='store_true', help='print the definitions as JSON')
    for name, text in (('show', 'show the definition of a platform'),
                       ('check', 'compare a definition with the platform itself; no job is submitted')):
        command = commands.add_parser(name, help=text)
        command.add_argument('label', metavar='LABEL', help='the platform, for example ornl.frontier')
        command.add_argument('--schema', help="access schema (default: the platform's default)")
        command.add_argument('--json', action='store_true', help='print JSON; show: as in a definition file')
    return parser


def _list(options: argparse.Namespace) -> int:
    found = {f'{site}.{name}': config for site, configs in get_resource_configs().items()
             for name, config in configs.items() if fnmatch.fnmatchcase(f'{site}.{name}', options.pattern)}
    known, found = found, {label: config for label, config in found.items() if options.all or not config.retired}
    if options.json:
        print(json.dumps({label: found[label].as_dict() for label in sorted(found)}, indent=1))
        return 0
    if not found:
        hint = ' except retired ones: add --all' if known else ''
        print(f'rp platforms: no label matches {options.pattern!r}{hint}', file=sys.stderr)
        return 1
    width = max(map(len, found))
    for label in sorted(found):
        print(f'{label:{width}}  {_node(found[label]):34}  {found[label].description}')
    return 0


def _node(config: ResourceConfig) -> str:
    """Return a short description of a node."""
    cores = f'{config.cores_per_node} cores' if config.cores_per_node else '? cores'
    gpus = f', {config.gpus_per_node} GPUs' if config.gpus_per_node else ''
    return f'{config.resource_manager:8} {cores}{gpus}'


def _show(options: argparse.Namespace) -> int:
    config = get_platform(options.label, options.schema)
    values = {name: value for name, value in config.as_dict().items() if value not in ('', [], {}, None)}
    if options.json:
        print(json.dumps({options.label.partition('.')[2]: values}, indent=4))
        return 0
    for name, value in values.items():
        for line in _lines(name, value):
            print(line)
    return 0


def _lines(name: str, value: Any, indent: str = '') -> Iterator[str]:
    """Yield the lines of a value with its unit; items of a dict follow below, without empty ones."""
    if not isinstance(value, Mapping):
        yield f'{indent}{name:{_WIDTH - len(indent)}}{_text(name, value)}'
    elif value:
        yield f'{indent}{name}'
        for key, each in value.items():
            if each not in ('', [], {}):
                yield from _lines(key, each, indent + '    ')


def _text(name: str, value: Any) -> str:
    """Return a value with its unit; 0 is explained for values that are discovered."""
    if name in UNITS and value == 0:
        return 'as the machine or the batch system reports'
    if name in UNITS:
        return f'{value} {UNITS[name]}'
    return ', '.join(map(str, value)) if isinstance(value, list) else str(value)


def _check(options: argparse.Namespace) -> int:
    found = []
    for finding in check(get_platform(options.label, options.schema)):
        found.append(finding)
        if not options.json:
            print(f'{finding.verdict:6}{finding.name:12}{finding.words}', flush=True)
    if options.json:
        print(json.dumps([finding._asdict() for finding in found], indent=1))
    return int(any(finding.verdict == BAD for finding in found))

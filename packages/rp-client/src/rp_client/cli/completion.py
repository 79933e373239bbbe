"""The command `rp completion`: commands, options and uids for the shell, from the parsers of the commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise

from rp_api.errors import PilotError
from rp_client.cli import commands

MAX_UIDS = 200
"""Uids of tasks that are offered at most."""

_BASH = '''_rp() {
    local IFS=$'\\n'
    COMPREPLY=($(rp completion words "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null))
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _rp rp
'''

_ZSH = '''#compdef rp
_rp() {
    local -a found
    found=("${(@f)$(rp completion words "$((CURRENT - 1))" "${words[@]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _rp rp
'''

_SCRIPTS = {'bash': _BASH, 'zsh': _ZSH}


def completion(arguments: list[str]) -> int:
    """Print the script by which bash or zsh completes commands, options and uids."""
    if arguments[:1] == ['words']:   # what the scripts call
        with suppress(PilotError, OSError, ValueError):
            sys.stdout.writelines(f'{word}\n' for word in words(int(arguments[1]), arguments[2:]))
        return 0
    print(_SCRIPTS[make_parser().parse_args(arguments).shell], end='')
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog='rp completion', description=completion.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='bash: eval "$(rp completion bash)" in ~/.bashrc\n'
               'zsh:  eval "$(rp completion zsh)" in ~/.zshrc, after compinit')
    parser.add_argument('shell', choices=sorted(_SCRIPTS))
    return parser


def words(position: int, line: Sequence[str]) -> list[str]:
    """Return what the word at a position of a command line, whose first word is `rp`, can be."""
    start = line[position] if position < len(line) else ''
    if position == 1:
        return _starting([*(command.name for command in commands.all_commands()), '--help', '--version'], start)
    command = commands.find(line[1])
    if command is None or command.origin != commands.OWN:   # others have no parser that is known
        return []
    parser, before = import_module(command.where.partition(':')[0]).make_parser(), list(line[2:position])
    actions = _subparsers(parser)
    action = next((word for word in before if word in actions), None)
    if actions and action is None:
        return _starting([*actions, '-h', '--help'] if not start.startswith('-') else _options(parser), start)
    parser = actions.get(action or '', parser)
    option = _option(parser, before[-1]) if before else None
    if option is not None and option.nargs != 0:
        return _values(option, start, before)
    if start.startswith('-'):
        return _starting(_options(parser), start)
    given = sum(not word.startswith('-') for word in before if word != action)
    positionals = [each for each in parser._get_positional_actions() if each.dest != 'command']
    wanted = positionals[min(given, len(positionals) - 1)] if positionals else None
    return _values(wanted, start, before) if wanted is not None else _starting(_options(parser), start)


def _values(option: argparse.Action, start: str, before: Sequence[str]) -> list[str]:
    """Return the values of an option or argument that begin so."""
    if option.choices:
        return _starting(map(str, option.choices), start)
    wants = f'{option.dest} {option.metavar}'
    of_session = option.dest == 'uid' and (option.nargs == '?' or option.metavar == 'SESSION')
    if option.dest == 'session' or '--session' in option.option_strings or of_session:
        from rp_client.cli import stores

        return _starting({place.uid for store in stores.stores(None, None) for place in store.places()}, start)
    if option.dest == 'state':
        from rp_api import states

        return _starting(['waiting', 'running', *map(str.lower, states.FINAL)], start)
    if 'uid' in option.dest or 'UID' in wants or 'TASK' in wants:
        return _uids(start, before)
    return []


def _uids(start: str, before: Sequence[str]) -> list[str]:
    """Return the uids of pilots and tasks of the session that is meant, if they begin so."""
    from rp_client.cli import stores

    session = next((value for name, value in pairwise(before) if name == '--session'), None)
    with suppress(PilotError), stores.opened(None, None, session) as records:
        found = _starting([pilot['uid'] for pilot in records.pilots()], start)
        return [*found, *records.uids(start, MAX_UIDS)]
    return []


# argparse has no public way to look at a parser


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
    return dict(found.choices) if found is not None else {}


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return sorted(name for option in parser._actions for name in option.option_strings)


def _option(parser: argparse.ArgumentParser, name: str) -> argparse.Action | None:
    return next((option for option in parser._actions if name in option.option_strings), None)


def _starting(found: Iterable[str], start: str) -> list[str]:
    return sorted(each for each in found if each.startswith(os.fspath(start)))

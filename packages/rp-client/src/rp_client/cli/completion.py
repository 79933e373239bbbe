"""The command `rp completion`: commands, options and uids for the shell, from the parsers of the commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from typing import Any

from rp_api import states
from rp_api.errors import PilotError
from rp_client.cli import commands, stores

MAX_UIDS = 200
"""Uids of tasks that are offered at most."""

_SCRIPTS = {'bash': '''_rp() {
    local IFS=$'\\n'
    COMPREPLY=($(rp completion words "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null))
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _rp rp
''', 'zsh': '''#compdef rp
_rp() {
    local -a found
    found=("${(@f)$(rp completion words "$((CURRENT - 1))" "${words[@]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _rp rp
'''}


class _Parser(argparse.ArgumentParser):
    """A copy of a parser of `argparse`, which has no public way to look at it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(parents=[parser], add_help=False)
        self.options: dict[str, argparse.Action] = self._option_string_actions
        self.positionals = [each for each in self._get_positional_actions() if not isinstance(each.choices, dict)]
        self.actions: dict[str, Any] = next((each.choices for each in self._get_positional_actions()   # sub-parsers
                                             if isinstance(each.choices, dict)), {})


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
    return sorted(word for word in _words(list(line[1:position]), start) if word.startswith(start))


def _words(before: list[str], start: str) -> Iterable[str]:
    """Return words that may follow others."""
    if not before:
        return [*(command.name for command in commands.all_commands()), '--help', '--version']
    command = commands.find(before[0])
    if command is None or command.origin != commands.OWN:   # others have no parser that is known
        return []
    parser = _Parser(import_module(command.where.partition(':')[0]).make_parser())
    action = next((word for word in before[1:] if word in parser.actions), None)
    if parser.actions and action is None:
        return [*parser.actions, *parser.options]
    parser = _Parser(parser.actions[action]) if action else parser
    option = parser.options.get(before[-1])
    if option is not None and option.nargs != 0:
        return _values(option, start, before)
    given = sum(not word.startswith('-') for word in before[1:]) - bool(action)
    if start.startswith('-') or not parser.positionals:
        return parser.options
    return _values(parser.positionals[min(given, len(parser.positionals) - 1)], start, before)


def _values(option: argparse.Action, start: str, before: Sequence[str]) -> Iterable[str]:
    """Return the values of an option or argument."""
    if option.choices:
        return map(str, option.choices)
    wants = f'{option.dest} {option.metavar}'
    if option.dest in ('session', 'chosen') or wants == 'uid SESSION' or (option.dest == 'uid' and option.nargs == '?'):
        return {place.uid for store in stores.stores(None, None) for place in store.places()}
    if option.dest == 'state':
        return ['waiting', 'running', *map(str.lower, states.FINAL)]
    if 'UID' not in wants and 'TASK' not in wants:
        return []
    session = next((value for name, value in pairwise(before) if name == '--session'), None)
    with suppress(PilotError), stores.opened(None, None, session) as records:
        return [*(pilot['uid'] for pilot in records.pilots()), *records.uids(start, MAX_UIDS)]
    return []

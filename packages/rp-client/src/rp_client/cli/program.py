"""The program `rp`, which runs sub-commands.

Exit codes: 0 success, 1 failure or not found, 2 wrong usage, 3 not possible in the present state, 130 Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from rp_api.errors import PilotError
from rp_api.system import signals
from rp_client.cli import commands

USAGE = 'usage: rp COMMAND [ACTION] [ARGUMENT ...] [OPTION ...]   (rp COMMAND --help: how to use one)'
PARTS = ('rp-api', 'rp-client', 'rp-agent', 'rp-raptor', 'rp-profiling')
INTERRUPTED, REFUSED = 130, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code. Errors are printed as one sentence on standard error.

    Args:
        arguments: The command and its arguments; default: those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(f'rp {words[0]}' if words else 'rp', lambda: run(words))


def guarded(name: str, action: Callable[[], int]) -> int:
    """Run the action of a program, and return its exit code. Errors are printed as one sentence on standard error.

    Args:
        name: Name of the program, for the sentence.
        action: Returns the exit code.
    """
    signals.set_defaults(but=signals.OF_A_TERMINAL | signals.WARNINGS)
    try:
        code = action()
        if sys.stdout is not None:   # closed by the shell
            sys.stdout.flush()
    except BrokenPipeError:   # the reader of the output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except (PilotError, OSError) as error:
        print(f'{name}: {error}', file=sys.stderr)
        if isinstance(error, commands.NotPossible):
            return REFUSED
        return 2 if isinstance(error, commands.WrongUsage) else 1
    return code


def run(words: list[str]) -> int:
    """Run a command, and return its exit code.

    Args:
        words: The command and its arguments.
    """
    name, *rest = words or ['--help']
    if name == 'help' and rest:
        name, rest = rest[0], ['--help']
    if name in ('-h', '--help', 'help'):
        return _help()
    if name == '--version':
        return _version()
    command = commands.find(name)
    if command is None:
        known = ', '.join(known.name for known in commands.all_commands())
        print(f'rp: there is no command {name!r}; there are: {known}', file=sys.stderr)
        return 2
    return command.load()(rest)


def _help() -> int:
    print(f'{USAGE}\n\ncommands:')
    found = commands.all_commands()
    width = max(len(command.name) for command in found)
    for command in found:
        print(f'  {command.name:{width}}  {command.summary()}')
    print('\n  --version   the versions of the installed distributions')
    return 0


def _version() -> int:
    from importlib.metadata import PackageNotFoundError, version

    for part in PARTS:
        try:
            print(f'{part} {version(part)}')
        except PackageNotFoundError:   # not all have to be installed
            continue
    print(f'Python {sys.version.split()[0]}')
    return 0

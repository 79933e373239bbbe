"""The registry of sub-commands of `rp`: the built-in ones, and entry points `radical_pilot.commands`.

A command is a function `command(arguments: list[str]) -> int`. It gets the arguments that follow its name, and returns
the exit code; a `PilotError` or `OSError` that it raises is printed, and the exit code is 1. `rp --help` shows the
first line of its docstring, and imports the modules of commands of other distributions for that: they should defer
expensive imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rp_api.errors import PilotError
from rp_api.extensions import installed, load, mentioned

GROUP = 'radical_pilot.commands'

OWN = 'rp-client'

Run = Callable[[list[str]], int]

_OWN = {
    'bundle': 'Pack the wheels of agent and RAPTOR for machines that cannot reach a package index.',
    'cache': 'Show, explain, limit and remove cached results.',
    'calls': 'Show the function calls of RAPTOR: counts, rates and failures by function.',
    'clean': 'Remove what sessions have left: those that have ended, sandboxes, environments and caches.',
    'completion': 'Print the script by which bash or zsh completes commands, options and uids.',
    'hub': 'Start, inspect and stop a stand-alone hub that serves several sessions.',
    'pilot': 'List, show and stop the pilots of a session.',
    'platforms': 'List, show and check the platforms that pilots can run on.',
    'run': 'Run a program with many inputs, such as files or parameters, on a pilot.',
    'session': 'List, show, export and purge sessions, and attach to or serve those that run without their '
               'application.',
    'simulate': 'Estimate how a workload uses a number of nodes, by a simulation.',
    'task': 'List and show the tasks of a session and their outputs, cancel them, or run them again.',
    'top': 'Watch a session in the terminal: pilots, utilisation, states, rates, waiting and failed tasks.',
    'trace': 'Analyse and check the traces of a session, draw and export them.',
    'why': 'Tell why a task or pilot waits, has failed or is slow, and what to do about it.'}
"""The first lines of the docstrings of our commands: their modules are imported for nothing else then."""

_OF_TASKS = ('calls', 'pilot', 'task', 'top', 'why')


class NotPossible(PilotError):
    """What was asked for is not possible now, such as the cancellation of a task that has ended; the exit code is 3."""


class WrongUsage(PilotError):
    """The arguments of a command are wrong; the exit code is 2."""


class Command(NamedTuple):
    """A sub-command of `rp`.

    Attributes:
        name: Name of the sub-command.
        where: Its function, as `module:function`.
        origin: Name of the distribution that installs it.
    """

    name: str
    where: str
    origin: str

    def load(self) -> Run:
        """Import and return the function.

        Raises:
            PilotError: The import fails, or the object is not a function.
        """
        try:
            found = load(self.where)
        except Exception as error:   # a foreign module may raise any exception
            raise PilotError(f'the command {self.name!r} of {self.origin} ({self.where}) is broken: '
                             f'{type(error).__name__}: {error}') from error
        if not callable(found):
            raise PilotError(f'the command {self.name!r} of {self.origin} ({self.where}) is broken: it is not callable')
        return found   # type: ignore[no-any-return]

    def summary(self) -> str:
        """Return the first line of the function's docstring, or why the function cannot be imported."""
        if self.origin == OWN:
            return _OWN[self.name]
        try:
            lines = (self.load().__doc__ or '').strip().splitlines()
        except PilotError as error:
            return f'({" ".join(str(error).split())})'
        return lines[0] if lines else ''


def find(name: str) -> Command | None:
    """Return the command of that name; None if it is unknown.

    Args:
        name: Name of the command.
    """
    if name in _OWN:   # avoids the search for entry points
        return _own(name)
    return next((command for command in _foreign() if command.name == name), None)


def all_commands() -> list[Command]:
    """Return all commands, sorted by name; of several with one name, the one that `find` returns."""
    found: dict[str, Command] = {}
    for command in (*map(_own, _OWN), *_foreign()):
        found.setdefault(command.name, command)
    return [found[name] for name in sorted(found)]


def _own(name: str) -> Command:
    package = 'rp_client.cli.tasks' if name in _OF_TASKS else 'rp_client.cli'
    return Command(name, f'{package}.{name}:{name}', OWN)


def _foreign() -> Iterator[Command]:
    if not mentioned(GROUP):   # the search for entry points takes longer than everything else
        return
    for point in installed(GROUP).values():
        yield Command(point.name, point.value, point.dist.name if point.dist is not None else 'an unknown distribution')

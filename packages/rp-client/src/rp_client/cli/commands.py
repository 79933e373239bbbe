"""The registry of sub-commands of `rp`: the built-in ones, and entry points `radical_pilot.commands`.

A command is a function `command(arguments: list[str]) -> int`. It gets the arguments that follow its name, and returns
the exit code; a `PilotError` or `OSError` that it raises is printed, and the exit code is 1. `rp --help` shows the
first line of its docstring, and imports the modules of all commands for that: they should defer expensive imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rp_api.errors import PilotError
from rp_api.extensions import installed, load

GROUP = 'radical_pilot.commands'

Run = Callable[[list[str]], int]

_OWN = {'bundle': 'rp_client.cli.bundle:bundle', 'cache': 'rp_client.cli.cache:cache', 'hub': 'rp_client.cli.hub:hub',
        'platforms': 'rp_client.cli.platforms:platforms',
        'run': 'rp_client.cli.run:run', 'session': 'rp_client.cli.session:session',
        'simulate': 'rp_client.cli.simulate:simulate', 'trace': 'rp_client.cli.trace:trace'}


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
    return Command(name, _OWN[name], 'rp-client')


def _foreign() -> Iterator[Command]:
    for point in installed(GROUP).values():
        yield Command(point.name, point.value, point.dist.name if point.dist is not None else 'an unknown distribution')

"""The sub-commands of `rp`: those of this distribution, and entry points `radical_pilot.commands` of others.

A command is a function `command(arguments: list[str]) -> int`, which gives the exit code. The first line of its
docstring is what `rp --help` says about it. `rp --help` imports the modules of all commands, so such a module imports
whatever is large where it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rp_api.errors import PilotError
from rp_api.extensions import installed

GROUP = 'radical_pilot.commands'

Run = Callable[[list[str]], int]

_OWN = {'bundle': 'rp_client.cli.bundle:bundle', 'hub': 'rp_client.cli.hub:hub',
        'platforms': 'rp_client.cli.platforms:platforms',
        'session': 'rp_client.cli.session:session', 'simulate': 'rp_client.cli.simulate:simulate'}


class Command(NamedTuple):
    """A sub-command: its name, where its function is (`module:function`), and which distribution brings it."""

    name: str
    where: str
    origin: str

    def load(self) -> Run:
        """The function; `PilotError` if it cannot be had."""
        module, _, name = self.where.partition(':')
        try:
            found = getattr(importlib.import_module(module), name)
        except Exception as error:   # whatever a foreign module does when it is imported
            raise PilotError(f'the command {self.name!r} of {self.origin} ({self.where}) is broken: '
                             f'{type(error).__name__}: {error}') from error
        if not callable(found):
            raise PilotError(f'the command {self.name!r} of {self.origin} ({self.where}) is broken: it is no function')
        return found   # type: ignore[no-any-return]

    def summary(self) -> str:
        """What it does, in one line; why that cannot be told, if it is broken."""
        try:
            lines = (self.load().__doc__ or '').strip().splitlines()
        except PilotError as error:
            return f'({" ".join(str(error).split())})'
        return lines[0] if lines else ''


def find(name: str) -> Command | None:
    """The command of that name; None if there is none."""
    if name in _OWN:   # without a look at all that is installed
        return _own(name)
    return next((command for command in _foreign() if command.name == name), None)


def all_commands() -> list[Command]:
    """All commands, by name; of several of one name, the one that runs."""
    found: dict[str, Command] = {}
    for command in (*map(_own, _OWN), *_foreign()):
        found.setdefault(command.name, command)
    return [found[name] for name in sorted(found)]


def _own(name: str) -> Command:
    return Command(name, _OWN[name], 'rp-client')


def _foreign() -> Iterator[Command]:
    for point in installed(GROUP).values():
        yield Command(point.name, point.value, point.dist.name if point.dist is not None else 'an unknown distribution')

"""What the stagers of the client share: which directives are theirs, and how they get at the files of a sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rp_api.errors import PilotError
from rp_api.staging import run
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes, acts_on_client
from rp_client.launcher.sandbox import make_sandboxes
from rp_client.pilot import Pilot
from rp_client.task import Task
from rp_profiling.write.tracer import Tracer

INWARDS = ('client', 'task')
"""What relative sources and targets of the client's input staging are relative to."""

OUTWARDS = ('task', 'client')


BULK = 64
"""Tasks whose files travel together to or from another host."""

Errors = dict[str, BaseException]
"""What went wrong, by task."""

T = TypeVar('T')
E = TypeVar('E', bound=Exception)


class Sandbox(Protocol):
    """The sandbox of a task (or a pilot), as the client gets at it."""

    sandboxes: Sandboxes
    """Where to work."""

    def make(self) -> None:
        """Make the sandbox."""

    def directives(self, directives: Iterable[Directive], bases: tuple[str, str]) -> list[Directive]:
        """The directives such that they can be carried out with `sandboxes`."""

    def run(self, uid: str, directives: Iterable[Directive], bases: tuple[str, str], tracer: Tracer,
            name: str) -> list[str]:
        """See `rp_api.staging.run.run`."""

    def remove(self) -> None:
        """Delete the sandbox with all that is in it."""


class Files(Protocol):
    """The files of a pilot and its tasks."""

    def of(self, own: str) -> Sandbox:
        """The sandbox that is this directory."""

    def fetch(self, wanted: Iterable[tuple[str, Iterable[Directive]]], bases: tuple[str, str]) -> None:
        """Get ready for directives, each with the sandbox that it is for."""

    def finish(self) -> None:
        """Have everything so that was made, put and removed."""

    def fault(self, error: E) -> E:
        """The error, with the paths that the user knows."""


class _Here:
    """A sandbox that the client sees where it is."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes

    def make(self) -> None:
        make_sandboxes(self.sandboxes.session, self.sandboxes.pilot)   # they may be needed before the pilot is launched
        os.makedirs(self.sandboxes.task, exist_ok=True)

    def directives(self, directives: Iterable[Directive], bases: tuple[str, str]) -> list[Directive]:
        return list(directives)

    def run(self, uid: str, directives: Iterable[Directive], bases: tuple[str, str], tracer: Tracer,
            name: str) -> list[str]:
        return run.run(uid, directives, bases, self.sandboxes, tracer, name)

    def remove(self) -> None:
        run.remove_sandbox(self.sandboxes)


class _AllHere:
    """Files that the client sees where they are: nothing to be done before or after."""

    def __init__(self, known: Sandboxes) -> None:
        self._known = known

    def of(self, own: str) -> Sandbox:
        return _Here(self._known._replace(task=own))

    def fetch(self, wanted: Iterable[tuple[str, Iterable[Directive]]], bases: tuple[str, str]) -> None:
        return

    def finish(self) -> None:
        return

    def fault(self, error: E) -> E:
        return error


def client_directives(directives: Iterable[Directive]) -> list[Directive]:
    """Those directives that the client carries out; the others are the agent's."""
    return [directive for directive in directives if acts_on_client(directive['action'])]


def bulks(things: Iterable[T], task_of: Callable[[T], Task]) -> Iterator[list[T]]:
    """What belongs to bound tasks: together for tasks of one pilot on another host, else each for itself."""
    far: dict[str, list[T]] = {}
    for thing in things:
        pilot = task_of(thing).bound
        assert pilot is not None
        if pilot.sandboxes.here:
            yield [thing]
        else:
            far.setdefault(pilot.uid, []).append(thing)
    for together in far.values():
        yield from (together[start:start + BULK] for start in range(0, len(together), BULK))


@contextmanager
def pilot_files(pilot: Pilot | None) -> Iterator[Files]:
    """The files of a pilot and its tasks; `PilotError` if they cannot be reached."""
    assert pilot is not None
    known = pilot.sandboxes
    sandboxes = Sandboxes(client=known.client, resource=known.resource, session=known.session, pilot=known.pilot,
                          task=known.pilot)
    if known.here:
        yield _AllHere(sandboxes)
        return
    if not known.endpoint:
        raise PilotError(f'the sandbox of {pilot.uid} is on another host: the client can move no files between itself '
                         'and that host, let tasks fetch them')
    from rp_client.stager.elsewhere import Elsewhere

    with Elsewhere(known.endpoint, sandboxes) as files:
        yield files

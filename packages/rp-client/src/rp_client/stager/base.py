"""Shared parts of the client's stagers: selection of directives, and access to the files of sandboxes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rp_api.errors import PilotError
from rp_api.staging import run
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes, acts_on_client
from rp_client.launcher.sandbox import PilotSandboxes, make_sandboxes
from rp_client.task import Task
from rp_profiling.write.tracer import Tracer

INWARDS = ('client', 'task')
"""Bases of relative sources and targets in the client's input staging."""

OUTWARDS = ('task', 'client')

BULK = 64
"""Tasks whose files are transferred together to or from another host at most."""

Errors = dict[str, BaseException]
"""Errors by task uid."""

T = TypeVar('T')
E = TypeVar('E', bound=Exception)


class HasSandboxes(Protocol):
    """A pilot, as far as its files are concerned."""

    @property
    def uid(self) -> str:
        """The pilot's unique id."""

    @property
    def _directories(self) -> PilotSandboxes:
        """The pilot's directories."""


class Sandbox:
    """The sandbox of a task or pilot, in a file system that the client can access."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes
        """The directories in which directives are executed."""

    def make(self) -> None:
        """Make the sandbox."""
        make_sandboxes(self.sandboxes.session, self.sandboxes.pilot)   # they may be needed before the pilot is launched
        os.makedirs(self.sandboxes.task, exist_ok=True)

    def directives(self, directives: Iterable[Directive], bases: tuple[str, str]) -> list[Directive]:
        """Return directives that can be executed with `sandboxes`."""
        return list(directives)

    def run(self, uid: str, directives: Iterable[Directive], bases: tuple[str, str], tracer: Tracer,
            name: str) -> list[str]:
        """Execute directives, and return their targets; see `rp_api.staging.run.run`."""
        return run.run(uid, self.directives(directives, bases), bases, self.sandboxes, tracer, name)

    def remove(self) -> None:
        """Delete the sandbox and its files."""
        run.remove_sandbox(self.sandboxes)


class Files:
    """The files of a pilot and its tasks, in a file system that the client can access."""

    def __init__(self, known: Sandboxes) -> None:
        self._known = known

    def of(self, own: str) -> Sandbox:
        """Return the sandbox in this directory."""
        return Sandbox(self._known._replace(task=own))

    def fetch(self, wanted: Iterable[tuple[str, Iterable[Directive]]], bases: tuple[str, str]) -> None:
        """Prepare the sources of directives, given by sandbox."""

    def finish(self) -> None:
        """Apply all changes to the sandboxes."""

    def fault(self, error: E) -> E:
        """Return the error with paths as the user knows them."""
        return error


def client_directives(directives: Iterable[Directive]) -> list[Directive]:
    """Return the directives that the client executes, not the agent."""
    return [directive for directive in directives if acts_on_client(directive['action'])]


def bulks(things: Iterable[T], task_of: Callable[[T], Task]) -> Iterator[list[T]]:
    """Yield bulks of things that belong to bound tasks: single for local sandboxes, else together for each pilot."""
    far: dict[str, list[T]] = {}
    for thing in things:
        pilot = task_of(thing)._pilot
        assert pilot is not None
        if pilot._directories.here:
            yield [thing]
        else:
            far.setdefault(pilot.uid, []).append(thing)
    for together in far.values():
        yield from (together[start:start + BULK] for start in range(0, len(together), BULK))


@contextmanager
def pilot_files(pilot: HasSandboxes | None) -> Iterator[Files]:
    """Open the files of a pilot and its tasks; raise `PilotError` if the client cannot access them."""
    assert pilot is not None
    known = pilot._directories
    sandboxes = Sandboxes(client=known.client, resource=known.resource, session=known.session, pilot=known.pilot,
                          task=known.pilot)
    if known.here:
        yield Files(sandboxes)
        return
    if not known.endpoint:
        raise PilotError(f'the sandbox of {pilot.uid} is on another host, and the client cannot transfer files between '
                         'itself and that host: let tasks fetch them')
    from rp_client.stager.elsewhere import Elsewhere

    with Elsewhere(known.endpoint, sandboxes) as files:
        yield files


def transfer(jobs: Sequence[tuple[Task, list[Directive]]], bases: tuple[str, str],
             stage: Callable[[Task, list[Directive], Sandbox], object]) -> Errors:
    """Call `stage` for tasks of one pilot, with their directives and sandboxes, and return the errors by task."""
    errors: Errors = {}
    try:
        with pilot_files(jobs[0][0]._pilot) as files:
            files.fetch([(task.sandbox or '', directives) for task, directives in jobs], bases)
            for task, directives in jobs:
                try:
                    stage(task, directives, files.of(task.sandbox or ''))
                except Exception as error:   # fails this task only
                    errors[task.uid] = files.fault(error)
            files.finish()
    except (PilotError, OSError) as error:
        return {task.uid: error for task, _ in jobs} | errors
    return errors

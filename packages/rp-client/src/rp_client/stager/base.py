"""Shared parts of the client's stagers: selection of directives, and access to the files of sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rp_api.errors import PilotError
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes, acts_on_client
from rp_client.core.task import TaskRecord
from rp_client.launcher.sandbox import Files, PilotSandboxes, Sandbox

INWARDS = ('client', 'task')
"""Bases of relative sources and targets in the client's input staging."""

OUTWARDS = ('task', 'client')

BULK = 64
"""Tasks whose files are transferred together to or from another host at most."""

Errors = dict[str, BaseException]
"""Errors by task uid."""

T = TypeVar('T')


class HasSandboxes(Protocol):
    """A pilot, as far as its files are concerned."""

    @property
    def uid(self) -> str:
        """The pilot's unique id."""

    @property
    def directories(self) -> PilotSandboxes:
        """The pilot's directories."""


def client_directives(directives: Iterable[Directive]) -> list[Directive]:
    """Return the directives that the client executes, not the agent."""
    return [directive for directive in directives if acts_on_client(directive['action'])]


def bulks(things: Iterable[T], task_of: Callable[[T], TaskRecord]) -> Iterator[list[T]]:
    """Yield bulks of things that belong to bound tasks: single for local sandboxes, else together for each pilot."""
    far: dict[str, list[T]] = {}
    for thing in things:
        pilot = task_of(thing).pilot
        assert pilot is not None
        if pilot.directories.here:
            yield [thing]
        else:
            far.setdefault(pilot.uid, []).append(thing)
    for together in far.values():
        yield from (together[start:start + BULK] for start in range(0, len(together), BULK))


@contextmanager
def pilot_files(pilot: HasSandboxes | None) -> Iterator[Files]:
    """Open the files of a pilot and its tasks; raise `PilotError` if the client cannot access them."""
    assert pilot is not None
    known = pilot.directories
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


def transfer(jobs: Sequence[tuple[TaskRecord, list[Directive]]], bases: tuple[str, str],
             stage: Callable[[TaskRecord, list[Directive], Sandbox], object]) -> Errors:
    """Call `stage` for tasks of one pilot, with their directives and sandboxes, and return the errors by task."""
    errors: Errors = {}
    try:
        with pilot_files(jobs[0][0].pilot) as files:
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

"""What both stagers of the client share: which directives are theirs, and what the URLs in them refer to."""

from __future__ import annotations

from collections.abc import Iterable

from rp_api.errors import PilotError
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes, acts_on_client
from rp_client.pilot import Pilot
from rp_client.task import Task

INWARDS = ('client', 'task')
"""What relative sources and targets of the client's input staging are relative to."""

OUTWARDS = ('task', 'client')


def client_directives(directives: Iterable[Directive]) -> list[Directive]:
    """Those directives that the client carries out; the others are the agent's."""
    return [directive for directive in directives if acts_on_client(directive['action'])]


def pilot_sandboxes(pilot: Pilot) -> Sandboxes:
    """The directories that URLs refer to, with the pilot's sandbox in the place of a task's.

    `PilotError` if the client does not see them.
    """
    known = pilot.sandboxes
    if not known.here:
        raise PilotError(f'the sandbox of {pilot.uid} is on another host: the client can move no files between itself '
                         'and that host, let tasks fetch them')
    return Sandboxes(client=known.client, resource=known.resource, session=known.session, pilot=known.pilot,
                     task=known.pilot)


def task_sandboxes(task: Task) -> Sandboxes:
    """The directories that the URLs of a bound task refer to; `PilotError` if the client does not see them."""
    assert task.bound is not None
    assert task.sandbox is not None
    return pilot_sandboxes(task.bound)._replace(task=task.sandbox)

"""Sources of input staging in the sandboxes of other tasks, `task://UID/path`: where these are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rp_api.description.task import INPUT_STAGING
from rp_api.staging.location import other_task

_PILOT = 'pilot:///'


def on_this_pilot(description: Mapping[str, Any], uids: Collection[str]) -> list[dict[str, Any]]:
    """Return the input directives of a task, with the sandboxes of these tasks looked for on this pilot."""
    return [{**directive, 'source': f'{_here(other[0])}{other[1]}'}
            if (other := other_task(directive['source'])) and other[0] in uids else directive
            for directive in description[INPUT_STAGING]]


def elsewhere(description: Mapping[str, Any], places: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the input directives of a task, with the sandboxes of others looked for in those of their pilots.

    `places` has the sandbox of the pilot by uid of the task.
    """
    return [{**directive, 'source': f'file://{places[other[0]]}/{other[0]}/{other[1]}'}
            if (other := _task_here(directive['source'])) and other[0] in places else directive
            for directive in description[INPUT_STAGING]]


def takes_from(description: Mapping[str, Any], uid: str) -> bool:
    """Return whether a task has input from the sandbox of another one, which is looked for on this pilot."""
    return any(directive['source'].startswith(_here(uid)) for directive in description.get(INPUT_STAGING, ()))


def _here(uid: str) -> str:
    return f'{_PILOT}{uid}/'


def _task_here(source: str) -> tuple[str, str] | None:
    """Return the uid and the path of a source that may be in the sandbox of a task on this pilot."""
    uid, slash, path = source.removeprefix(_PILOT).partition('/')
    return (uid, path) if slash and source.startswith(_PILOT) else None

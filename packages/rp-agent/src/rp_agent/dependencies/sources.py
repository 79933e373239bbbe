"""Sources of input staging in the sandboxes of other tasks, `task://UID/path`: where these are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rp_api.description.task import INPUT_STAGING
from rp_api.staging.location import other_task


def on_this_pilot(description: Mapping[str, Any], uids: Collection[str]) -> list[dict[str, Any]]:
    """Return the input directives of a task, with the sandboxes of these tasks looked for on this pilot."""
    return [{**directive, 'source': f'{_here(other[0])}{other[1]}'}
            if (other := other_task(directive['source'])) and other[0] in uids else directive
            for directive in description[INPUT_STAGING]]


def elsewhere(description: Mapping[str, Any], uid: str, pilot_sandbox: str) -> list[dict[str, Any]]:
    """Return the input directives of a task, with the sandbox of another one looked for in that of its pilot."""
    here, there = _here(uid), f'file://{pilot_sandbox}/{uid}/'
    return [{**directive, 'source': f'{there}{directive["source"][len(here):]}'}
            if directive['source'].startswith(here) else directive for directive in description[INPUT_STAGING]]


def takes_from(description: Mapping[str, Any], uid: str) -> bool:
    """Return whether a task has input from the sandbox of another one, which is looked for on this pilot."""
    return any(directive['source'].startswith(_here(uid)) for directive in description.get(INPUT_STAGING, ()))


def _here(uid: str) -> str:
    return f'pilot:///{uid}/'

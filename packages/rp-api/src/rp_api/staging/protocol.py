"""Staging protocols: a class for each action of staging directives, and their registry.

Client and agent use this registry to find out which of them performs a directive, and how. Other distributions add
protocols as entry points in the group `radical_pilot.staging_protocols`, whose names are the actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from rp_api.constants import COPY, DOWNLOAD, LINK, MOVE, STAGING_ACTIONS, TARBALL, TRANSFER
from rp_api.errors import DescriptionError
from rp_api.extensions import installed, load

GROUP = 'radical_pilot.staging_protocols'

_OWN = {COPY: 'Copy', DOWNLOAD: 'Download', LINK: 'Link', MOVE: 'Move', TARBALL: 'Tarball', TRANSFER: 'Transfer'}
_ACTIONS = {action.casefold(): action for action in STAGING_ACTIONS}
_OWN_SCHEMES = {'http': DOWNLOAD, 'https': DOWNLOAD}
_SANDBOXES = frozenset(('client', 'endpoint', 'file', 'pilot', 'pwd', 'resource', 'session', 'staging', 'task', 'unit'))


class Protocol:
    """A staging protocol, which performs the directives of one action.

    Subclasses implement `stage`, and override the other attributes where they differ.
    """

    schemes: ClassVar[frozenset[str]] = frozenset()
    """URL schemes, in lower case, of sources outside of the file systems, which require this action."""
    on_client: ClassVar[bool] = False
    """True if the client performs the directives; otherwise the agent does, on the platform."""
    packed: ClassVar[bool] = False
    """True if the client sends the input of a task in one archive, which the agent unpacks."""

    def check(self, source: str, target: str) -> None:
        """Check a directive when it is described, before its task is submitted.

        Args:
            source: The source as the user wrote it.
            target: The target as the user wrote it, or its default.

        Raises:
            DescriptionError: The directive can never succeed.
        """

    def stage(self, source: str, target: str, parents: bool) -> str:
        """Bring `source` to `target`.

        The method runs in a thread and may block. It may be called again for the same directive after a failure, so it
        should be idempotent.

        Args:
            source: An absolute path, or a URL of `schemes` as the user wrote it.
            target: An absolute path, or a URL of `schemes` as the user wrote it.
            parents: Create missing parent directories of the target (flag CREATE_PARENTS); otherwise they are an error.

        Returns:
            The path or URL of the result.

        Raises:
            OSError: The operation failed; its text and file name become the error of the task.
        """
        raise NotImplementedError


def action(name: str) -> str:
    """Return the action of that name in any case; raise `DescriptionError` with all names if it is unknown."""
    wanted = name.casefold()
    found = _ACTIONS.get(wanted) or next((each for each in _others() if each.casefold() == wanted), '')
    if not found:
        raise DescriptionError(f'action {name!r} is not one of {", ".join([*STAGING_ACTIONS, *_others()])}')
    return found


@cache
def protocol(name: str) -> Protocol:
    """Return the protocol of an action; raise `DescriptionError` with all names if it is unknown."""
    if name in _OWN:
        made: Protocol = load(f'rp_api.staging.actions:{_OWN[name]}')()
        return made
    return _others()[action(name)]


def owner(url: str) -> str:
    """Return the action that a URL requires; empty for paths, and for URLs of sandboxes and files."""
    scheme, separator, _ = url.partition('://')
    scheme = scheme.lower()
    if not separator or scheme in _SANDBOXES:
        return ''
    return _OWN_SCHEMES.get(scheme) or next((name for name, each in _others().items() if scheme in each.schemes), '')


@cache
def _others() -> Mapping[str, Protocol]:
    """Return the protocols of other distributions by action."""
    return {name: point.load()() for name, point in sorted(installed(GROUP).items())}

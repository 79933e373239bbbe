"""Staging protocols: the actions that directives name, each a class that carries directives out.

Client and agent both ask this registry which of them acts, and how. Other distributions add protocols as entry points
of the group `radical_pilot.staging_protocols`, whose names are the actions.
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
    """How directives of one action are carried out. Sub-classes override `stage`, and the rest where it differs."""

    schemes: ClassVar[frozenset[str]] = frozenset()
    """Schemes of URLs, in lower case, that lead out of the file systems, and that only this action takes."""
    on_client: ClassVar[bool] = False
    """The client carries directives out; else the agent does, on the platform."""
    packed: ClassVar[bool] = False
    """The client brings the input of a task in one archive, which the agent unpacks."""

    def check(self, source: str, target: str) -> None:
        """Look at a directive when it is described; raise `DescriptionError` if it can never be carried out."""

    def stage(self, source: str, target: str, parents: bool) -> str:
        """Bring `source` to `target`, and return where it is now.

        Both are absolute paths, or URLs of `schemes` as the user wrote them. `parents` allows to make missing
        directories of the target. It may take long, as it runs in a thread, and may be repeated. Raise `OSError` for
        what goes wrong.
        """
        raise NotImplementedError


def action(name: str) -> str:
    """The action of that name in any case; `DescriptionError`, with all names, if there is none."""
    wanted = name.casefold()
    found = _ACTIONS.get(wanted) or next((each for each in _others() if each.casefold() == wanted), '')
    if not found:
        raise DescriptionError(f'action {name!r} is not one of {", ".join([*STAGING_ACTIONS, *_others()])}')
    return found


@cache
def protocol(name: str) -> Protocol:
    """The protocol of an action; `DescriptionError`, with all names, if there is none."""
    if name in _OWN:
        made: Protocol = load(f'rp_api.staging.actions:{_OWN[name]}')()
        return made
    return _others()[action(name)]


def owner(url: str) -> str:
    """The action that takes a URL which leads out of the file systems; empty for all others, and for paths."""
    scheme, separator, _ = url.partition('://')
    scheme = scheme.lower()
    if not separator or scheme in _SANDBOXES:
        return ''
    return _OWN_SCHEMES.get(scheme) or next((name for name, each in _others().items() if scheme in each.schemes), '')


@cache
def _others() -> Mapping[str, Protocol]:
    """The protocols of other distributions, by action."""
    return {name: point.load()() for name, point in sorted(installed(GROUP).items())}

"""Staging protocols: classes for the actions of staging directives and for URLs of other hosts, and their registry.

Client and agent use this registry to find out which of them performs a directive, and how. Other distributions add
protocols as entry points in the group `radical_pilot.staging_protocols`: a `Protocol` performs the action that its
entry point is named after, a `Transport` serves the URLs of its schemes in all of `REMOTE_ACTIONS`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import ClassVar

from rp_api.constants import COPY, DOWNLOAD, LINK, MOVE, STAGING_ACTIONS, TARBALL, TRANSFER
from rp_api.errors import DescriptionError
from rp_api.extensions import installed, load
from rp_api.staging.files import copy, fault, has_wildcard, matches, move, operate, prepare

GROUP = 'radical_pilot.staging_protocols'

_OWN = {COPY: 'Copy', DOWNLOAD: 'Download', LINK: 'Link', MOVE: 'Move', TARBALL: 'Tarball', TRANSFER: 'Transfer'}
_ACTIONS = {action.casefold(): action for action in STAGING_ACTIONS}
_OWN_TRANSPORTS = {'globus': 'globus:Globus', 'go': 'globus:Globus', 'gsisftp': 'ssh:Gsisftp', 'http': 'web:Web',
                   'https': 'web:Web', 'scp': 'ssh:Scp', 'sftp': 'ssh:Sftp'}
_SANDBOXES = frozenset(('client', 'endpoint', 'file', 'pilot', 'pwd', 'resource', 'session', 'staging', 'task', 'unit'))

REMOTE_ACTIONS = (TRANSFER, COPY, DOWNLOAD)
"""Actions that take URLs of a `Transport` as source or target: the client performs the first, the agent the others."""

_PASSWORD = re.compile(r'(://[^/?#\s:@]*):[^/?#\s]*@')
_QUERY = re.compile(r'(https?://[^\s?#]*\?)[^\s#\'"\]>]*', re.IGNORECASE)


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

    def name(self, source: str) -> str:
        """Return the last part of the path in a URL of `schemes`, the default target; empty if it has none."""
        path = re.split('[?#]', source.split('://', 1)[1])[0].partition('/')[2]
        return os.path.basename(path.rstrip('/'))

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


class Transport(Protocol):
    """A staging protocol for files on other hosts, which URLs of its schemes refer to.

    The other end of a directive is a path. Subclasses implement `get` and `put`; both run in a thread, and should stop
    when `rp_api.staging.interruption.interrupted` says so.
    """

    patterns: ClassVar[bool] = False
    """True if wildcards in the last part of a source's path stand for all matching files."""

    def missing(self) -> str:
        """Return the requirements that this host does not meet, and the remedy; empty if it can use the protocol."""
        return ''

    def check(self, source: str, target: str) -> None:
        """Refuse directives with two URLs; see `Protocol.check`."""
        if transport(source) and transport(target):
            raise DescriptionError('source and target are on other hosts, one of them must be a path')

    def get(self, url: str, directory: str) -> None:
        """Fetch the file or directory of a URL, or all that match it, into an empty local directory.

        Raises:
            OSError: It failed; the file name is the URL as it may be shown (see `masked`).
        """
        raise NotImplementedError

    def put(self, path: str, url: str, parents: bool) -> None:
        """Send a local file or directory to a URL.

        Args:
            path: The absolute path.
            url: The target. One that ends with a slash, or is an existing directory, takes the file under its own name.
            parents: Create missing parent directories of the target.

        Raises:
            OSError: As for `get`.
        """
        raise NotImplementedError

    def stage(self, source: str, target: str, parents: bool) -> str:
        """Bring `source` to `target` by `get` or `put`; see `Protocol.stage`.

        Local files are found, named and replaced as in copies. A source is fetched into a temporary directory beside
        the target, and moved to the target when it is complete. With wildcards the result is the target directory.
        """
        fetched = bool(transport(source))
        missing = self.missing()
        if missing:
            raise fault(errno.ENOSYS, masked(source if fetched else target), missing)
        return self._fetch(source, target, parents) if fetched else self._send(source, target, parents)

    def _fetch(self, url: str, target: str, parents: bool) -> str:
        prepare(target, parents)
        several = self.patterns and has_wildcard(self.name(url))
        result = target
        with _temporary(target) as directory:
            self.get(url, directory)
            for name in sorted(os.listdir(directory)):
                path, place = os.path.join(directory, name), os.path.join(target, '') if several else target
                merged = os.path.isdir(path) and os.path.isdir(target)   # it then holds the temporary directory
                result = operate(copy if merged else move, path, place, parents)
        return target if several else result

    def _send(self, source: str, url: str, parents: bool) -> str:
        found = matches(source)
        for path in [source] if found is None else found:
            os.stat(path)   # reports a missing file with its path
            self.put(path.rstrip('/') or '/', url if found is None else f'{url.rstrip("/")}/', parents)
        return url


@contextmanager
def _temporary(target: str) -> Iterator[str]:
    """Provide a directory in the file system of the target; errors with its files are errors with the target."""
    import tempfile  # most sessions have no such URLs

    from rp_api.staging.trees import remove

    parent = target if os.path.isdir(target) else os.path.dirname(target) or os.curdir
    try:
        directory = tempfile.mkdtemp(prefix='.rp.', dir=parent)
    except OSError as error:
        raise fault(error.errno or errno.EIO, parent) from error
    try:
        yield directory
    except OSError as error:
        if str(error.filename).startswith(directory):
            raise fault(error.errno or errno.EIO, target, error.strerror or '') from error
        raise
    finally:
        remove(directory)


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


def performer(name: str, source: str, target: str) -> Protocol:
    """Return the protocol that performs a directive: the transport of a URL in it, or the protocol of its action."""
    return transport(source) or transport(target) or protocol(name)


def owner(url: str) -> str:
    """Return the action that a URL requires; empty for paths, and for URLs of sandboxes, files and transports."""
    scheme = _scheme(url)
    return next((name for name, each in _others().items() if scheme in each.schemes), '') if scheme else ''


def transport(url: str) -> Transport | None:
    """Return the transport that serves a URL; None for paths, and for URLs of sandboxes, files and actions."""
    scheme = _scheme(url)
    return _transport(scheme) if scheme else None


def schemes() -> list[str]:
    """Return the schemes of all URLs that refer to other hosts, sorted."""
    others = (scheme for each in (*_others().values(), *_other_transports()) for scheme in each.schemes)
    return sorted({*_OWN_TRANSPORTS, *others})


def masked(text: str) -> str:
    """Return a text for messages, with passwords and the queries of web URLs (which may hold a signature) replaced."""
    return _QUERY.sub(r'\1***', _PASSWORD.sub(r'\1:***@', text)) if '://' in text else text


def _scheme(url: str) -> str:
    """Return the scheme of a URL in lower case; empty for paths, and for URLs of sandboxes and files."""
    scheme, separator, _ = url.partition('://')
    scheme = scheme.lower()
    return scheme if separator and scheme not in _SANDBOXES else ''


@cache
def _transport(scheme: str) -> Transport | None:
    if scheme in _OWN_TRANSPORTS:
        made: Transport = load(f'rp_api.staging.{_OWN_TRANSPORTS[scheme]}')()
        return made
    return next((each for each in _other_transports() if scheme in each.schemes), None)


@cache
def _installed() -> Mapping[str, Protocol]:
    """Return the protocols of other distributions by the names of their entry points."""
    return {name: point.load()() for name, point in sorted(installed(GROUP).items())}


def _others() -> Mapping[str, Protocol]:
    """Return the protocols of other distributions by action."""
    return {name: each for name, each in _installed().items() if not isinstance(each, Transport)}


def _other_transports() -> list[Transport]:
    return [each for each in _installed().values() if isinstance(each, Transport)]

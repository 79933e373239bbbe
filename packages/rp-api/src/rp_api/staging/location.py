"""Where the URLs of staging directives lead.

The schemes client, endpoint, resource, session, pilot and task stand for directories that the session knows,
and the path of such a URL is always relative to that directory: `task://x` and `task:///x` are the same file.
Paths are taken literally: percent signs and blanks mean themselves.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from rp_api.errors import DescriptionError
from rp_api.staging.protocol import owner, protocol

_URL = re.compile(r'([A-Za-z][A-Za-z0-9+.-]*)://(.*)', re.DOTALL)
_HOST = re.compile(r'localhost|[^/]*@[^/]*|[^/]*:[0-9]+')
_WEB = ('http://', 'https://')


class Sandboxes(NamedTuple):
    """The directories that URL schemes stand for, as absolute paths; an empty one has no meaning here."""

    client: str
    resource: str = ''
    session: str = ''
    pilot: str = ''
    task: str = ''
    endpoint: str = '/'


def acts_on_client(action: str) -> bool:
    """Whether the client carries out directives with this action, and not the agent."""
    return protocol(action).on_client


def bases(action: str, output: bool) -> tuple[str, str]:
    """The sandboxes that a relative source and a relative target belong to, for input or for output staging.

    The agent works in the task's sandbox alone; the client moves between that and its own directory.
    """
    if not acts_on_client(action):
        return 'task', 'task'
    return ('task', 'client') if output else ('client', 'task')


def resolve(url: Any, base: str, sandboxes: Sandboxes) -> str:
    """The absolute path that a URL or path leads to.

    `base` names the sandbox for relative paths and `pwd://`. A trailing slash is kept, since it says that a
    target is a directory; the root of a sandbox gets one. URLs that a protocol takes stay as they are. Raises a
    DescriptionError if the scheme is not known, if it names a host, or if the sandbox has no meaning here.
    """
    text = str(url)
    match = _URL.fullmatch(text)
    if owner(text):
        return text
    if match is None:
        return text if text.startswith('/') else _below(base, text, sandboxes, text)
    scheme, rest = match[1].lower(), match[2]
    if scheme == 'file':
        return _file(rest, text)
    return _below(base if scheme == 'pwd' else scheme, rest, sandboxes, text)


def _below(scheme: str, rest: str, sandboxes: Sandboxes, url: str) -> str:
    """The path below the sandbox of that scheme."""
    host = rest.partition('/')[0]
    if url != rest and _HOST.fullmatch(host):
        raise DescriptionError(f'{url!r} must not name a host ({host!r}): {scheme}:///path')
    root = _root(scheme, sandboxes, url)
    return os.path.join(root, rest.lstrip('/'))


def _root(scheme: str, sandboxes: Sandboxes, url: str) -> str:
    """The directory that the scheme stands for; two are deprecated names."""
    if scheme == 'staging':
        return os.path.join(_root('pilot', sandboxes, url), 'staging_area')
    name = 'task' if scheme == 'unit' else scheme
    if name not in Sandboxes._fields:
        known = ', '.join([f'{each}://' for each in (*Sandboxes._fields, 'pwd', 'file')] + list(_WEB))
        raise DescriptionError(f'{url!r} has an unknown scheme {scheme!r}; known are {known}')
    root: str = getattr(sandboxes, name)
    if not root:
        raise DescriptionError(f'{url!r} has no meaning here, since there is no {name} sandbox')
    return root


def _file(rest: str, url: str) -> str:
    host, slash, path = rest.partition('/')
    if host not in ('', 'localhost') or not slash:
        raise DescriptionError(f'{url!r} must be an absolute path on this host: file:///path')
    return '/' + path.lstrip('/')

"""Resolution of URLs in staging directives to paths.

The schemes client, endpoint, resource, session, pilot and task stand for directories of the session, and the path of
such a URL is always relative to its directory: `task://x` and `task:///x` are the same file. Paths are taken literally:
percent signs and blanks are not special.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from rp_api.errors import DescriptionError
from rp_api.staging.protocol import masked, owner, protocol, schemes, transport

_URL = re.compile(r'([A-Za-z][A-Za-z0-9+.-]*)://(.*)', re.DOTALL)
_OTHER_TASK = re.compile(r'task://([^/]+)/+(.+)', re.DOTALL)
_HOST = re.compile(r'localhost|[^/]*@[^/]*|[^/]*:[0-9]+')


class Sandboxes(NamedTuple):
    """The directories of the URL schemes as absolute paths; an empty one is not available in this context."""

    client: str
    resource: str = ''
    session: str = ''
    pilot: str = ''
    task: str = ''
    endpoint: str = '/'


def acts_on_client(action: str) -> bool:
    """Return whether the client, not the agent, performs directives with this action."""
    return protocol(action).on_client


def other_task(source: str) -> tuple[str, str] | None:
    """Return the first part of the path of `task://...`, which may be the uid of another task, and the rest.

    None for other sources, and for `task:///...`, which is always in the task's own sandbox.
    """
    match = _OTHER_TASK.fullmatch(source)
    return (match[1], match[2]) if match else None


def bases(action: str, output: bool) -> tuple[str, str]:
    """Return the sandboxes of relative sources and relative targets, for input or for output staging.

    The agent operates within the task's sandbox; the client transfers between that and its own directory.
    """
    if not acts_on_client(action):
        return 'task', 'task'
    return ('task', 'client') if output else ('client', 'task')


def resolve(url: Any, base: str, sandboxes: Sandboxes) -> str:
    """Return the absolute path of a URL or path.

    Args:
        url: A path, or a URL. A trailing slash is kept, since it marks a target directory; the root of a sandbox gets
            one. URLs of other hosts are returned unchanged.
        base: The sandbox of relative paths and of `pwd://`.
        sandboxes: The directories of the URL schemes.

    Raises:
        DescriptionError: The scheme is unknown, the URL names a host, or the sandbox is not available.
    """
    text = str(url)
    match = _URL.fullmatch(text)
    if owner(text) or transport(text):
        return text
    if match is None:
        return text if text.startswith('/') else _below(base, text, sandboxes, text)
    scheme, rest = match[1].lower(), match[2]
    if scheme == 'file':
        return _file(rest, text)
    return _below(base if scheme == 'pwd' else scheme, rest, sandboxes, text)


def _below(scheme: str, rest: str, sandboxes: Sandboxes, url: str) -> str:
    """Return the path below the sandbox of a scheme."""
    root = _root(scheme, sandboxes, url)
    host = rest.partition('/')[0]
    if url != rest and _HOST.fullmatch(host):
        raise DescriptionError(f'{masked(url)!r} must not name a host: {scheme}:///path')
    return os.path.join(root, rest.lstrip('/'))


def _root(scheme: str, sandboxes: Sandboxes, url: str) -> str:
    """Return the directory of a scheme; `staging` and `unit` are deprecated."""
    if scheme == 'staging':
        return os.path.join(_root('pilot', sandboxes, url), 'staging_area')
    name = 'task' if scheme == 'unit' else scheme
    if name not in Sandboxes._fields:
        known = ', '.join(f'{each}://' for each in (*Sandboxes._fields, 'pwd', 'file', *schemes()))
        raise DescriptionError(f'{masked(url)!r} has an unknown scheme {scheme!r}; known are {known}')
    root: str = getattr(sandboxes, name)
    if not root:
        raise DescriptionError(f'{url!r} is not available here, since there is no {name} sandbox')
    return root


def _file(rest: str, url: str) -> str:
    host, slash, path = rest.partition('/')
    if host not in ('', 'localhost') or not slash:
        raise DescriptionError(f'{url!r} must be an absolute path on this host: file:///path')
    return '/' + path.lstrip('/')

"""Directives with one end on another host: local files are found, named and replaced as in copies.

A source is fetched into a temporary directory beside the target, and moved to the target when it is complete.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from rp_api.staging.directive import has_wildcard
from rp_api.staging.files import copy, fault, matches, move, operate, prepare
from rp_api.staging.protocol import Transport, masked
from rp_api.staging.trees import remove


def fetch(transport: Transport, url: str, target: str, parents: bool) -> str:
    """Fetch a URL to a local path, and return the path of the result; with wildcards, the target directory."""
    _require(transport, url)
    prepare(target, parents)
    several = transport.patterns and has_wildcard(transport.name(url))
    result = target
    with _temporary(target) as directory:
        transport.get(url, directory)
        for name in sorted(os.listdir(directory)):
            path, place = os.path.join(directory, name), os.path.join(target, '') if several else target
            merged = os.path.isdir(path) and os.path.isdir(target)   # it then holds the temporary directory
            result = operate(copy if merged else move, path, place, parents)
    return target if several else result


def send(transport: Transport, source: str, url: str, parents: bool) -> str:
    """Send a local file or directory, or all files that match, to a URL, and return the URL."""
    _require(transport, url)
    found = matches(source)
    for path in [source] if found is None else found:
        os.stat(path)   # reports a missing file with its path
        transport.put(path.rstrip('/') or '/', url if found is None else f'{url.rstrip("/")}/', parents)
    return url


def _require(transport: Transport, url: str) -> None:
    missing = transport.missing()
    if missing:
        raise fault(errno.ENOSYS, masked(url), missing)


@contextmanager
def _temporary(target: str) -> Iterator[str]:
    """Provide a directory in the file system of the target; errors with its files are errors with the target."""
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

"""Files of a sandbox on another host, reached over the platform's file system endpoint.

A directory here stands for the root of the other host's file system. What directives need from there is fetched into
it, they are carried out here, by the same code as everywhere, and what they put there is sent. So wildcards,
directories, flags and errors mean the same. Each way is one connection and one archive of `tar`, for several tasks.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import TypeVar

from rp_api.errors import PlatformError, StagingError
from rp_api.staging import trees
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes, resolve
from rp_api.staging.run import run
from rp_client.bootstrap.prepare import own_functions
from rp_client.launcher.batch.shell import Shell
from rp_client.launcher.batch.transfer import receive, send
from rp_profiling.write.tracer import Tracer

_PACK = r'''cd / && lists=$(mktemp -d) || exit 1
trap 'rm -rf "$lists"' EXIT
: >"$lists/files" >"$lists/links"
add() {
    for path; do
        path=${path#/}
        if test -h "$path"; then printf '%s\0' "$path" >>"$lists/links"
        elif test -e "$path"; then printf '%s\0' "$path" >>"$lists/files"; fi
    done
}
take() { if test -e "$1" || test -h "$1"; then add "$1"; else shift; add "$@"; fi; }
'''
"""Lists the files that there are; `take` gets a path as it is, and what it stands for as a pattern."""

_PACKED = '''echo {}
pack() {{ tar "$1" - --null -T "$lists/$2"; test $? -le 1; }}   # 1: a file has changed meanwhile, as logs do
pack -cf files && pack -chf links'''
"""Of links, one wants what they lead to; links in a directory stay what they are. What logins print comes before."""

E = TypeVar('E', bound=Exception)

_CHATTER = 1 << 20
"""Bytes that a login may print."""


class Elsewhere:
    """The files of a pilot and its tasks on the host of a URL such as `sftp://login/`."""

    def __init__(self, endpoint: str, known: Sandboxes) -> None:
        self._shell = Shell(endpoint)
        self._known = known
        self._place = tempfile.mkdtemp(prefix='rp.stage.')
        self._archive = Path(self._place, 'archive')
        self.root = os.path.join(self._place, 'root')
        self._made: list[str] = []
        self._removed: list[str] = []
        self._sandboxes: set[str] = set()
        self._there: set[str] = set()

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        trees.remove(self._place)

    def of(self, own: str) -> There:
        """The sandbox that is this directory there."""
        known = self._known._replace(task=own)
        sandboxes = known._replace(**{name: self.root + getattr(known, name) for name in (
            'resource', 'session', 'pilot', 'task', 'endpoint')})
        for name in ('resource', 'session', 'pilot', 'task'):
            os.makedirs(getattr(sandboxes, name), exist_ok=True)
            self._sandboxes.add(os.path.relpath(getattr(sandboxes, name), self.root))
        return There(self, own, sandboxes)

    def make(self, own: str) -> None:
        """Have a directory made in the end."""
        self._made.append(own)

    def remove(self, own: str) -> None:
        """Have a task's sandbox deleted in the end, if it lies in that of the pilot."""
        own, pilot = os.path.normpath(own), os.path.normpath(self._known.pilot)
        if own != pilot and os.path.commonpath([own, pilot]) == pilot:
            self._removed.append(own)

    def fetch(self, wanted: Iterable[tuple[str, Iterable[Directive]]], bases: tuple[str, str]) -> None:
        """Bring here what directives take from there; after an error, a part of it may be here."""
        paths = [path for own, directives in wanted for path in self.of(own).sources(directives, bases)]
        if not paths:
            return
        mark = os.urandom(16).hex()
        script = Path(self._place, 'script')
        script.write_text('\n'.join([_PACK, *(f'take {quote(path)} {_pattern(path)}' for path in paths),
                                     _PACKED.format(mark)]), encoding='utf-8', errors='surrogateescape')
        try:
            receive(self._shell.command('exec /bin/sh -s'), self._archive,
                    f'files could not be fetched from {self._shell.host}', script)
        except PlatformError:
            with suppress(PlatformError):   # it has an end that nobody expects
                self._unpack(mark.encode() + b'\n')
            raise
        self._unpack(mark.encode() + b'\n')
        self._there.update(name for name, _ in self._leaves())

    def finish(self) -> None:
        """Have sandboxes made and removed, and everything that is new here sent."""
        new = {name for name, _ in self._leaves() if name not in self._there}
        if not (new or self._made or self._removed):
            return
        with tarfile.open(self._archive, 'w') as archive:
            for name, path in self._leaves():
                if name in new:
                    archive.add(path, name, recursive=False)
        steps = [f'{own_functions()}rp_make_own {quote(self._known.pilot)}', *self._each('mkdir -p', self._made),
                 *self._each('rm -rf', self._removed), 'cd /', 'exec tar -xof -']
        send(self._shell.command(' && '.join(steps)), self._archive,
             f'files could not be sent to {self._shell.host}')

    def fault(self, error: E) -> E:
        """The error, with paths as they are there."""
        if isinstance(error, StagingError):
            return type(error)(error.directive, error.path.replace(self.root, ''), error.reason)
        return error

    @staticmethod
    def _each(command: str, paths: Sequence[str]) -> list[str]:
        return [f'{command} {" ".join(map(quote, paths))}'] if paths else []

    def _unpack(self, mark: bytes) -> None:
        """Unpack what comes after a mark."""
        with open(self._archive, 'rb', buffering=0) as archive:
            before, found, _ = archive.read(_CHATTER).partition(mark)
            if not found:
                raise PlatformError(f'{self._shell.host} has sent no files')
        send(['tar', '-xi', '-f', '-', '-o', '-C', self.root], self._archive,
             f'what came from {self._shell.host} cannot be unpacked', skip=len(before) + len(mark))

    def _leaves(self) -> Iterator[tuple[str, str]]:
        """All files, links and empty directories; sandboxes are no news.

        Of each the name, relative to the root, and a path that is valid until the next one is asked for.
        """
        met = True   # whether there was something else since a directory was entered
        with trees.Cursor(self.root) as cursor:
            for entry in trees.walk(cursor):
                empty, met = entry.left and not met, not entry.entered
                name = '/'.join([*cursor.names, entry.name])
                if not (entry.entered or entry.left) or (empty and name not in self._sandboxes):
                    yield name, cursor.at(entry.name)


class There:
    """A sandbox on another host: `sandboxes` are below the directory that stands for its root."""

    def __init__(self, files: Elsewhere, own: str, sandboxes: Sandboxes) -> None:
        self._files = files
        self._own = own
        self.sandboxes = sandboxes

    def make(self) -> None:
        """Have the sandbox made in the end."""
        self._files.make(self._own)

    def remove(self) -> None:
        """Have the sandbox deleted in the end."""
        self._files.remove(self._own)

    def directives(self, directives: Iterable[Directive], bases: tuple[str, str]) -> list[Directive]:
        """Those in which absolute paths of the other host are below the directory that stands for its root."""
        found = [directive.copy() for directive in directives]
        for directive in found:
            if bases[1] == 'task':
                directive['target'] = _of_endpoint(directive['target'])
            else:
                directive['source'] = _of_endpoint(directive['source'])
        return found

    def sources(self, directives: Iterable[Directive], bases: tuple[str, str]) -> Iterator[str]:
        """The paths there that directives take something from."""
        root = self._files.root
        for directive in self.directives(directives, bases):
            path = resolve(directive['source'], bases[0], self.sandboxes)
            if path.startswith(root):
                yield path.removeprefix(root)

    def run(self, uid: str, directives: Iterable[Directive], bases: tuple[str, str], tracer: Tracer,
            name: str) -> list[str]:
        """Carry out directives; gives their targets."""
        targets = run(uid, self.directives(directives, bases), bases, self.sandboxes, tracer, name)
        return [target.removeprefix(self._files.root) for target in targets]


def _of_endpoint(url: str) -> str:
    """An absolute path, or a URL with one, as seen from the root of the platform's file system."""
    path = url.removeprefix('file://').removeprefix('localhost') if url.startswith('file://') else url
    return f'endpoint://{path}' if path.startswith('/') else url


def _pattern(path: str) -> str:
    """The path as a word of the shell in which wildcards are none but those of the path."""
    return ''.join(each if each in '*?[]-!' else quote(each) for each in path)

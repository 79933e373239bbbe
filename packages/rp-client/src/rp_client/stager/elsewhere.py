"""Files of a sandbox on another host, reached over the platform's file system endpoint.

A local directory mirrors the root of the other host's file system. The sources of directives are fetched into it, the
directives are executed locally, by the same code as elsewhere, and new files are sent. Wildcards, directories, flags
and errors therefore have the same meaning. Each direction uses one connection and one `tar` archive for several tasks.
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

from rp_api.errors import PlatformError, StagingError
from rp_api.staging import trees
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes, resolve
from rp_client.bootstrap.prepare import own_functions
from rp_client.launcher.batch.shell import Shell
from rp_client.launcher.batch.transfer import receive, send
from rp_client.launcher.sandbox import E, Files, Sandbox
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
"""Lists the existing files; the arguments of `take` are a path, and the matches of the path as a pattern."""

_PACKED = '''echo {}
pack() {{ tar "$1" - --null -T "$lists/$2"; test $? -le 1; }}   # 1: a file has changed meanwhile, as logs do
pack -cf files && pack -chf links'''
"""Named links are resolved, links in directories are kept. The mark separates the archive from a login's output."""

_CHATTER = 1 << 20
"""Bytes that a login may print."""


class Elsewhere(Files):
    """The files of a pilot and its tasks on the host of a URL such as `sftp://login/`."""

    def __init__(self, endpoint: str, known: Sandboxes) -> None:
        super().__init__(known)
        self._shell = Shell(endpoint)
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
        """Return the sandbox in this directory of the host."""
        known = self._known._replace(task=own)
        sandboxes = known._replace(**{name: self.root + getattr(known, name) for name in (
            'resource', 'session', 'pilot', 'task', 'endpoint')})
        for name in ('resource', 'session', 'pilot', 'task'):
            os.makedirs(getattr(sandboxes, name), exist_ok=True)
            self._sandboxes.add(os.path.relpath(getattr(sandboxes, name), self.root))
        return There(self, own, sandboxes)

    def make(self, own: str) -> None:
        """Schedule a directory to be made by `finish`."""
        self._made.append(own)

    def remove(self, own: str) -> None:
        """Schedule a task's sandbox to be deleted by `finish`, if it lies in that of the pilot."""
        own, pilot = os.path.normpath(own), os.path.normpath(self._known.pilot)
        if own != pilot and os.path.commonpath([own, pilot]) == pilot:
            self._removed.append(own)

    def fetch(self, wanted: Iterable[tuple[str, Iterable[Directive]]], bases: tuple[str, str]) -> None:
        """Fetch the sources of directives; after an error, a part of them may be there."""
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
            with suppress(PlatformError):   # the archive is not complete
                self._unpack(mark.encode() + b'\n')
            raise
        self._unpack(mark.encode() + b'\n')
        self._there.update(name for name, _ in self._leaves())

    def finish(self) -> None:
        """Make and remove sandboxes on the host, and send all new files."""
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
        """Return the error with paths as they are on the host."""
        if isinstance(error, StagingError):
            return type(error)(error.directive, error.path.replace(self.root, ''), error.reason)
        return error

    @staticmethod
    def _each(command: str, paths: Sequence[str]) -> list[str]:
        return [f'{command} {" ".join(map(quote, paths))}'] if paths else []

    def _unpack(self, mark: bytes) -> None:
        """Unpack the archive that follows a mark."""
        with open(self._archive, 'rb', buffering=0) as archive:
            before, found, _ = archive.read(_CHATTER).partition(mark)
            if not found:
                raise PlatformError(f'{self._shell.host} has sent no files')
        send(['tar', '-xi', '-f', '-', '-o', '-C', self.root], self._archive,
             f'the archive from {self._shell.host} cannot be unpacked', skip=len(before) + len(mark))

    def _leaves(self) -> Iterator[tuple[str, str]]:
        """Yield all files, links and empty directories except sandboxes.

        Each is a name, relative to the root, and a path that is valid until the next one is yielded.
        """
        met = True   # whether an entry was found since a directory was entered
        with trees.Cursor(self.root) as cursor:
            for entry in trees.walk(cursor):
                empty, met = entry.left and not met, not entry.entered
                name = '/'.join([*cursor.names, entry.name])
                if not (entry.entered or entry.left) or (empty and name not in self._sandboxes):
                    yield name, cursor.at(entry.name)


class There(Sandbox):
    """A sandbox on another host, with `sandboxes` in the mirror of its file system."""

    def __init__(self, files: Elsewhere, own: str, sandboxes: Sandboxes) -> None:
        super().__init__(sandboxes)
        self._files = files
        self._own = own

    def make(self) -> None:
        """Schedule the sandbox to be made."""
        self._files.make(self._own)

    def remove(self) -> None:
        """Schedule the sandbox to be deleted."""
        self._files.remove(self._own)

    def directives(self, directives: Iterable[Directive], bases: tuple[str, str]) -> list[Directive]:
        """Return directives in which absolute paths of the other host refer to the mirror."""
        found = [directive.copy() for directive in directives]
        for directive in found:
            if bases[1] == 'task':
                directive['target'] = _of_endpoint(directive['target'])
            else:
                directive['source'] = _of_endpoint(directive['source'])
        return found

    def sources(self, directives: Iterable[Directive], bases: tuple[str, str]) -> Iterator[str]:
        """Yield the source paths of directives on the host."""
        root = self._files.root
        for directive in self.directives(directives, bases):
            path = resolve(directive['source'], bases[0], self.sandboxes)
            if path.startswith(root):
                yield path.removeprefix(root)

    def run(self, uid: str, directives: Iterable[Directive], bases: tuple[str, str], tracer: Tracer,
            name: str) -> list[str]:
        """Execute directives, and return their targets."""
        targets = super().run(uid, directives, bases, tracer, name)
        return [target.removeprefix(self._files.root) for target in targets]


def _of_endpoint(url: str) -> str:
    """Return an absolute path, or a `file` URL, as an `endpoint` URL; other URLs are returned unchanged."""
    path = url.removeprefix('file://').removeprefix('localhost') if url.startswith('file://') else url
    return f'endpoint://{path}' if path.startswith('/') else url


def _pattern(path: str) -> str:
    """Return the path quoted for the shell, except for its wildcards."""
    return ''.join(each if each in '*?[]-!' else quote(each) for each in path)

"""Staging over ssh, with the programs `sftp` of OpenSSH and `gsisftp` of GSI-OpenSSH.

A transfer is one run of the program, with a batch of commands as its input. Hosts, keys and shared connections are
those of the user's configuration of ssh; a password is never asked for. `scp://` means the same as `sftp://`, as
OpenSSH's `scp` transfers files with that protocol, too.

A file gets its name when it is complete. The files of a directory are written in their places; links in it are errors,
as `sftp` skips them.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO, ClassVar, NamedTuple

from rp_api.errors import DescriptionError
from rp_api.staging.files import fault
from rp_api.staging.interruption import check_interruption, interrupted, transferring
from rp_api.staging.protocol import Transport, masked, transport
from rp_api.system.processes import exit_code, pidfd_open
from rp_api.system.ssh import OPTIONS

_URL = re.compile(r'[^:/]+://(?:(?P<user>[^@/]*)@)?(?P<host>\[[\w:.%]+\]|[\w.-]+)(?::(?P<port>[0-9]+))?/(?P<path>.+)')
_CHECK_INTERVAL_MS = 500
"""Milliseconds between checks for interruptions."""

_KILL_GRACE = 2000
"""Milliseconds that an interrupted program has to end."""

_MAX_MESSAGE_BYTES = 2000
"""Bytes at the end of a program's messages that are looked at."""

_SKIPPED = re.compile(r'(.*?)"?: not a regular file')
_PARENT_EXISTS = re.compile(r'remote mkdir .*: Failure|Couldn\'t create directory: Failure')


class SshPlace(NamedTuple):
    """A file on another host. Its path is absolute, or relative to the user's home directory there."""

    user: str
    host: str
    port: str
    path: str

    @classmethod
    def of(cls, url: str) -> SshPlace:
        """Return the place of a URL such as `sftp://user@host:port/path`; `/~/` begins a path below the home directory.

        Raise a `DescriptionError` for other forms. Percent signs in the path stand for themselves.
        """
        found = _URL.fullmatch(url)
        if found is None:
            raise DescriptionError(f'{url!r} is not SCHEME://[USER@]HOST[:PORT]/PATH, in one line')
        user, host, port, path = (found[name] or '' for name in ('user', 'host', 'port', 'path'))
        if ':' in user:
            raise DescriptionError(f'{url!r} must not hold a password: use a key, an agent or a shared connection')
        if user.startswith('-') or host.startswith('-'):
            raise DescriptionError(f'{url!r} names a user or host that begins with a hyphen')
        return cls(user, host, port, _path(path))

    @property
    def words(self) -> list[str]:
        """The arguments of the program that name the host."""
        return [*(['-P', self.port] if self.port else []), f'{self.user}@{self.host}' if self.user else self.host]


class Sftp(Transport):
    """Files on hosts that are reached by ssh."""

    schemes = frozenset(('sftp',))
    patterns = True
    program: ClassVar[str] = 'sftp'
    """The program that transfers the files."""
    package: ClassVar[str] = 'the client of OpenSSH'
    """The software that has the program."""

    def missing(self) -> str:
        if shutil.which(self.program):
            return ''
        return (f'{self.program}, which is needed for {"://, ".join(sorted(self.schemes))}://, is not installed '
                f'on this host: install {self.package}')

    def check(self, source: str, target: str) -> None:
        super().check(source, target)
        SshPlace.of(source if transport(source) else target)

    def name(self, source: str) -> str:
        return os.path.basename(source.split('://', 1)[1].partition('/')[2].rstrip('/'))

    def command(self, place: SshPlace) -> list[str]:
        """Return the command line for transfers from or to a place; the commands are its standard input."""
        return [self.program, *OPTIONS, '-b', '-', *place.words]

    def get(self, url: str, directory: str) -> None:
        place = SshPlace.of(url)
        self._check(url, place, [f'get -rp {_pattern(place.path.rstrip("/"))} .'], directory)

    def put(self, path: str, url: str, parents: bool) -> None:
        place = SshPlace.of(url)
        target = os.path.join(place.path, os.path.basename(path)) if place.path.endswith('/') else place.path
        with tempfile.TemporaryDirectory(prefix='rp.sftp.') as local:
            if os.path.isdir(path):
                self._put_directory(path, url, place, target, parents, local)
            else:
                self._put_file(path, url, place, target, parents, local)

    def _put_directory(self, path: str, url: str, place: SshPlace, target: str, parents: bool, local: str) -> None:
        """Merge a local directory into one on the host, which is created if it is missing."""
        parent, name = os.path.split(target)
        os.symlink(path, os.path.join(local, name))
        self._check(url, place, [*_entered(parent, parents), f'put -rp {_quoted(name)}'], local)

    def _put_file(self, path: str, url: str, place: SshPlace, target: str, parents: bool, local: str) -> None:
        temporary = os.path.basename(local)   # unique, also on the host, with high probability
        os.symlink(path, os.path.join(local, temporary))
        parent, name = os.path.split(target)
        enter = _entered(parent, parents)
        code, said = self._run(place, [*enter, f'put -p {temporary}', f'rename {temporary} {_quoted(name)}'], local)
        if code and 'rename' in said:
            self._replace(path, url, place, parent, name, temporary, local)
        elif code:
            raise fault(errno.EREMOTEIO, url, said)

    def _replace(self, path: str, url: str, place: SshPlace, parent: str, name: str, temporary: str,
                 local: str) -> None:
        """Give a file that was sent its name, which is in use: by a directory, or the server cannot replace files."""
        enter = _entered(parent, parents=False)
        code, _ = self._run(place, [*enter, f'cd {_quoted(name)}'], local)
        into = os.path.join(name, os.path.basename(path)) if code == 0 else name
        try:
            self._check(url, place, [*enter, f'-rm {_quoted(into)}', f'rename {temporary} {_quoted(into)}'], local)
        except OSError:
            self._run(place, [*enter, f'rm {temporary}'], local)
            raise

    def _check(self, url: str, place: SshPlace, commands: Sequence[str], directory: str) -> None:
        """Run commands; raise an OSError if one fails, or if the program skips a file."""
        code, said = self._run(place, commands, directory)
        skipped = _SKIPPED.search(said)
        if code:
            raise fault(errno.EREMOTEIO, url, said)
        if skipped:
            raise fault(errno.EINVAL, url, f'{self.program} transfers only files and directories: {skipped[0]}')

    def _run(self, place: SshPlace, commands: Sequence[str], directory: str) -> tuple[int, str]:
        """Run commands in a local directory, and return the exit code and the error messages."""
        with tempfile.TemporaryFile() as batch, tempfile.TemporaryFile() as messages:
            batch.write(os.fsencode('\n'.join(commands) + '\n'))
            batch.seek(0)
            # in our session, as an agent takes children in other sessions for those of its tasks
            with transferring():
                process = subprocess.Popen(self.command(place), stdin=batch, stdout=subprocess.DEVNULL, stderr=messages,
                                           cwd=directory)
                code = _ended(process)
            said = _end_of(messages)
        check_interruption(masked(f'{self.program}://{place.host}/{place.path}'))
        if code is None:
            return 1, f'the exit code of {self.program} is unknown, as another part of this process reaps all children'
        return code, said or f'{self.program} ended with exit code {code}'


class Scp(Sftp):
    """As `Sftp`."""

    schemes = frozenset(('scp',))


class Gsisftp(Sftp):
    """Files on hosts that are reached by ssh with credentials of the Grid Security Infrastructure (GSI)."""

    schemes = frozenset(('gsisftp',))
    program = 'gsisftp'
    package = 'GSI-OpenSSH'


def _path(path: str) -> str:
    """Return the path behind the first slash of a URL as the server understands it."""
    if path.startswith('~/'):
        return f'./{path[2:].lstrip("/")}'
    return f'/{path.lstrip("/")}'


def _entered(parent: str, parents: bool) -> list[str]:
    """Return the commands that enter a directory, and create it and its parents if `parents` is set."""
    made = []
    place = '/' if parent.startswith('/') else ''
    for name in parent.split('/') if parents else []:
        place = os.path.join(place, name)
        if name not in ('', '.', '..'):
            made.append(f'-mkdir {_quoted(place)}')
    return [*made, f'cd {_quoted(parent or ".")}']


def _quoted(path: str) -> str:
    """Return a path as the program's batch language has it, in which all characters stand for themselves."""
    return re.sub(r'([^\w@%+=:,./~-])', r'\\\1', path)


def _pattern(path: str) -> str:
    """Return a path in which wildcards have their meaning."""
    return re.sub(r'([^\w@%+=:,./~*?\[\]-])', r'\\\1', path)


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for the end of a program, which is ended if the transfer is interrupted; return its exit code if known."""
    descriptor = pidfd_open(process.pid)
    if descriptor is not None:
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            while not poll.poll(_CHECK_INTERVAL_MS):
                if interrupted():
                    process.terminate()   # it ends its connection, too
                    if not poll.poll(_KILL_GRACE):
                        process.kill()
                    break
        finally:
            os.close(descriptor)
    return exit_code(process)


def _end_of(messages: IO[bytes]) -> str:
    """Return the last error messages in one line."""
    size = messages.seek(0, os.SEEK_END)
    messages.seek(max(0, size - _MAX_MESSAGE_BYTES))
    lines = [line.strip() for line in messages.read().decode(errors='replace').splitlines()]
    return '; '.join(dict.fromkeys(line for line in lines if line and not _PARENT_EXISTS.fullmatch(line)))[-500:]

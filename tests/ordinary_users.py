"""Ordinary users of this machine, and the virtual environment of a site: all of them can use it, and none write to it.

Only root can make them. All that is made lies in one directory, which goes with them.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
OURS = ('rp-profiling', 'rp-api', 'rp-client', 'rp-agent', 'rp-raptor')
USUAL = ('rp_', 'radical/pilot', 'msgpack', 'zmq', 'cloudpickle')
"""What most programs load."""

TIMEOUT = 60.0
"""Seconds that a program of a user may take."""

GOING = 20.0
"""Seconds that what was told to end may take."""


@dataclass(frozen=True)
class User:
    """A local user, with a home that is private; `environ` is what programs find in their environment."""

    name: str
    uid: int
    home: Path
    environ: Mapping[str, str]

    def start(self, *command: str | Path, cwd: Path, **variables: str) -> subprocess.Popen[str]:
        """A program that this user runs, in a session of its own, with pipes."""
        return subprocess.Popen(
            [str(word) for word in command], cwd=cwd, env={**self.environ, **variables}, user=self.uid, group=self.uid,
            extra_groups=[], umask=0o022, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)

    def run(self, *command: str | Path, cwd: Path, stdin: str = '', **variables: str) -> tuple[int, str]:
        """The exit code of a program and what it has written; it is killed if it takes too long."""
        with self.start(*command, cwd=cwd, **variables) as process:
            try:
                said, _ = process.communicate(stdin, TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said, _ = process.communicate()
                pytest.fail(f'{command} of {self.name} took longer than {TIMEOUT:g} s, it said: {said}')
        return process.returncode, said

    def processes(self) -> dict[int, str]:
        """The command lines of all processes of this user."""
        found = {}
        for path in Path('/proc').iterdir():
            with suppress(OSError):   # it has ended
                if path.name.isdigit() and path.stat().st_uid == self.uid:
                    found[int(path.name)] = (path / 'cmdline').read_bytes().replace(b'\0', b' ').decode()
        return {pid: line for pid, line in found.items() if line}   # a zombie has none

    def left(self) -> dict[int, str]:
        """The processes that do not end within some seconds."""
        deadline = time.monotonic() + GOING
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def kill(self) -> None:
        """End all processes of this user."""
        while found := self.processes():
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


@dataclass
class Machine:
    """A place for users; `python` is the interpreter of the site's virtual environment, `temporary` their TMPDIR."""

    place: Path
    site: Path
    environ: dict[str, str]
    users: list[User] = field(default_factory=list)

    @property
    def python(self) -> Path:
        return self.site / 'bin' / 'python'

    def shared(self, name: str, mode: int) -> Path:
        """A new directory of root with that mode."""
        path = self.place / name
        path.mkdir()
        path.chmod(mode)
        return path

    def add_user(self, name: str) -> User:
        """A new user of the machine, whose name begins like this."""
        own = f'{name}{os.getpid()}'
        home = self.place / own
        with _user_database():
            subprocess.run(['useradd', '--no-create-home', '--home-dir', str(home), '--user-group', '--shell',
                            '/bin/sh', own], check=True, capture_output=True)
        uid = int(subprocess.run(['id', '-u', own], check=True, capture_output=True, text=True).stdout)
        user = User(own, uid, home, {**self.environ, 'HOME': str(home), 'USER': own, 'LOGNAME': own})
        self.users.append(user)
        home.mkdir(0o700)
        os.chown(home, uid, uid)
        return user

    def remove_users(self) -> dict[int, str]:
        """Remove all users; gives the processes that they have left, which are killed."""
        left: dict[int, str] = {}
        for user in self.users:
            left |= user.left()
            user.kill()
            with _user_database():
                subprocess.run(['userdel', '--force', user.name], check=True, capture_output=True)
        return left


@contextmanager
def machine(*, compiled: bool) -> Iterator[Machine]:
    """A place for users with the environment of a site; `compiled` tells whether the modules in that are."""
    missing = [program for program in ('useradd', 'userdel') if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        (pytest.fail if 'CI' in os.environ else pytest.skip)(
            f'not installed: {", ".join(missing)}' if missing else 'only root can make users')
    # not in a directory of pytest, which no other user can enter
    with tempfile.TemporaryDirectory(prefix='rp.users.', dir='/var/tmp', ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        place.chmod(0o755)
        site, environ = _make_site(place, compiled)
        for found, _, _ in os.walk(place):   # some are copies of private ones
            os.chmod(found, 0o755)
        (place / 'tmp').mkdir()
        (place / 'tmp').chmod(0o1777)
        made = Machine(place, site, environ | {
            'PATH': f'{site}/bin:/usr/bin:/bin', 'TMPDIR': str(place / 'tmp'), 'LANG': 'C.UTF-8'})
        try:
            yield made
        finally:
            left = made.remove_users()
        assert left == {}, 'these processes were left'


@contextmanager
def _user_database() -> Iterator[None]:
    """Have the user database for us: useradd gives up at once if another one is at work."""
    descriptor = os.open('/etc', os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_site(place: Path, compiled: bool) -> tuple[Path, dict[str, str]]:
    """The virtual environment with the distributions, and what its programs need in their environment."""
    python, environ = _interpreter(place)
    site = place / 'site'
    subprocess.run([python, '-m', 'venv', '--without-pip', str(site)], check=True, env=environ,
                   stdin=subprocess.DEVNULL)
    packages, = site.glob('lib/python*/site-packages')
    for name in sorted(_needed(OURS + (('mpich',) if _is_installed('mpich') else ()))):
        _copy_distribution(name, packages, site)
    for name in OURS:   # copies: a link would change the time of a source file, which the cache of other tests sees
        shutil.copytree(ROOT / 'packages' / name / 'src', packages, dirs_exist_ok=True,
                        copy_function=_copy_readable,
                        ignore=shutil.ignore_patterns('__pycache__', '*.egg-info', '*.c', '*.pyx'))
    if compiled:
        loaded = [path for name in USUAL for path in packages.glob(f'{name}*') if path.is_dir()]
        subprocess.run([python, '-W', 'ignore', '-m', 'compileall', '-q', *map(str, loaded)], check=True, env=environ,
                       stdin=subprocess.DEVNULL)
    return site, environ


def _interpreter(place: Path) -> tuple[str, dict[str, str]]:
    """A Python that all users can run, and what it needs: this one's, or a copy where they cannot get at it."""
    base = Path(sys.base_prefix)
    if all(path.stat().st_mode & 0o005 == 0o005 for path in (base, *base.parents)):
        return str(getattr(sys, '_base_executable', sys.executable)), {}
    version = f'python{sys.version_info.major}.{sys.version_info.minor}'
    copy = place / 'python'
    (copy / 'bin').mkdir(parents=True)
    _link(base / 'bin' / version, copy / 'bin' / version)
    shutil.copytree(base / 'lib' / version, copy / 'lib' / version, copy_function=_link,
                    ignore=shutil.ignore_patterns('site-packages', 'test', 'tests', 'idlelib', 'ensurepip', 'config-*'))
    for library in (base / 'lib').glob(f'lib{version}*.so*'):
        _link(library, copy / 'lib' / library.name)
    return str(copy / 'bin' / version), {'LD_LIBRARY_PATH': str(copy / 'lib')}


def _link(source: str | Path, target: str | Path) -> None:
    """Have a file in another place as well, readable for all; a copy if the file itself cannot be in two places."""
    try:
        if os.stat(source).st_mode & 0o004:
            os.link(source, target)
            return
    except OSError:   # another file system
        pass
    _copy_readable(source, target)


def _copy_readable(source: str | Path, target: str | Path) -> None:
    """Copy a file, readable for all."""
    shutil.copy2(source, target)
    os.chmod(target, os.stat(target).st_mode | 0o044)


def _is_installed(name: str) -> bool:
    return bool(list(importlib.metadata.distributions(name=name)))


def _needed(names: tuple[str, ...]) -> set[str]:
    """These distributions and all that they need."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            for text in importlib.metadata.distribution(name).requires or ():
                requirement = Requirement(text)
                if requirement.marker is None or requirement.marker.evaluate({'extra': ''}):
                    waiting.append(requirement.name.lower())
    return found


def _copy_distribution(name: str, packages: Path, site: Path) -> None:
    """Copy the files of a distribution, also those that lie outside of the directory of packages, such as programs."""
    distribution = importlib.metadata.distribution(name)
    for path in distribution.files or ():
        source, target = Path(str(distribution.locate_file(path))), Path(os.path.normpath(packages / path))
        if path.suffix in ('.pyc', '.pth') or path.name == 'direct_url.json' or not source.is_file():
            continue
        assert target.is_relative_to(site), (name, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(source, target)
        if target.parent == site / 'bin':
            _have_own_interpreter(target, site)


def _have_own_interpreter(program: Path, site: Path) -> None:
    first, newline, rest = program.read_bytes().partition(b'\n')
    if first.startswith(b'#!') and b'python' in first:
        program.unlink()   # and not in place: it may be a link
        program.write_bytes(f'#!{site}/bin/python'.encode() + newline + rest)
        program.chmod(0o755)


"""Makes or updates a virtual environment on the machine of a pilot, once for all pilots that share it.

Stage 0 runs this file as `bootstrap_0.py`; it imports only the standard library. Its exit code is 0, or it prints one
sentence on standard output, and exits with `FAILED`. The programs that it runs write to the file `LOG`.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time

LOG = 'bootstrap_0.log'
MARK = 'rp.session'
"""The file in an environment with the uid of the session that made or updated it."""

UNPACKED = 'bootstrap_0.wheels'
FAILED = 15

STALE = 30.0
"""Seconds without a heartbeat after which the owner of a lock counts as dead."""

BEAT = 2.0
"""Seconds between heartbeats."""

POLL_S = 0.25
"""Seconds between polls of a lock, as locks that notify do not work on every file system."""

NO_NETWORK = ('Network is unreachable', 'Name or service not known', 'Temporary failure in name resolution',
              'Connection refused', 'No route to host', 'ConnectTimeoutError', 'ProxyError')


class Refused(Exception):
    """An operation that is not possible, with the reason in a sentence."""


class Lock:
    """A lock that works on every shared file system: a directory that exists while the lock is held."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._done = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._me = f'{os.uname().nodename} {os.getpid()}'

    def __enter__(self) -> Lock:
        deadline = time.monotonic() + self._timeout
        seen, since = None, time.monotonic()
        while not self._taken():
            _check(self._path)
            now = time.monotonic()
            sign = self._sign()
            if sign != seen:
                seen, since = sign, now
            elif self._dead(sign) or now - since > STALE:
                self._break(sign)
            if now > deadline:
                raise Refused(f'{self._path} is held by process {sign.partition(chr(10))[0] or "(unknown)"} for more '
                              f'than {self._timeout:.0f} s: if that does not run any more, remove the directory')
            time.sleep(POLL_S)
        self._say('0')
        self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._heart.join()
        shutil.rmtree(self._path, ignore_errors=True)

    def _taken(self) -> bool:
        try:
            os.mkdir(self._path, 0o700)
        except FileExistsError:
            return False
        return True

    def _beat(self) -> None:
        number = 0
        while not self._done.wait(BEAT):
            number += 1
            self._say(str(number))

    def _say(self, number: str) -> None:
        """Write a heartbeat; ignores errors, as a full disk may be temporary."""
        new = os.path.join(self._path, 'new')
        try:
            with open(new, 'w') as file:
                file.write(f'{self._me}\n{number}\n')
            os.replace(new, os.path.join(self._path, 'owner'))
        except OSError:
            return

    def _sign(self) -> str:
        """Return the last heartbeat of the owner; empty without one."""
        try:
            with open(os.path.join(self._path, 'owner')) as file:
                return file.read()
        except OSError:
            return ''

    def _dead(self, sign: str) -> bool:
        """Return whether the owner was a process of this host and has ended."""
        host, _, pid = sign.partition('\n')[0].rpartition(' ')
        return host == os.uname().nodename and pid.isdigit() and not os.path.exists(f'/proc/{pid}')

    def _break(self, sign: str) -> None:
        """Remove the lock of a dead owner; one of several processes succeeds."""
        aside = f'{self._path}.{self._me.replace(" ", ".")}'
        if self._sign() == sign:
            try:
                os.rename(self._path, aside)
            except OSError:   # another process was faster
                return
            shutil.rmtree(aside, ignore_errors=True)


def main() -> int:
    """Make or update the environment, and return the exit code."""
    options = _options()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)   # an ignored signal would hide the exit codes of programs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))   # ends the running program, too
    try:
        os.makedirs(os.path.dirname(options.path), exist_ok=True)
        _check(options.path)
        with Lock(f'{options.path}.lock', options.patience):
            if options.mode == 'tree':
                _provide_tree(options)
            else:
                _provide(options)
    except Refused as error:
        print(error)
        return FAILED
    except OSError as error:
        print(f'{options.path} cannot be made on {os.uname().nodename}: {error.strerror}: {error.filename}')
        return FAILED
    return 0


def _check(path: str) -> None:
    """Refuse an environment or lock of another user in a directory that is writable for all.

    The Python of the environment would be run, and the lock waited for.
    """
    above = os.stat(os.path.dirname(os.path.abspath(path)))
    try:
        owner = os.lstat(path).st_uid
    except FileNotFoundError:
        return
    if above.st_mode & stat.S_IWOTH and owner not in (os.geteuid(), above.st_uid, 0):
        raise Refused(f'{path} is not ours alone: it belongs to user {owner}, in a directory where every user can '
                      'make entries')


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument('mode', choices=['private', 'create', 'update', 'recreate', 'tree'])
    parser.add_argument('path')
    parser.add_argument('requirements', nargs='+')
    parser.add_argument('--session', required=True)
    parser.add_argument('--pilot', default='')
    parser.add_argument('--dist', default='default')
    parser.add_argument('--bundle', default='')
    parser.add_argument('--profile', action='store_true')
    parser.add_argument('--patience', type=float, default=1800.0)
    return parser.parse_args()


def _provide(options: argparse.Namespace) -> None:
    """Make or update the environment according to the mode, at most once in a session."""
    path, mark, making = options.path, os.path.join(options.path, MARK), f'{options.path}.making'
    if os.path.exists(making):   # the process that made it has died
        shutil.rmtree(path, ignore_errors=True)
    there, own = os.path.exists(path), _read(mark) == options.session
    if there and options.mode == 'private':
        raise Refused(f'the virtual environment {path} is there already, but virtenv_mode is private')
    if not there or (options.mode == 'recreate' and not own):
        _touch(making)
        try:
            _make(options)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        finally:
            os.unlink(making)
    elif options.mode == 'update' and not own:
        _update(options)
    else:
        return
    _touch(mark, options.session)


def _make(options: argparse.Namespace) -> None:
    shutil.rmtree(options.path, ignore_errors=True)
    _event(options, 've_create_start')
    _create(options)
    _event(options, 've_create_stop')
    _event(options, 'rp_install_start')
    _install(options, _pip_for(options))
    _event(options, 'rp_install_stop')


def _update(options: argparse.Namespace) -> None:
    _event(options, 've_create_start')
    _event(options, 've_update_start')
    _install(options, _pip_for(options), '--upgrade')
    _event(options, 've_update_stop')
    _event(options, 've_create_stop')


def _provide_tree(options: argparse.Namespace) -> None:
    """Make a directory of packages beside an environment that must not be changed."""
    mark = os.path.join(options.path, MARK)
    if not os.path.exists(mark):
        shutil.rmtree(options.path, ignore_errors=True)
        _event(options, 'rp_install_start')
        _install(options, [sys.executable, '-m', 'pip'], '--target', options.path)
        _event(options, 'rp_install_stop')
        _touch(mark, options.session)


def _create(options: argparse.Namespace) -> None:
    """Make an empty environment by the first command that succeeds."""
    path, reasons = options.path, []
    for command in _makers(options):
        if _run(command, options) == 0:
            return
        reasons.append(f'{" ".join(command[:-1])}: {_reason()}')
        shutil.rmtree(path, ignore_errors=True)
    raise Refused(f'no virtual environment can be made at {path}: {"; ".join(reasons)}')


def _makers(options: argparse.Namespace) -> list[list[str]]:
    if options.dist == 'anaconda':
        return [['conda', 'create', '--yes', '--quiet', '--prefix', options.path, 'python>=3.10', 'pip']]
    # installing pip into it takes seconds, and fails on some systems
    quick = [[sys.executable, '-m', 'venv', '--without-pip', options.path]] if _can_install_elsewhere() else []
    return [*quick, [sys.executable, '-m', 'venv', options.path], [sys.executable, '-m', 'virtualenv', options.path],
            ['virtualenv', '--python', sys.executable, options.path]]


def _can_install_elsewhere() -> bool:
    """Return whether this Python has a pip that installs into other environments."""
    try:
        from pip import __version__ as version
    except ImportError:
        return False
    return tuple(int(part) for part in re.findall('[0-9]+', version)[:2]) >= (22, 3)


def _pip_for(options: argparse.Namespace) -> list[str]:
    """Return the pip command for the environment: its own pip, or that of this Python."""
    python = os.path.join(options.path, 'bin', 'python')
    if glob.glob(os.path.join(glob.escape(options.path), 'lib', 'python*', 'site-packages', 'pip')):
        return [python, '-m', 'pip']
    return [sys.executable, '-m', 'pip', '--python', python]


def _install(options: argparse.Namespace, pip: list[str], *extra: str) -> None:
    """Install the requirements, only from the bundle if there is one."""
    source, wanted = ['--retries', '1', '--timeout', '10'], options.requirements
    if options.bundle:
        _event(options, 'untar_start')
        wheels = _unpack(options)
        _event(options, 'untar_stop')
        source = ['--no-index', '--find-links', wheels]
        if any(name.startswith('rp_raptor-') for name in os.listdir(wheels)):
            wanted = [*wanted, 'rp-raptor']
    code = _run([*pip, 'install', '--quiet', '--disable-pip-version-check', '--no-input', *source, *extra, *wanted],
                options)
    if options.bundle:
        shutil.rmtree(UNPACKED, ignore_errors=True)
    if code:
        raise Refused(_why_not(options))


def _unpack(options: argparse.Namespace) -> str:
    try:
        os.makedirs(UNPACKED, exist_ok=True)
        with tarfile.open(options.bundle) as archive:
            for member in archive:   # only files, and only into this directory
                content = archive.extractfile(member) if member.name == os.path.basename(member.name) else None
                if content is not None:
                    with open(os.path.join(UNPACKED, member.name), 'wb') as file:
                        shutil.copyfileobj(content, file)
    except (OSError, tarfile.TarError) as error:
        reason = str(error).partition('\n')[0]
        raise Refused(f'the bundle {os.path.abspath(options.bundle)} cannot be unpacked: {reason}') from error
    return os.path.abspath(UNPACKED)


def _why_not(options: argparse.Namespace) -> str:
    wanted = ' '.join(options.requirements)
    with open(LOG, errors='replace') as file:
        said = file.read()
    if options.bundle:
        return f'{wanted} cannot be installed from the bundle of the client: {_reason()}'
    if any(words in said for words in NO_NETWORK):
        return (f'{wanted} cannot be installed, as {os.uname().nodename} does not reach the package index: make a '
                "bundle with `rp bundle`, and set rp_version of the platform to 'local'")
    return f'{wanted} cannot be installed: {_reason()}'


def _run(command: list[str], options: argparse.Namespace) -> int:
    """Run a program with its output in a new log, and return the exit code."""
    with open(LOG, 'w') as log:
        try:
            # not in the sandbox, whose files could shadow modules
            return subprocess.call(command, cwd='/', stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   timeout=options.patience)
        except OSError as error:
            log.write(f'{command[0]}: {error.strerror}\n')
            return 127
        except subprocess.TimeoutExpired:
            raise Refused(f'{" ".join(command[:4])} ... took longer than {options.patience:.0f} s') from None


def _reason() -> str:
    """Return the last error message in the log."""
    with open(LOG, errors='replace') as file:
        lines = [line.strip() for line in file if line.strip()]
    errors = [line for line in lines if 'rror' in line or 'No space' in line]
    return (errors or lines or ['without an error message'])[-1]


def _touch(path: str, content: str = '') -> None:
    with open(path, 'w') as file:
        file.write(content)


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ''


def _event(options: argparse.Namespace, name: str) -> None:
    """Record an event in the profile of stage 0."""
    if options.profile:
        with open('bootstrap_0.prof', 'a') as file:
            file.write(f'{time.time():.7f},{name},bootstrap_0,MainThread,{options.pilot},,\n')


if __name__ == '__main__':
    sys.exit(main())

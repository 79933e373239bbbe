"""What the batch systems and hosts that tests start have in common: daemons in the foreground, and nothing left behind.

A cluster has a directory of its own, and whatever it starts has the name of that directory in its environment or its
command line, which is how what its jobs have left is found in the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rp_agent.lineage import die_with_parent

TIMEOUT = 30.0
SYSTEM_PATH = f'{os.environ.get("PATH", "")}:/usr/sbin:/sbin'


def require(*programs: str) -> None:
    """Skip the test where a program is missing; in CI, fail."""
    missing = [name for name in programs if not shutil.which(name, path=SYSTEM_PATH)]
    if missing:
        (pytest.fail if 'CI' in os.environ else pytest.skip)(f'not installed: {", ".join(missing)}')


def require_root(purpose: str) -> None:
    """Skip the test for users who may not do what it needs; in CI, fail."""
    if os.geteuid() != 0:
        (pytest.fail if 'CI' in os.environ else pytest.skip)(f'only root can {purpose}')


def belonging(directory: Path) -> set[int]:
    """The processes, but this one, that have the name of the directory in their environment or command line."""
    text = str(directory).encode()
    found = set()
    for process in Path('/proc').iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):   # it has ended
                if text in (process / 'cmdline').read_bytes() + (process / 'environ').read_bytes():
                    found.add(int(process.name))
    return found


class Cluster:
    """Daemons that belong together, and the environment in which programs find them.

    `prefix` is what to put before commands if the cluster is on another host than this one.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        self.directory = directory
        self.environ = dict(environ)
        self._prefix = list(prefix)
        self._daemons: list[subprocess.Popen[bytes]] = []

    def daemon(self, *command: str, prefix: Sequence[str] | None = None) -> subprocess.Popen[bytes]:
        """Start a program that stays in the foreground; what it writes goes to `<its name>.out`.

        It ends with us, however we end. `prefix` is for a program that is not on the host of the others.
        """
        program, *arguments = command
        path = shutil.which(program, path=SYSTEM_PATH)
        ours = os.getpid()
        before = self._prefix if prefix is None else prefix
        with open(self.directory / f'{Path(program).name}.out', 'ab') as output:
            process = subprocess.Popen([*before, path or program, *arguments], stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=output, env=os.environ | self.environ,
                                       start_new_session=True, cwd=self.directory,
                                       preexec_fn=lambda: die_with_parent(ours))
        self._daemons.append(process)
        return process

    def forget(self, daemon: subprocess.Popen[bytes]) -> None:
        """A daemon has been ended by the test."""
        self._daemons.remove(daemon)

    def run(self, *command: str, check: bool = True, text: str | None = None) -> str:
        """What a program writes that is run in the environment of the cluster."""
        done = subprocess.run([*self._prefix, *command], env=os.environ | {'PATH': SYSTEM_PATH} | self.environ,
                              text=True, input=text or '', stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=TIMEOUT)
        if check and done.returncode:
            raise RuntimeError(f'{" ".join(command)}: {done.returncode}: {done.stdout}')
        return done.stdout

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Return when the condition holds; fails when a daemon has ended, or with what they wrote after a while."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            ended = [process for process in self._daemons if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                written = '\n'.join(f'{path.name}: {path.read_text(errors="replace")[-2000:]}'
                                    for path in sorted(self.directory.glob('*.out')))
                raise RuntimeError(f'{what}: {"a daemon has ended" if ended else "not in time"}\n{written}')
            time.sleep(0.02)

    def stop(self) -> None:
        """End all daemons and whatever belongs to the cluster."""
        for process in reversed(self._daemons):
            process.terminate()
        for process in self._daemons:
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        deadline = time.monotonic() + TIMEOUT
        while (left := belonging(self.directory)) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        assert not left, f'processes of {self.directory} do not end: {left}'


@contextmanager
def own_directory(prefix: str) -> Iterator[Path]:
    """A directory whose name is short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        yield Path(name)

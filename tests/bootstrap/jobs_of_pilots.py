"""Jobs of pilots that are run without a batch system: stage 0 in a sandbox of its own, and what has become of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rp_api.platforms.definition import ResourceConfig
from rp_client import __version__
from rp_client.bootstrap import FAILED, Client, Failure, prepare, read_failure

TIMEOUT = 120.0
LABEL = 'test.machine'

# what stage 0 runs, besides a Python
TOOLS = ('cat', 'cp', 'date', 'grep', 'id', 'ls', 'mkfifo', 'mktemp', 'rm', 'sed', 'sh', 'sleep', 'tail', 'tr', 'uname')

# takes the place of an agent: says where it runs, and ends as it is told
STAGE_1 = '''
import json, os, sys
def main():
    with open('ran.json', 'w') as file:
        json.dump({'prefix': sys.prefix, 'file': __file__, 'environ': dict(os.environ)}, file)
    return 0
'''


def a_platform(**values: Any) -> ResourceConfig:
    """A platform whose agents run in no virtual environment, unless `values` say something else."""
    known = {'resource_manager': 'FORK', 'launch_methods': {'order': ['FORK']}, 'virtenv_mode': 'none',
             'label': LABEL}
    return ResourceConfig(known | values)


class Job:
    """The job of one pilot."""

    def __init__(self, base: Path, shell: list[str], name: str = 'pilot.0000') -> None:
        self.base = base
        self.shell = shell
        self.sandbox = base / 'session' / name
        self.sandbox.mkdir(parents=True)
        self.client = Client({}, '', '/nowhere/python', base / 'bundles', time.time())
        self.config: dict[str, Any] = {
            'pilot': name, 'session': 'session', 'resource': LABEL, 'profile': True, 'pilot_sandbox': str(self.sandbox),
            'session_sandbox': str(base / 'session'), 'resource_sandbox': str(base), 'agent_uid': 'agent_0',
            'coordination': {'backend': 'hub', 'endpoint': 'tcp://127.0.0.1:1'},
            'platform': {'pre_bootstrap_1': []}}
        self.environ = {'PATH': '/usr/bin:/bin', 'HOME': str(base), 'SHELL': '/bin/csh'}
        self._process: subprocess.Popen[bytes] | None = None

    def bring(self, platform: ResourceConfig) -> None:
        """Do what a launcher does: put the files in place."""
        bootstrap = prepare(self.config, platform, self.client)
        copies = {name: path.read_bytes() for name, path in bootstrap.copies.items()}
        for name, content in (bootstrap.files | copies).items():
            path = self.sandbox / name
            path.write_bytes(content)
            path.chmod(0o600)
        self.command = [*self.shell, *bootstrap.command[1:]]
        self.environ |= bootstrap.environment

    def change(self, name: str, old: str, new: str) -> None:
        """Change one of the files."""
        path = self.sandbox / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def start(self, **platform: Any) -> subprocess.Popen[bytes]:
        """Start the job, on a platform with these values if it is not brought already; gives its process."""
        if platform or not hasattr(self, 'command'):
            self.bring(a_platform(**platform))
        with open(self.base / 'out', 'wb') as out, open(self.base / 'err', 'wb') as err:
            self._process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                             cwd=self.base, env=self.environ, start_new_session=True)
        return self._process

    def run(self, **platform: Any) -> int:
        """Run the job; its exit code."""
        self.start(**platform)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the job, which leaves no process behind; its exit code."""
        assert self._process is not None
        try:
            return self._process.wait(TIMEOUT)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the job the hard way."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def fails(self, **platform: Any) -> Failure:
        """Run a job that fails; what it has to say about that, there and on standard error."""
        code = self.run(**platform)
        return self.failure(code)

    def failure(self, code: int) -> Failure:
        """What the job has left that ended with this exit code."""
        path = self.sandbox / FAILED
        assert path.exists(), self.err
        failure = read_failure(path.read_bytes())
        assert failure is not None, path.read_bytes()
        assert failure.exit_code == code != 0
        assert failure.sentence in self.err
        assert '\n' not in failure.sentence
        return failure

    @property
    def out(self) -> str:
        """What the job has written."""
        return (self.base / 'out').read_text()

    @property
    def err(self) -> str:
        """What the job has written to standard error."""
        return (self.base / 'err').read_text()


def tools(directory: Path, without: Iterable[str] = ()) -> str:
    """A PATH with the programs that stage 0 needs, and no Python."""
    directory.mkdir()
    for name in TOOLS:
        if name not in without:
            found = shutil.which(name, path='/usr/bin:/bin')
            assert found is not None, name
            (directory / name).symlink_to(found)
    return str(directory)


def program(path: Path, text: str) -> Path:
    """A shell script of that text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return path


def environment(path: Path, packages: Iterable[str]) -> Path:
    """A virtual environment without pip in which these directories are searched for modules."""
    site = path / 'lib' / f'python3.{sys.version_info.minor}' / 'site-packages'
    site.mkdir(parents=True)
    (path / 'bin').mkdir()
    base = os.path.realpath(getattr(sys, '_base_executable', sys.executable))
    (path / 'bin' / 'python').symlink_to(base)
    (path / 'pyvenv.cfg').write_text(f'home = {os.path.dirname(base)}\n')
    (site / 'ours.pth').write_text('\n'.join(packages))
    return path


def our_packages() -> list[str]:
    """Where this process finds its modules."""
    return [os.path.abspath(path) for path in sys.path if path and os.path.isdir(path) and 'lib-dynload' not in path]


def wheel(directory: Path, name: str, files: dict[str, str], version: str = __version__) -> Path:
    """A wheel, made by hand, of a distribution with these files."""
    stem = name.replace('-', '_')
    path = directory / f'{stem}-{version}-py3-none-any.whl'
    info = f'{stem}-{version}.dist-info'
    everything = files | {
        f'{info}/METADATA': f'Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n',
        f'{info}/WHEEL': 'Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n'}
    record = ''.join(f'{each},,\n' for each in [*everything, f'{info}/RECORD'])
    with zipfile.ZipFile(path, 'w') as archive:
        for each, text in (everything | {f'{info}/RECORD': record}).items():
            archive.writestr(each, text)
    return path


def wheels(directory: Path) -> Path:
    """A directory with wheels that take the place of rp-agent and rp-raptor."""
    directory.mkdir()
    wheel(directory, 'rp-agent', {'rp_agent/__init__.py': '', 'rp_agent/bootstrap/__init__.py': '',
                                  'rp_agent/bootstrap/stage_1.py': STAGE_1})
    wheel(directory, 'rp-raptor', {'rp_raptor/__init__.py': ''})
    return directory


def eventually(condition: Callable[[], Any]) -> Any:
    """The first true result of `condition()`."""
    deadline = time.monotonic() + TIMEOUT
    while not (result := condition()):
        assert time.monotonic() < deadline, 'it did not come true'
        time.sleep(0.02)
    return result

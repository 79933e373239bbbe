"""Environments of a pilot on a loop, and packages to install in them without a network."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rp_agent.environments.environments import Environments
from rp_agent.environments.published import Files
from rp_api.description.environment import normal_form
from rp_api.loop.event_loop import Loop

TIMEOUT = 300.0


class Pilot:
    """The environments of one pilot, and how their preparation has ended: '' or the reason and details."""

    def __init__(self, base: Path, name: str = 'pilot.0000', most: int | None = None, loop: Loop | None = None) -> None:
        self.sandbox = base / 'session' / name
        self.sandbox.mkdir(parents=True)
        self.loop = loop or Loop()
        self.belongs = {'RP_SESSION_ID': f'session.{os.getpid()}.{base}', 'RP_PILOT_ID': name}
        environ = {'PATH': os.environ['PATH'], 'HOME': str(base), 'RP_PILOT_SANDBOX': str(self.sandbox)}
        self.environments = Environments({'platform': {}, 'resource_sandbox': str(base)}, self.loop, environ,
                                         self.belongs, str(self.sandbox), ['RP_*'], most)
        self.ended: dict[str, str] = {}

    def prepare(self, name: str, **spec: Any) -> None:
        self.environments.prepare(name, normal_form(name, spec), lambda: self.ended.update({name: ''}),
                                  lambda reason, detail: self.ended.update({name: f'{reason}\n{detail}'}))

    def until(self, condition: Callable[[], object]) -> None:
        """Run the loop until the condition is true."""
        def look() -> None:
            if condition():
                self.loop.stop()
            else:
                timers[0] = self.loop.call_later(0.01, look)

        timers = [self.loop.call_later(0, look), self.loop.call_later(TIMEOUT, pytest.fail, 'time-out')]
        self.loop.run()
        for timer in timers:
            timer.cancel()

    def built(self, name: str, **spec: Any) -> str:
        """Prepare an environment, and return how that has ended."""
        self.prepare(name, **spec)
        self.until(lambda: name in self.ended)
        return self.ended.pop(name)

    def files(self, name: str) -> Files:
        return Files.of(str(self.sandbox), name)

    def run(self, name: str, command: str, shell: str = '/bin/sh') -> str:
        """Return the output of a command in the environment."""
        return subprocess.run([shell, '-c', f'. "$0" || exit 1; {command}', self.files(name).script], text=True,
                              check=True, capture_output=True, timeout=TIMEOUT).stdout.strip()

    def log(self, name: str) -> str:
        return Path(self.files(name).log).read_text()

    def close(self) -> None:
        self.environments.close()
        self.loop.close()


def wheel(directory: Path, name: str = 'tiny') -> list[str]:
    """Make a package with a module of its name, and return the entries of `setup` by which pip finds it there only."""
    directory.mkdir(exist_ok=True)
    info = f'{name}-1.0.dist-info'
    files = {f'{name}.py': 'answer = 42\n', f'{info}/METADATA': f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n',
             f'{info}/WHEEL': 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n'}
    files[f'{info}/RECORD'] = ''.join(f'{path},,\n' for path in [*files, f'{info}/RECORD'])
    with zipfile.ZipFile(directory / f'{name}-1.0-py3-none-any.whl', 'w') as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return ['--no-index', f'--find-links {directory}']


def waits(started: Path, goes: Path) -> str:
    """Return a shell line that notes that it runs, and then waits until it may go on."""
    return f'echo $$ >> {started}; until test -e {goes}; do sleep 0.01; done'


def lines(path: Path) -> Sequence[str]:
    return path.read_text().split() if path.exists() else []

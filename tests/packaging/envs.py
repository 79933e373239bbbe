"""Distributions and the virtual environments that the packaging tests install them in."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# each distribution and the others of this project that it needs
NEEDS = {
    'rp-profiling': (),
    'rp-api': ('rp-profiling',),
    'rp-client': ('rp-api', 'rp-profiling'),
    'rp-agent': ('rp-api', 'rp-profiling'),
    'rp-raptor': ('rp-api', 'rp-profiling'),
}


def call(command: list[str], cwd: Path, **variables: str) -> str:
    """What the command wrote; an error that shows it if the command failed. `variables` go to its environment."""
    # neither the source tree nor packages of this user may stand in for what is installed
    environ = {key: value for key, value in os.environ.items() if not key.startswith(('PYTHON', 'RP_'))}
    done = subprocess.run(command, cwd=cwd, env=environ | variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f'{" ".join(command)} ended with {done.returncode}:\n{done.stdout}'
    return done.stdout


@dataclass(frozen=True)
class Dist:
    """One distribution: a copy of its source, and what was built from that."""

    name: str
    source: Path
    sdist: Path
    wheel: Path

    @property
    def module(self) -> str:
        return self.name.replace('-', '_')


class Env:
    """A virtual environment that holds nothing but what a test installs."""

    def __init__(self, path: Path) -> None:
        venv.create(path, symlinks=True)
        self.path = path

    def install(self, *arguments: str | Path, **variables: str) -> None:
        """As `pip install` in this environment; `variables` go to what builds."""
        python = str(self.path / 'bin' / 'python')
        call([sys.executable, '-m', 'pip', '--python', python, 'install', '--quiet', *map(str, arguments)], self.path,
             **variables)

    def run(self, *arguments: str) -> str:
        """What `python ARGUMENTS` writes in this environment, which is its home as well; warnings are errors."""
        python = str(self.path / 'bin' / 'python')
        return call([python, '-I', '-W', 'error', *arguments], self.path, HOME=str(self.path))

"""Bundles: archives of all wheels that an agent needs, for machines that cannot reach a package index.

Bundles are on the client in `${RADICAL_CONFIG_USER_DIR:-$HOME}/.radical/pilot/bundles`: `<platform>.tar` for one
platform, `default.tar` for all others. They are copied with each pilot whose platform has `rp_version` 'local'.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rp_api.errors import PilotError, PlatformError
from rp_api.system import private
from rp_client import __version__

DEFAULT = 'default'


def bundle_directory() -> Path:
    """Return the directory of the user's bundles."""
    return Path(os.environ.get('RADICAL_CONFIG_USER_DIR') or Path.home()) / '.radical' / 'pilot' / 'bundles'


def find_bundle(directory: Path, label: str) -> Path:
    """Return the bundle for a platform; raise PlatformError if there is none."""
    for name in (label, DEFAULT):
        path = directory / f'{name}.tar'
        if path.exists():
            private.check_entry(path, above=True)   # agents run what is in it
            return path
    raise PlatformError(f"rp_version of {label} is 'local', but there is neither {label}.tar nor {DEFAULT}.tar in "
                        f'{directory}: make one with `rp bundle`')


def make_bundle(target: Path, requirements: Sequence[str] = (), python: str = '',
                options: Sequence[str] = ()) -> list[str]:
    """Pack wheels of the requirements and their dependencies into one file, and return the names of the wheels.

    The default requirements are rp-agent and rp-raptor in the client's version. `python` is the version ('3.11') on the
    machine, if it differs from this interpreter's; `options` are passed to pip. Raises PilotError on failure.
    """
    wanted = list(requirements) or [f'rp-agent=={__version__}', f'rp-raptor=={__version__}']
    with tempfile.TemporaryDirectory(prefix='rp.bundle.') as directory:
        _collect(directory, wanted, python, options)
        wheels = sorted(os.listdir(directory))
        if not any(name.startswith('rp_agent-') for name in wheels):
            raise PilotError(f'{" ".join(wanted)} does not require rp-agent, without which a bundle cannot be used')
        _pack(Path(directory), wheels, target)
    return wheels


def _collect(directory: str, wanted: Sequence[str], python: str, options: Sequence[str]) -> None:
    command = [sys.executable, '-m', 'pip', 'wheel', '--wheel-dir', directory]
    if python:   # pip builds wheels only for its own version
        command = [sys.executable, '-m', 'pip', 'download', '--dest', directory, '--only-binary=:all:',
                   '--python-version', python]
    done = subprocess.run([*command, '--quiet', '--disable-pip-version-check', '--no-input', *options, *wanted],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise PilotError(f'no bundle was made, as pip failed:\n{done.stderr.strip()[-2000:]}')


def _pack(directory: Path, wheels: Sequence[str], target: Path) -> None:
    """Write the bundle, and replace an existing one atomically."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = target.with_name(f'{target.name}.{os.getpid()}')
    try:
        with tarfile.open(new, 'w') as archive:
            for name in wheels:
                archive.add(directory / name, arcname=name)
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)

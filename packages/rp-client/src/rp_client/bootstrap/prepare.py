"""The files and the command of a pilot's job, the report of its bootstrap's failure, and bundles of packages.

Reads only the files that are sent unchanged: programs of this package, and the client's bundle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rp_api.errors import PilotError, PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.system import private
from rp_client import __version__
from rp_client.bootstrap import settings

FAILED = 'bootstrap_0.failed'
"""Name of the report in the pilot's sandbox, written if the bootstrap or the agent has failed."""

STAGE_0 = 'bootstrap_0.sh'
MAKER = 'bootstrap_0.py'
SETTINGS = 'pilot.sh'
CONFIG = 'agent_0.cfg'

_PARTS = ('begin', 'report', 'waiting', 'own', 'sandbox', 'tunnel', 'commands', 'python', 'start')
DEFAULT = 'default'


class Bootstrap(NamedTuple):
    """The files and the command that start an agent.

    `files`, and `copies` of local files, are written to the pilot's sandbox, readable for their owner only. `command`
    is run there, with `environment` added to that of the job, and with its output in `bootstrap_0.out` and
    `bootstrap_0.err`.
    """

    files: dict[str, bytes]
    command: list[str]
    environment: dict[str, str]
    copies: dict[str, Path]


class Failure(NamedTuple):
    """Why a pilot failed on its machine: one sentence, the file with details (or ''), and its last lines."""

    stage: int
    exit_code: int
    sentence: str
    file: str
    tail: str


class Client(NamedTuple):
    """The environment of the application.

    `prefix` is its virtual or conda environment, empty without one; `executable` is its interpreter; `bundles` is the
    directory of bundles; `now` is the time.
    """

    environ: Mapping[str, str]
    prefix: str
    executable: str
    bundles: Path
    now: float

    @classmethod
    def here(cls) -> Client:
        """Return the environment of this process."""
        virtual = sys.prefix != sys.base_prefix or os.path.exists(os.path.join(sys.prefix, 'conda-meta'))
        return cls(dict(os.environ), sys.prefix if virtual else '', sys.executable, bundle_directory(),
                   time.time())


def check(platform: ResourceConfig) -> None:
    """Raise PlatformError for platform settings with which no agent can be started."""
    settings.check(platform)
    if platform.rp_version == 'local':
        find_bundle(bundle_directory(), platform.label)


def prepare(config: Mapping[str, Any], platform: ResourceConfig, client: Client) -> Bootstrap:
    """Return the bootstrap of an agent with this configuration (the content of `agent_0.cfg`) on a platform.

    Raises PlatformError for platform settings that are not valid.
    """
    sandbox: str = config['pilot_sandbox']
    text = settings.shell_text(config, platform, client.environ, client.prefix, client.executable)
    files = {
        STAGE_0: stage_0(),
        SETTINGS: text.encode(errors='surrogateescape'),
        CONFIG: json.dumps({**config, 'submitted': client.now}, indent=1).encode()}
    if settings.needs_program(platform):
        files[MAKER] = _read('virtenv.py')
    copies = {}
    if platform.rp_version == 'local':
        copies[settings.BUNDLE] = find_bundle(client.bundles, config['resource'])
    return Bootstrap(files, ['/bin/sh', f'{sandbox}/{STAGE_0}'], {'RP_PILOT_SANDBOX': sandbox}, copies)


def read_failure(content: bytes) -> Failure | None:
    """Parse the content of the file `FAILED`; return None if it is truncated or not a report."""
    try:
        found = json.loads(content.decode(errors='replace'))
        return Failure(int(found['stage']), int(found['exit_code']),
                       *(str(found[name]).strip() for name in ('sentence', 'file', 'tail')))
    except (ValueError, KeyError, TypeError):
        return None


@cache
def stage_0() -> bytes:
    """Return the script of stage 0, joined from its parts."""
    return b'\n'.join(_read(f'stage_0/{part}.sh') for part in _PARTS)


@cache
def own_functions() -> str:
    """Return the shell functions of stage 0 that check the owner of directories, for other scripts."""
    return _read('stage_0/own.sh').decode()


def _read(name: str) -> bytes:
    return (Path(__file__).parent / name).read_bytes()


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

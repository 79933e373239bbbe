"""The files and the command of a pilot's job, from the settings of pilot, platform and client.

Reads only the files that are sent unchanged: programs of this package, and the client's bundle.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rp_api.platforms.definition import ResourceConfig
from rp_client.bootstrap import settings
from rp_client.bootstrap.bundles import bundle_directory, find_bundle

STAGE_0 = 'bootstrap_0.sh'
MAKER = 'bootstrap_0.py'
SETTINGS = 'pilot.sh'
CONFIG = 'agent_0.cfg'

_PARTS = ('begin', 'report', 'waiting', 'own', 'sandbox', 'tunnel', 'commands', 'python', 'start')


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

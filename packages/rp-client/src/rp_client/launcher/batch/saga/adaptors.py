"""Finds out for which URLs the installed radical.saga can submit jobs, including by adaptors of other projects.

Loading the adaptors takes seconds and leaves threads, so it happens in a process of its own, whose program is this
module.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit

from rp_api.errors import PlatformError
from rp_api.platforms.systems import SCHEMES
from rp_api.system.host import python_program, with_home

TIMEOUT = 60.0
"""Seconds in which the adaptors must be loaded."""


class Adaptors(NamedTuple):
    """The version of radical.saga, the modules that its configuration names, and the URL schemes of their jobs."""

    version: str
    modules: list[str]
    schemes: list[str]


def require_saga(url: str) -> None:
    """Raise `PlatformError` if radical.saga is needed for a URL and not installed."""
    if importlib.util.find_spec('radical') is None or importlib.util.find_spec('radical.saga') is None:
        raise PlatformError(f'radical.saga is needed for {url} and is not installed: pip install "rp-client[saga]"')


def require_adaptor(url: str) -> None:
    """Raise `PlatformError` if no adaptor of radical.saga submits jobs to a URL; the message names the remedies."""
    require_saga(url)
    scheme = urlsplit(url).scheme
    found = _adaptors()
    if scheme not in found.schemes:
        raise PlatformError(
            f'{url} needs an adaptor of radical.saga for jobs at {scheme}:// URLs, and there is none: radical.saga '
            f'{found.version} has found adaptors for {", ".join(found.schemes)} in the modules of its configuration. '
            f'Install an adaptor for {scheme}, and add its module to adaptor_registry in '
            '~/.radical/saga/configs/registry_default.json (a copy of the file in radical.saga); or set '
            'job_manager_endpoint of the platform to fork, ssh or gsissh with a host, or to one of '
            f'{", ".join(sorted({*SCHEMES} - {scheme}))}')


@cache
def _adaptors() -> Adaptors:
    """Load all adaptors in another process; a failure is not remembered."""
    environ = with_home(os.environ) | {f'RADICAL_{part}_LOG_TGT': 'stderr' for part in ('SAGA', 'UTILS')}
    try:
        done = subprocess.run(python_program(__name__), stdin=subprocess.DEVNULL, capture_output=True, env=environ,
                              timeout=TIMEOUT, check=False, start_new_session=True)
        return Adaptors(**json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlatformError(f'the adaptors of radical.saga cannot be loaded: {error}') from None
    except (IndexError, ValueError, TypeError):
        said = ' '.join(done.stderr.decode(errors='replace').split())[-500:]
        raise PlatformError(f'the adaptors of radical.saga cannot be loaded: {said}') from None


def main() -> int:
    """Print the `Adaptors` as JSON, and end the threads that they leave."""
    import radical.saga
    from radical.saga.engine.engine import Engine

    engine = Engine()
    found = Adaptors(str(radical.saga.version), list(engine._registry['adaptor_registry']),
                     sorted(engine._adaptor_registry.get('radical.saga.job.Service', ())))
    print(json.dumps(found._asdict()), flush=True)
    os._exit(0)

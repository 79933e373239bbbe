"""A job service of radical.saga, which submits jobs.

The workarounds in this module are for defects of version 1.103: see the comments.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from rp_api.errors import PlatformError
from rp_client.launcher.batch.saga.pipe_shell import ADAPTORS, PipeShell, adaptor_module, put_in_place
from rp_client.launcher.batch.shell import Shell

_GO_ON = ('torque', 'loadl')
"""Batch systems whose job scripts run other commands after the pilot's, and lose its exit code."""

_CLEAN_UP = (r'&&\s*rm -f \$SCRIPTFILE', '; code=$?; rm -f $SCRIPTFILE; (exit $code)')
"""An amendment that also removes the temporary script of a refused job."""

_SCRIPT = re.compile(r'\s*[:.\[]?\s*(?:SCRIPTFILE=|Script(?: was)?: |Command: )')
"""The text before the submitted script in messages of adaptors."""

opening = threading.Lock()
"""Held while adaptors are imported and get their shell."""


def load_saga() -> None:
    """Import radical.saga and its adaptors for batch systems in advance, as that is slow.

    Other adaptors of radical.saga, which take as long again, are not imported. Errors are reported by the services.
    """
    with opening, suppress(Exception):
        importlib.import_module('radical.saga.adaptors.cpi.job')   # some adaptors use it without importing it
        engine = importlib.import_module('radical.saga.engine.engine').Engine
        load = engine._load_adaptors

        def load_ours(self: Any) -> None:
            known = self._registry.get('adaptor_registry', [])
            self._registry = {'adaptor_registry': [name for name in known if _is_ours(name)]}
            load(self)

        engine._load_adaptors = load_ours
        engine()   # a singleton
        engine._load_adaptors = load


def _is_ours(module: str) -> bool:
    """Return whether an adaptor is of use: for a batch system, for credentials, or as that of another project."""
    kind = module.removeprefix('radical.saga.adaptors.')
    return kind == module or kind.startswith(('context.', 'lgi.')) or kind in ADAPTORS.values()


class SagaService:
    """A job service of radical.saga for one URL; raises `PlatformError` with radical.saga's message."""

    def __init__(self, url: str, shell: Shell) -> None:
        self.url = url
        with opening:
            self._service = _checked(f'open {url}', lambda: _open(url, shell))
        # the monitor thread polls each job separately
        monitor = getattr(self._service._adaptor, 'mt', None)
        if monitor is not None:
            monitor.stop()

    def submit(self, description: Mapping[str, Any], amendments: Sequence[tuple[str, str]] = ()) -> str:
        """Submit a job, and return the batch system's id."""
        import radical.saga as rs

        kind = _kind(self.url)
        wanted = rs.job.Description()
        for name, value in description.items():
            wanted.set_attribute(name, f'exec {value}' if name == 'executable' and kind in _GO_ON else value)
        shell: PipeShell = self._service._adaptor.shell
        shell.amendments = [*amendments, _CLEAN_UP]
        try:
            job = _checked('submit', lambda: self._run(wanted))
        finally:
            shell.tidy()
        found: str = job.id.rpartition(']-[')[2].rstrip(']')
        return found

    def _run(self, description: Any) -> Any:
        job = self._service.create_job(description)
        job.run()
        return job


def _open(url: str, shell: Shell) -> Any:
    import radical.saga as rs

    put_in_place(url, shell)
    kind = _kind(url)
    if kind == 'loadl':   # it refuses an attribute of all descriptions
        adaptor_module(url)._ADAPTOR_CAPABILITIES['jdes_attributes'].append('SystemArchitecture')
    service = rs.job.Service(url)
    if kind == 'condor':   # it refuses local URLs, but treats local and ssh URLs alike
        service._adaptor.shell.url.scheme = 'ssh'
    return service


def _kind(url: str) -> str:
    return urlsplit(url).scheme.partition('+')[0]


def _checked(what: str, call: Any) -> Any:
    try:
        return call()
    except PlatformError:
        raise
    except Exception as error:   # adaptors raise all kinds
        raise PlatformError(f'radical.saga cannot {what}: {sentence(error)}') from error


def sentence(error: BaseException) -> str:
    """Return the message of a radical.saga error, without traces and repetitions."""
    said = ' '.join(_SCRIPT.split(str(error), maxsplit=1)[0].split())
    return said[:1000] or type(error).__name__

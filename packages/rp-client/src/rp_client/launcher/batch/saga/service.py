"""radical.saga, seen from the launcher's process: a job service that submits jobs. It is imported only in this package.

What stands around its calls is about defects of version 1.103: see the comments.
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
"""Batch systems whose scripts go on after the command, so that the job ends with the exit code of something else."""

_CLEAN_UP = (r'&&\s*rm -f \$SCRIPTFILE', '; code=$?; rm -f $SCRIPTFILE; (exit $code)')
"""An amendment: adaptors leave the script of a job that was refused in the temporary directory."""

_SCRIPT = re.compile(r'\s*[:.\[]?\s*(?:SCRIPTFILE=|Script(?: was)?: |Command: )')
"""What comes before the script that was submitted, in the words of adaptors."""

_opening = threading.Lock()
"""Adaptors are imported, and given their shell, by one thread at a time."""


def load_saga() -> None:
    """Import radical.saga and its adaptors for batch systems, which takes a while, for services that are opened later.

    Those for clouds, file systems and more, which take as long again, are left out. Should it fail, the services tell.
    """
    with _opening, suppress(Exception):
        importlib.import_module('radical.saga.adaptors.cpi.job')   # adaptors count on others to have imported it
        engine = importlib.import_module('radical.saga.engine.engine').Engine
        load = engine._load_adaptors

        def load_ours(self: Any) -> None:
            known = self._registry.get('adaptor_registry', [])
            self._registry = {'adaptor_registry': [name for name in known if _is_ours(name)]}
            load(self)

        engine._load_adaptors = load_ours
        engine()   # there is one, for all services
        engine._load_adaptors = load


def _is_ours(module: str) -> bool:
    kind = module.removeprefix('radical.saga.adaptors.')
    return kind.startswith('context.') or kind in ADAPTORS.values()


class SagaService:
    """A job service of radical.saga for one URL. Raises `PlatformError` with what radical.saga says."""

    def __init__(self, url: str, shell: Shell) -> None:
        self.url = url
        with _opening:
            self._service = _checked(f'open {url}', lambda: _open(url, shell))
        # monitor threads ask for each job by itself
        monitor = getattr(self._service._adaptor, 'mt', None)
        if monitor is not None:
            monitor.stop()

    def submit(self, description: Mapping[str, Any], amendments: Sequence[tuple[str, str]] = ()) -> str:
        """Submit a job, and give the id that the batch system knows it by."""
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
    if kind == 'loadl':   # it refuses an attribute that each description has
        adaptor_module(url)._ADAPTOR_CAPABILITIES['jdes_attributes'].append('SystemArchitecture')
    service = rs.job.Service(url)
    if kind == 'condor':   # it refuses to submit where it is, but does so over ssh, and never looks which it is
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
        raise PlatformError(f'radical.saga cannot {what}: {_sentence(error)}') from error


def _sentence(error: BaseException) -> str:
    """What an error of radical.saga says, without its traces and repetitions."""
    said = ' '.join(_SCRIPT.split(str(error), maxsplit=1)[0].split())
    return said[:1000] or type(error).__name__

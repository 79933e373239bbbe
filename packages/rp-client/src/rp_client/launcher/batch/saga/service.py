"""A job service of radical.saga, which submits jobs.

The workarounds in this module are for defects of version 1.103: see the comments.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from rp_api.errors import PlatformError
from rp_api.platforms.systems import BATCH_SYSTEMS
from rp_client.launcher.batch.shell import Shell

_GO_ON = ('torque', 'loadl')
"""Batch systems whose job scripts run other commands after the pilot's, and lose its exit code."""

_CLEAN_UP = (r'&&\s*rm -f \$SCRIPTFILE', '; code=$?; rm -f $SCRIPTFILE; (exit $code)')
"""An amendment that also removes the temporary script of a refused job."""

_SCRIPT = re.compile(r'\s*[:.\[]?\s*(?:SCRIPTFILE=|Script(?: was)?: |Command: )')
"""The text before the submitted script in messages of adaptors."""

opening = threading.Lock()
"""Held while adaptors are imported and get their shell."""

ADAPTORS = {system.scheme: system.adaptor for system in BATCH_SYSTEMS if system.adaptor}
"""The modules of the adaptors, by the first part of the URL's scheme."""


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

    replace_shell(url, shell)
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


class PipeShell:
    """The methods of radical.saga's `PTYShell` that adaptors call.

    `written` are the files that the adaptor has made, `amendments` are replacements in its commands and files.
    """

    def __init__(self, shell: Shell, url: Any) -> None:
        self.url = url
        self.written: list[str] = []
        self.amendments: Sequence[tuple[str, str]] = ()
        self._shell = shell

    def run_sync(self, command: str, iomode: Any = None, new_prompt: Any = None) -> tuple[int, str, None]:
        """Run a command, and return its exit code, and its output with error messages."""
        result = self._shell.run(self._amended(command))
        return result.code, result.output, None

    def write_to_remote(self, src: str, tgt: str) -> None:
        """Write a file with this text."""
        from radical.saga.exceptions import NoSuccess

        code, output = self._shell.run(self._shell.put(tgt, self._amended(src).encode(), 0o700))
        if code:
            raise NoSuccess(f'{tgt} cannot be written: {output}')
        self.written.append(tgt)

    def stage_to_remote(self, src: str, tgt: str) -> None:
        """Copy a small local file."""
        self.write_to_remote(Path(src).read_text(encoding='utf-8'), tgt)

    def tidy(self) -> None:
        """Remove the files of a submission, and drop the amendments."""
        self.amendments = ()
        if self.written:
            self._shell.run('rm -f ' + ' '.join(map(quote, self.written)))
            self.written.clear()

    def _amended(self, text: str) -> str:
        for pattern, text_instead in self.amendments:
            text = re.sub(pattern, text_instead, text)
        return text

    def set_initialize_hook(self, hook: Any) -> None:
        """Accept a hook that adaptors call themselves."""

    set_finalize_hook = set_initialize_hook

    def finalize(self, kill_pty: bool = False) -> None:
        """Keep the shell open, as its owner closes it."""


def replace_shell(url: str, shell: Shell) -> None:
    """Make the adaptor for this URL use `shell` for services that it opens later."""
    module = adaptor_module(url)
    name = 'rsups' if hasattr(module, 'rsups') else 'sups'
    setattr(module, name, _Shells(shell, getattr(module, name)))


def adaptor_module(url: str) -> Any:
    """Return the module of the adaptor for a URL."""
    importlib.import_module('radical.saga.adaptors.cpi.job')   # some adaptors use it without importing it
    return importlib.import_module(f'radical.saga.adaptors.{ADAPTORS[urlsplit(url).scheme.partition("+")[0]]}')


class _Shells:
    """Replaces radical.saga's module `pty_shell` in the module of an adaptor."""

    def __init__(self, shell: Shell, original: Any) -> None:
        self._shell = shell
        self._original = getattr(original, '_original', original)

    def PTYShell(self, url: Any, *_: Any, **__: Any) -> PipeShell:  # noqa: N802 - as radical.saga calls it
        return PipeShell(self._shell, url)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

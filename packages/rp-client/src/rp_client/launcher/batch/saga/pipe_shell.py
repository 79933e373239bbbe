"""Replaces the pseudo terminal in which radical.saga's adaptors run commands by a `Shell`.

A terminal takes seconds to open, and an unexpected prompt makes it wait forever.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from rp_api.platforms.systems import BATCH_SYSTEMS
from rp_client.launcher.batch.shell import Shell

ADAPTORS = {system.scheme: system.adaptor for system in BATCH_SYSTEMS if system.adaptor}
"""The modules of the adaptors, by the first part of the URL's scheme."""


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


def put_in_place(url: str, shell: Shell) -> None:
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

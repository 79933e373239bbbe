"""What radical.saga's adaptors for batch systems run commands with: a `Shell`, in place of a pseudo terminal.

A terminal takes seconds to open, and waits for ever for a prompt that looks otherwise than expected.
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
"""The adaptors, by the first part of their URL's scheme: the modules where they live."""


class PipeShell:
    """What an adaptor needs of radical.saga's `PTYShell`.

    `written` are the files that it has had made, `amendments` are changed in what it wants to be run or written.
    """

    def __init__(self, shell: Shell, url: Any) -> None:
        self.url = url
        self.written: list[str] = []
        self.amendments: Sequence[tuple[str, str]] = ()
        self._shell = shell

    def run_sync(self, command: str, iomode: Any = None, new_prompt: Any = None) -> tuple[int, str, None]:
        """Exit code and output of a command, with its errors among it."""
        result = self._shell.run(self._amended(command))
        return result.code, result.output, None

    def write_to_remote(self, src: str, tgt: str) -> None:
        """Make a file with this text."""
        from radical.saga.exceptions import NoSuccess

        code, output = self._shell.run(self._shell.put(tgt, self._amended(src).encode(), 0o700))
        if code:
            raise NoSuccess(f'{tgt} cannot be written: {output}')
        self.written.append(tgt)

    def stage_to_remote(self, src: str, tgt: str) -> None:
        """Copy a small file of this host."""
        self.write_to_remote(Path(src).read_text(encoding='utf-8'), tgt)

    def tidy(self) -> None:
        """After a submission: remove files that the adaptor has left, and change nothing any more."""
        self.amendments = ()
        if self.written:
            self._shell.run('rm -f ' + ' '.join(map(quote, self.written)))
            self.written.clear()

    def _amended(self, text: str) -> str:
        for pattern, text_instead in self.amendments:
            text = re.sub(pattern, text_instead, text)
        return text

    def set_initialize_hook(self, hook: Any) -> None:
        """Accepted, and not called: adaptors call it themselves."""

    set_finalize_hook = set_initialize_hook

    def finalize(self, kill_pty: bool = False) -> None:
        """Nothing to do: the shell belongs to somebody else."""


def put_in_place(url: str, shell: Shell) -> None:
    """Have the adaptor for this URL use `shell` for the services that it opens from now on."""
    module = adaptor_module(url)
    name = 'rsups' if hasattr(module, 'rsups') else 'sups'
    setattr(module, name, _Shells(shell, getattr(module, name)))


def adaptor_module(url: str) -> Any:
    """The module of the adaptor for a URL."""
    importlib.import_module('radical.saga.adaptors.cpi.job')   # some use it, and count on others to have imported it
    return importlib.import_module(f'radical.saga.adaptors.{ADAPTORS[urlsplit(url).scheme.partition("+")[0]]}')


class _Shells:
    """Stands for radical.saga's module `pty_shell` in the module of an adaptor."""

    def __init__(self, shell: Shell, original: Any) -> None:
        self._shell = shell
        self._original = getattr(original, '_original', original)

    def PTYShell(self, url: Any, *_: Any, **__: Any) -> PipeShell:
        return PipeShell(self._shell, url)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

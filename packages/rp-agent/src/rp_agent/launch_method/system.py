"""The host that the agent runs on, as far as launch methods ask it: which programs are there, and what they say."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from rp_agent.resource_manager.system import System as Host
from rp_api.errors import PlatformError

if TYPE_CHECKING:
    from rp_agent.resource_manager.batch import BatchSystem

VERSION_TIMEOUT = 20.0
"""Seconds that a launcher may take to tell its version."""

_MOST, _QUOTED = 65536, 1000
"""Bytes of what a program says that are looked at, and characters that messages have of them."""

_OF_THE_SHELL = frozenset(('PWD', 'OLDPWD', 'SHLVL', '_'))


class System:
    """This host, with the environment that launchers start in."""

    def __init__(self, environ: Mapping[str, str] | None = None, timeout: float = VERSION_TIMEOUT) -> None:
        self.environ = dict(os.environ if environ is None else environ)
        self._timeout = timeout

    @property
    def names(self) -> frozenset[str]:
        """What this host may be called as a node."""
        own = os.uname().nodename
        of_slurm = self.environ.get('SLURMD_NODENAME', own)   # several nodes may be one host
        return frozenset(('localhost', own, own.partition('.')[0], of_slurm))

    @property
    def is_root(self) -> bool:
        """Whether programs run as root."""
        return os.geteuid() == 0

    @property
    def for_inner_srun(self) -> dict[str, str]:
        """What launchers are told that use srun themselves in a job of Slurm: their steps would wait for each other."""
        return {'SLURM_OVERLAP': '1', 'SLURM_OVERCOMMIT': '1'} if 'SLURM_JOB_ID' in self.environ else {}

    def positions(self, batch: BatchSystem) -> dict[str, int]:
        """Where each node stands in the job of this batch system; empty if there is no such job.

        A pilot may have fewer nodes: a partition has some of them, and unhealthy ones are left out.
        """
        try:
            nodes = batch.nodes(Host(self.environ))
        except PlatformError:
            return {}
        return {node.name: position for position, node in enumerate(nodes)}

    def which(self, *names: str) -> str:
        """The path of the first of these programs that is there; `PlatformError` if none is."""
        found = next(self.each(names), None)
        if found is None:
            path = self.environ.get('PATH', os.defpath)
            raise PlatformError(f'{" or ".join(names)} is not there (searched PATH {path})')
        return found

    def each(self, names: Sequence[str]) -> Iterator[str]:
        """The paths of those of these programs that are there."""
        path = self.environ.get('PATH', os.defpath)
        return filter(None, (shutil.which(name, path=path) for name in names))

    def ask(self, *command: str) -> str:
        """What a program says; `PlatformError`, with its last words, if it fails, cannot be run, or takes too long."""
        return self._said(command, f'`{" ".join(command)}`')

    def after(self, commands: Sequence[str]) -> System:
        """This host with the environment that shell commands leave; `PlatformError` if one of them fails."""
        if not commands:
            return self
        with tempfile.NamedTemporaryFile() as file:
            lines = [*(f'{{ :\n{command}\n}} || {{ echo {quote(f"({command})")}; exit 1; }}' for command in commands),
                     f'env -0 >{quote(file.name)}']
            # commands such as `module` are functions of bash
            shell = next(self.each(('bash', 'sh')), '/bin/sh')
            self._said((shell, '-c', '\n'.join(lines)), 'pre_exec of the launch method')
            entries = (os.fsdecode(entry).partition('=') for entry in file.read().split(b'\0') if entry)
            environ = {name: value for name, _, value in entries if name not in _OF_THE_SHELL}
        return System(environ, self._timeout)

    def _said(self, command: Sequence[str], name: str) -> str:
        code, said = self._run(command, name)
        if code:
            raise PlatformError(f'{name} failed with exit code {code}: {said[-_QUOTED:] or "it said nothing"}')
        return said

    def _run(self, command: Sequence[str], name: str) -> tuple[int, str]:
        """Exit code and output; the output is a file, so that nobody waits for what a program has left running."""
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                           env=self.environ, start_new_session=True)
            except OSError as error:
                raise PlatformError(f'{name} cannot be run: {error.strerror}') from None
            try:
                code = process.wait(self._timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                words = _read(output.fileno())[-_QUOTED:] or 'it said nothing'
                raise PlatformError(f'{name} has not ended after {self._timeout:g} seconds: {words}') from None
            return code, _read(output.fileno())


def _read(descriptor: int) -> str:
    return os.pread(descriptor, _MOST, 0).decode(errors='replace').strip()

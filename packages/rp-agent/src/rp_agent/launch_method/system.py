"""The agent's host, as launch methods query it: paths of programs, and their output."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from rp_agent.resource_manager.system import System as Host
from rp_api.errors import PlatformError
from rp_api.system.shell import find_shell

if TYPE_CHECKING:
    from rp_agent.resource_manager.batch import BatchSystem

VERSION_TIMEOUT = 20.0
"""Seconds that a launcher may take to print its version."""

_MAX_OUTPUT_BYTES, _MAX_QUOTED_CHARS = 65536, 1000
"""Bytes of a program's output that are read, and characters of it that messages quote."""

_OF_THE_SHELL = frozenset(('PWD', 'OLDPWD', 'SHLVL', '_'))
"""Names of variables that the shell itself sets."""


class LaunchSystem:
    """The agent's host, with the environment in which launchers start.

    `shell` is the shell of the platform definition, empty for the default.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, timeout: float = VERSION_TIMEOUT,
                 shell: str = '') -> None:
        self.environ = dict(os.environ if environ is None else environ)
        self._timeout = timeout
        self._shell = shell

    @property
    def names(self) -> frozenset[str]:
        """Names that this host may have as a node."""
        own = os.uname().nodename
        of_slurm = self.environ.get('SLURMD_NODENAME', own)   # Slurm can have several nodes on one host
        return frozenset(('localhost', own, own.partition('.')[0], of_slurm))

    @property
    def is_root(self) -> bool:
        """True if programs run as root."""
        return os.geteuid() == 0

    @property
    def for_inner_srun(self) -> dict[str, str]:
        """Variables for launchers that use srun inside a Slurm job; without them, their steps wait for each other."""
        return {'SLURM_OVERLAP': '1', 'SLURM_OVERCOMMIT': '1'} if 'SLURM_JOB_ID' in self.environ else {}

    def positions(self, batch: BatchSystem) -> dict[str, int]:
        """Return the position of each node in the batch job, by name; empty without a job of this batch system.

        A pilot may have fewer nodes than its job: a partition has some of them, and unhealthy nodes are left out.
        """
        try:
            nodes = batch.nodes(Host(self.environ))
        except PlatformError:
            return {}
        return {node.name: position for position, node in enumerate(nodes)}

    def which(self, *names: str) -> str:
        """Return the path of the first of these programs that is in PATH; raise PlatformError if none is."""
        path = self.environ.get('PATH', os.defpath)
        found = next(filter(None, (shutil.which(name, path=path) for name in names)), None)
        if found is None:
            raise PlatformError(f'{" or ".join(names)} is not in PATH ({path})')
        return found

    def all(self, names: Sequence[str]) -> list[str]:
        """Return the paths of all these programs in PATH, each once, in order; raise PlatformError if none is."""
        found = [self.which(*names)]
        for name in names:
            for directory in filter(None, self.environ.get('PATH', os.defpath).split(os.pathsep)):
                path = shutil.which(name, path=directory)
                if path and not any(os.path.samefile(path, other) for other in found):
                    found.append(path)
        return found

    def ask(self, *command: str) -> str:
        """Return the output of a program; raise PlatformError, with its end, if the program fails or times out."""
        return self._output(command, f'`{" ".join(command)}`')

    def after(self, commands: Sequence[str]) -> LaunchSystem:
        """Return this host with the environment that shell commands leave; raise PlatformError if one fails."""
        if not commands:
            return self
        with tempfile.NamedTemporaryFile() as file:
            lines = [*(f'{{ :\n{command}\n}} || {{ echo {quote(f"({command})")}; exit 1; }}' for command in commands),
                     f'env -0 >{quote(file.name)}']
            shell = find_shell(self._shell, self.environ.get('PATH', os.defpath))
            self._output((shell, '-c', '\n'.join(lines)), 'pre_exec of the launch method')
            entries = (os.fsdecode(entry).partition('=') for entry in file.read().split(b'\0') if entry)
            environ = {name: value for name, _, value in entries if name not in _OF_THE_SHELL}
        return LaunchSystem(environ, self._timeout, self._shell)

    def _output(self, command: Sequence[str], name: str) -> str:
        """Return the output, which goes to a file, not a pipe, as a child may outlive the program."""
        failure = ''
        with tempfile.TemporaryFile() as file:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                           env=self.environ, start_new_session=True)
            except OSError as error:
                raise PlatformError(f'{name} cannot be run: {error.strerror}') from None
            try:
                if code := process.wait(self._timeout):
                    failure = f'{name} failed with exit code {code}'
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                failure = f'{name} has not ended after {self._timeout:g} seconds'
            output = os.pread(file.fileno(), _MAX_OUTPUT_BYTES, 0).decode(errors='replace').strip()
        if failure:
            raise PlatformError(f'{failure}: {output[-_MAX_QUOTED_CHARS:] or "no output"}')
        return output

"""Distributed virtual machines (DVMs) of PRRTE and its predecessor ORTE, which launch tasks without new daemons.

Sources: prte(1), prun(1) and the `--help` texts of PRRTE 3.0; orte-dvm(1) of Open MPI 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from rp_agent.executor.backends.launcher import InstanceLauncher, Node, Startup

MESSAGE_SIZE = 1 << 30
"""Maximum size of a message between daemons, in bytes; the default is too small for the map of a job on many nodes."""

# namespace@vpid.rank;transport://address...
_URI = re.compile(r'\S+@\S+;\S+://\S+$')

_SMALL = 32
"""Maximum number of nodes for which the first daemon connects to all others directly."""


class Prrte(InstanceLauncher):
    """DVMs of the `prte` in PATH; `prefix` is the installation directory on the nodes, if it differs."""

    NAME: ClassVar[str] = 'PRTE'

    def __init__(self, prefix: str = '') -> None:
        self._prefix = ('--prefix', prefix) if prefix else ()

    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """Return the start of a DVM that prints its address to standard output."""
        hosts = f'prrte.{number:04d}.hosts'
        width = str(len(nodes) if len(nodes) <= _SMALL else _SMALL)
        argv = ('prte', *self._prefix, '--report-uri', '-', '--hostfile', hosts,
                '--pmixmca', 'ptl_base_max_msg_size', str(MESSAGE_SIZE),
                '--prtemca', 'routed_radix', width, '--prtemca', 'plm_rsh_num_concurrent', width)
        text = ''.join(f'{node.name} slots={node.cores}\n' for node in nodes)
        return Startup(argv, {hosts: text})

    def address(self, line: str) -> str:
        """Return the line if it is the URI of the DVM."""
        return line if _URI.fullmatch(line) else ''

    def is_ready(self, line: str) -> bool:
        """Return whether the line is the one that the DVM prints when all daemons have reported."""
        return line == 'DVM ready'


class OrteDvm(Prrte):
    """DVMs of the `orte-dvm` in PATH."""

    NAME: ClassVar[str] = 'ORTE'

    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """Return the start of a DVM that prints its address to standard output, unbuffered."""
        hosts = f'orte.{number:04d}.hosts'
        text = ''.join(f'{node.name} slots={node.cores}\n' for node in nodes)
        return Startup(('stdbuf', '-oL', 'orte-dvm', '--hostfile', hosts), {hosts: text})

    def address(self, line: str) -> str:
        """Return the URI of the DVM if the line contains it."""
        return line.removeprefix('VMURI: ') if line.startswith('VMURI: ') else ''

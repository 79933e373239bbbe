"""PRRTE, and ORTE before it: distributed virtual machines (DVMs), which launch without starting daemons for each task.

Sources: prte(1), prun(1) and the `--help` texts of PRRTE 3.0; orte-dvm(1) of Open MPI 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from rp_agent.executor.backends.launcher import InstanceLauncher, Node, Startup

MESSAGE_SIZE = 1 << 30
"""Bytes of a message between daemons; the default is too small for the map of a job over many nodes."""

# namespace@vpid.rank;transport://address...
_URI = re.compile(r'\S+@\S+;\S+://\S+$')

_SMALL = 32
"""Nodes up to which the first daemon speaks to all others itself."""


class Prrte(InstanceLauncher):
    """DVMs of the `prte` on PATH; `prefix` is where PRRTE is installed on the nodes, if that is not the same."""

    NAME: ClassVar[str] = 'PRTE'

    def __init__(self, prefix: str = '') -> None:
        self._prefix = ('--prefix', prefix) if prefix else ()

    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """A DVM that tells its address on standard output."""
        hosts = f'prrte.{number:04d}.hosts'
        width = str(len(nodes) if len(nodes) <= _SMALL else _SMALL)
        argv = ('prte', *self._prefix, '--report-uri', '-', '--hostfile', hosts,
                '--pmixmca', 'ptl_base_max_msg_size', str(MESSAGE_SIZE),
                '--prtemca', 'routed_radix', width, '--prtemca', 'plm_rsh_num_concurrent', width)
        text = ''.join(f'{node.name} slots={node.cores}\n' for node in nodes)
        return Startup(argv, {hosts: text})

    def address(self, line: str) -> str:
        """The URI that the DVM tells."""
        return line if _URI.fullmatch(line) else ''

    def is_ready(self, line: str) -> bool:
        """Said when all daemons have reported."""
        return line == 'DVM ready'



class OrteDvm(Prrte):
    """DVMs of the `orte-dvm` on PATH."""

    NAME: ClassVar[str] = 'ORTE'

    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """A DVM that tells its address on standard output, line by line."""
        hosts = f'orte.{number:04d}.hosts'
        text = ''.join(f'{node.name} slots={node.cores}\n' for node in nodes)
        return Startup(('stdbuf', '-oL', 'orte-dvm', '--hostfile', hosts), {hosts: text})

    def address(self, line: str) -> str:
        """The URI that the DVM tells."""
        return line.removeprefix('VMURI: ') if line.startswith('VMURI: ') else ''

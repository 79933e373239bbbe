"""The resource manager PBSPRO (PBS Professional, OpenPBS): `qstat -f` knows what the job has, the node file only where.

`exec_vnode` of a job is a sum of chunks, each in parentheses, each a sum of parts of virtual nodes:
`(n1:ncpus=4:ngpus=1:mem=8gb)+(n2[0]:ncpus=2+n2[1]:ncpus=2)`. Virtual nodes of one host differ in what is in brackets.
"""

from __future__ import annotations

import logging
import re
from typing import ClassVar

from rp_agent.resource_manager.batch import BatchSystem, variable
from rp_agent.resource_manager.granted import Node, count_lines, megabytes, merged, number
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError

_log = logging.getLogger('radical.pilot.agent')

_GPUS = ('ngpus', 'naccelerators')


class PbsPro(BatchSystem):
    """PBS Professional."""

    NAME: ClassVar[str] = 'PBSPRO'
    JOB: ClassVar[str] = 'PBS_JOBID'

    def nodes(self, system: System) -> list[Node]:
        try:
            found = attribute(system.run('qstat', '-f', variable(system, self.JOB)), 'exec_vnode')
        except PlatformError as error:   # compute nodes of some sites have no qstat
            _log.warning('the nodes are taken from PBS_NODEFILE: %s', error)
            found = ''
        if found:
            return of_vnodes(found)
        # lines are MPI processes there, not cores; NCPUS has those of the first chunk
        cores = number(system.environ.get('NCPUS') or '0', 'NCPUS')
        # those of a pilot without whole nodes are chunks of one core each
        return [Node(node.name, node.cores if cores == 1 else cores)
                for node in count_lines(system.read(variable(system, 'PBS_NODEFILE')))]


def attribute(text: str, name: str) -> str:
    """The value of an attribute in what `qstat -f` says, where long lines go on after a tab; empty if there is none."""
    match = re.search(rf'^\s*{re.escape(name)} = (.*(?:\n\t.*)*)', text, re.MULTILINE)
    return re.sub(r'\n\t', '', match[1]) if match else ''


def of_vnodes(text: str) -> list[Node]:
    """The nodes of the attribute `exec_vnode`."""
    return merged([_of_vnode(part) for part in re.sub(r'[()\s]', '', text).split('+')])


def _of_vnode(part: str) -> Node:
    vnode, *amounts = part.split(':')
    values = dict(amount.partition('=')[::2] for amount in amounts)
    gpus = [number(values[name], f'{name} of {vnode}') for name in _GPUS if name in values]
    mem = values.get('mem')
    return Node(re.sub(r'\[[^\]]*\]$', '', vnode), number(values.get('ncpus', '0'), f'ncpus of {vnode}'),
                max(gpus) if gpus else None, megabytes(mem, f'mem of {vnode}') if mem else 0)

"""Resource manager PBSPRO (PBS Professional, OpenPBS): reads `qstat -f`, else the node file.

`exec_vnode` of a job is a sum of chunks in parentheses, each of which is a sum of parts of virtual nodes:
`(n1:ncpus=4:ngpus=1:mem=8gb)+(n2[0]:ncpus=2+n2[1]:ncpus=2)`. Virtual nodes of a host differ in their brackets.
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
    NAME: ClassVar[str] = 'PBSPRO'
    JOB: ClassVar[str] = 'PBS_JOBID'

    def nodes(self, system: System) -> list[Node]:
        try:
            found = attribute(system.run('qstat', '-f', variable(system, self.JOB)), 'exec_vnode')
        except PlatformError as error:   # some sites have no qstat on compute nodes
            _log.warning('the nodes are taken from PBS_NODEFILE: %s', error)
            found = ''
        if found:
            return of_vnodes(found)
        # a line is an MPI process, not a core; NCPUS is the number of cores of the first chunk
        cores = number(system.environ.get('NCPUS') or '0', 'NCPUS')
        # a pilot without whole nodes gets chunks of one core
        return [Node(node.name, node.cores if cores == 1 else cores)
                for node in count_lines(system.read(variable(system, 'PBS_NODEFILE')))]


def attribute(text: str, name: str) -> str:
    """Return an attribute in the output of `qstat -f`, whose long lines continue after a tab; empty if missing."""
    match = re.search(rf'^\s*{re.escape(name)} = (.*(?:\n\t.*)*)', text, re.MULTILINE)
    return re.sub(r'\n\t', '', match[1]) if match else ''


def of_vnodes(text: str) -> list[Node]:
    """Return the nodes of the attribute `exec_vnode`."""
    return merged([_of_vnode(part) for part in re.sub(r'[()\s]', '', text).split('+')])


def _of_vnode(part: str) -> Node:
    vnode, *amounts = part.split(':')
    values = dict(amount.partition('=')[::2] for amount in amounts)
    gpus = [number(values[name], f'{name} of {vnode}') for name in _GPUS if name in values]
    mem = values.get('mem')
    return Node(re.sub(r'\[[^\]]*\]$', '', vnode), number(values.get('ncpus', '0'), f'ncpus of {vnode}'),
                max(gpus) if gpus else None, megabytes(mem, f'mem of {vnode}') if mem else 0)

"""The launch method IBRUN, TACC's launcher, which numbers the places for ranks on all nodes of the batch job.

Each node has the same, configurable number of places. A task gets consecutive places, from an offset on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from rp_agent.launch_method.base import Command, Job, LaunchMethod, Program, Setting
from rp_agent.launch_method.nodes import NodeBlock, blocks
from rp_agent.launch_method.system import LaunchSystem
from rp_agent.resource_manager.systems.slurm import Slurm


class Ibrun(LaunchMethod):
    """IBRUN; the option `tasks_per_node` of the platform sets the number of places of a node."""

    NAME: ClassVar[str] = 'IBRUN'
    PROGRAMS: ClassVar[tuple[str, ...]] = ('ibrun',)
    RESERVED: ClassVar[tuple[str, ...]] = (*LaunchMethod.RESERVED, 'SLURM_*', 'IBRUN_*')

    rank_variables = ('PMI_RANK', 'PMIX_RANK', 'MPI_RANK', 'SLURM_PROCID')
    size_variables = ('PMI_SIZE',)

    def __init__(self, program: Program, setting: Setting, options: Mapping[str, Any] | None = None,
                 positions: Mapping[str, int] | None = None) -> None:
        super().__init__(program, setting, options)
        self._positions = positions or {}

    @classmethod
    def detect(cls, system: LaunchSystem, setting: Setting, options: Mapping[str, Any] | None = None) -> LaunchMethod:
        return cls(Program(system.which(*cls.PROGRAMS)), setting, options, system.positions(Slurm()))

    def refuses(self, job: Job) -> str:
        runs = self._runs(job)
        places = self._per_node(runs)
        if runs[0].ranks > places or runs[-1].ranks > places or any(run.ranks != places for run in runs[1:-1]):
            return f'it starts ranks on consecutive places, {places} per node, and these slots are not consecutive'
        if any(before.position + 1 != after.position for before, after in pairwise(runs)):
            return 'it starts ranks on consecutive nodes, and these nodes are not consecutive'
        return ''

    def command(self, job: Job, executable: Sequence[str]) -> Command:
        runs = self._runs(job)
        places = self._per_node(runs)
        offset = runs[0].position * places + (places - runs[0].ranks if len(runs) > 1 else 0)
        # otherwise the MPI libraries of TACC bind the ranks of all programs to the same cores
        environment = {'IBRUN_TASKS_PER_NODE': str(places), 'I_MPI_PIN': 'off', 'MV2_ENABLE_AFFINITY': '0'}
        return Command((self.program.path, '-n', str(len(job.ranks)), '-o', str(offset), *self._arguments,
                        *executable), {}, environment)

    def _runs(self, job: Job) -> list[NodeBlock]:
        """Return the ranks of each node, with the node's position in the Slurm job."""
        return [run._replace(position=self._positions.get(run.node, run.position)) for run in blocks(job.ranks)]

    def _per_node(self, runs: Sequence[NodeBlock]) -> int:
        return int(self.options.get('tasks_per_node') or 0) or max(run.ranks for run in runs)

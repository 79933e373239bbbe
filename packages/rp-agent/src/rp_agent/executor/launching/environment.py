"""The environment of a task: the user's own, what every task of the pilot is told, what the task is told and asks for.

The user's environment is the one that the pilot was started with, never the one that the agent itself runs in. What
is the same for all tasks is encoded once; a task pays only for its own dozen variables.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rp_agent.executor.launching.launchers import VISIBLE_GPUS, Launchers
from rp_agent.executor.processes.launch import Block, Variables, cpu_mask
from rp_agent.lookup import Find, Programs, find_program
from rp_agent.task import AgentTask
from rp_api.constants import RAPTOR_WORKER
from rp_profiling.levels import OFF
from rp_profiling.write.detail import Detail


class NodePorts(NamedTuple):
    """What executors tell about nodes, and about tasks that have to do with several of them."""

    sweep_elsewhere: Callable[[str, Sequence[int]], object] = lambda uid, positions: None
    """Called with a task that was ended, or has failed, and the positions of the nodes on which it may have left
    processes."""
    place_again: Callable[[AgentTask, str], object] | None = None
    """Called with a task that is to run on other nodes, which the executor does not have any more, and the reason; None
    if it cannot be: such a task fails."""
    nodes_lost: Callable[[range, str], object] = lambda nodes, reason: None
    """Called with the positions of nodes that cannot be used any more, and the reason."""


class PilotContext(NamedTuple):
    """What all tasks of a pilot have in common.

    `resource` is the platform's label; sandboxes are absolute paths; `gtod` and `prof` are the paths of the clock and
    event helpers, `detail` is that of the events that tasks record; `base_env` is the environment that the user's tasks
    start from. `cpus` are the numbers that the operating system gives to the cores of a node; empty if tasks are not to
    be bound to their cores. `gpu_ids` are the names of its GPUs for the variables that make GPUs visible; empty if
    these are just their indices. `launchers` are the launch methods for what the agent cannot start itself; None if
    there are none. If the agent has only a `partition` of the pilot, its own files are in `agent_sandbox`. `ports` are
    for the executor.
    """

    session_id: str
    pilot_id: str
    resource: str
    resource_sandbox: str
    session_sandbox: str
    pilot_sandbox: str
    registry_address: str
    control_pub_address: str
    control_sub_address: str
    gtod: str
    prof: str
    detail: Detail
    base_env: dict[str, str]
    cpus: tuple[int, ...] = ()
    gpu_ids: tuple[str, ...] = ()
    launchers: Launchers | None = None
    agent_sandbox: str = ''
    partition: int | None = None
    ports: NodePorts = NodePorts()

    @property
    def belongs(self) -> dict[str, str]:
        """The variables that all processes which the agent starts for tasks, and no others, have in their environment.

        The address tells sessions apart that were given the same uid.
        """
        own = {} if self.partition is None else {'RP_PARTITION_ID': str(self.partition)}
        return {'RP_SESSION_ID': self.session_id, 'RP_PILOT_ID': self.pilot_id,
                'RP_REGISTRY_ADDRESS': self.registry_address, **own}

    @property
    def in_scripts(self) -> Detail:
        """The detail of what the scripts of tasks record: nothing without the helpers."""
        return self.detail if self.prof else Detail(OFF)

    @property
    def own_sandbox(self) -> str:
        """The directory of the agent's own files."""
        return self.agent_sandbox or self.pilot_sandbox

    def variables(self) -> dict[str, str]:
        """The variables that tell a task about its pilot."""
        return self.belongs | {
            'RP_RESOURCE': self.resource,
            'RP_RESOURCE_SANDBOX': self.resource_sandbox,
            'RP_SESSION_SANDBOX': self.session_sandbox,
            'RP_PILOT_SANDBOX': self.pilot_sandbox,
            'RP_CONTROL_PUB_ADDRESS': self.control_pub_address,
            'RP_CONTROL_SUB_ADDRESS': self.control_sub_address,
            'RP_GTOD': self.gtod,
            'RP_PROF': self.prof,
        }


class TaskEnvironment:
    """Makes the environments of a pilot's tasks."""

    def __init__(self, context: PilotContext, find: Find = find_program) -> None:
        self.context = context
        # variables of another pilot in which this one may run would lie, and PWD changes with the task
        self.base = {key: value for key, value in context.base_env.items()
                     if not key.startswith('RP_') and key != 'PWD'}
        self.base.update(context.variables())
        self.search_path = self.base.get('PATH', os.defpath)
        self.programs = Programs(find)
        self.shared = Variables(self.base)
        self._masks: dict[tuple[int, ...], bytes] = {}

    def of_task(self, task: AgentTask) -> dict[str, str]:
        """The variables that tell all ranks of a task about it."""
        description = task.description
        cores = description['cores_per_rank']
        variables = {
            'RP_TASK_ID': task.uid,
            'RP_TASK_NAME': description['name'] or task.uid,
            'RP_TASK_SANDBOX': task.sandbox,
            'RP_CORES_PER_RANK': str(cores),
            'RP_GPUS_PER_RANK': _number(description['gpus_per_rank']),
            'RP_RANKS': str(description['ranks']),
            'PWD': task.sandbox,
        }
        if self.context.detail.on:
            variables['RP_PROF_TGT'] = f'{task.sandbox}/{task.uid}.prof'
        if description['threading_type'] == 'OpenMP':
            variables['OMP_NUM_THREADS'] = str(cores)
        if 'mode' in description and description['mode'] == RAPTOR_WORKER:
            from rp_api.raptor_link import SLOTS  # few agents have workers

            variables[SLOTS] = _places(task)
        return variables

    def of_rank(self, task: AgentTask, rank: int) -> dict[str, str]:
        """The variables that tell one rank about itself."""
        variables = {'RP_RANK': str(rank)}
        if task.description['gpu_type'] and task.slots is not None and rank < len(task.slots):
            gpus = [gpu['index'] for gpu in task.slots[rank]['gpus']]
            variables |= self.visible_gpus(task.description['gpu_type'], gpus)
        return variables

    def visible_gpus(self, gpu_type: str, gpus: Sequence[int], node: int | None = None) -> dict[str, str]:
        """The variable by which programs for this type of GPU see those with these indices, and no others.

        `node` is the position of the node that has them, None for this host.
        """
        name = VISIBLE_GPUS.get(gpu_type)
        if not name or not gpus:
            return {}
        known = self.context.gpu_ids if node is None else self._gpu_ids(node)
        return {name: ','.join([known[gpu] if gpu < len(known) else str(gpu) for gpu in gpus])}

    def _gpu_ids(self, node: int) -> tuple[str, ...]:
        """What GPUs are called there: on other hosts that are alike as here, if these are numbers and not UUIDs."""
        launchers, known = self.context.launchers, self.context.gpu_ids
        if launchers is None or launchers.is_here(node):
            return known
        return known if launchers.is_alike(node) and all(map(str.isdecimal, known)) else ()

    def block(self, own: dict[str, str]) -> Block:
        """The whole environment: what all tasks share, and `own`, which takes precedence."""
        return self.shared.block(own)

    def binding(self, cores: tuple[int, ...]) -> bytes | None:
        """The mask of the CPUs that these cores of the node are; None if a process is not to be bound."""
        mask = self._masks.get(cores)
        if mask is None:
            cpus = self.context.cpus
            if not cpus or not cores or max(cores) >= len(cpus):
                return None
            mask = self._masks[cores] = cpu_mask(cpus[core] for core in cores)
        return mask


def _places(task: AgentTask) -> str:
    """Where the ranks of a RAPTOR worker belong, as it is told."""
    return json.dumps([{'node': slot['node_name'], 'cores': [core['index'] for core in slot['cores']],
                        'gpus': [gpu['index'] for gpu in slot['gpus']]} for slot in task.slots or ()])


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f'{value:f}'

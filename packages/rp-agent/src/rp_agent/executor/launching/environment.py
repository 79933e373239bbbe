"""Environments of tasks: the user's environment, the variables of the pilot, and those of the task.

The user's environment is the one in which the pilot was started, not that of the agent. The part that all tasks share
is encoded once; each task encodes only its own dozen variables.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from rp_agent.executor.launching.launchers import Launchers
from rp_agent.executor.processes.launch import Block, Variables, cpu_mask
from rp_agent.lookup import Find, LaunchRefused, Programs, find_program
from rp_agent.task import VARIABLES, AgentTask
from rp_api.errors import PlatformError
from rp_api.system.gpus import HIP_GPUS, NO_GPUS, VISIBLE_GPUS
from rp_api.system.shell import find_shell
from rp_profiling.levels import OFF
from rp_profiling.write.detail import Detail


class NodePorts:
    """The requests of executors about nodes, and about tasks on several nodes; the inherited methods do nothing."""

    def sweep_elsewhere(self, uid: str, positions: Sequence[int]) -> None:
        """End the processes of a task that was ended or has failed, on the nodes at these positions."""

    def place_again(self, task: AgentTask, reason: str) -> bool:
        """Run a task on other nodes, which the executor has released; return False if that is impossible."""
        return False

    def nodes_lost(self, nodes: range, reason: str) -> None:
        """Stop using the nodes at these positions, which have become unusable."""


class PilotContext(NamedTuple):
    """The data that all tasks of a pilot share.

    `resource` is the label of the platform; sandboxes are absolute paths; `gtod` and `prof` are the paths of the clock
    and event helpers, `ctrl` that of the program that calls the agent, `detail` selects the events that tasks record;
    `base_env` is the user's environment. `cpus` maps the cores of a node to CPU numbers of the operating system; empty
    turns off core binding. `gpu_ids` are the names of its GPUs for the variables that make GPUs visible; empty if these
    are their indices. `shell` is the shell of the platform definition, `container_tool` its tool for containers; both
    are empty for the default. `launchers` are the launch methods for tasks that the agent cannot start itself; None if
    there are none. If the agent has only a `partition` of the pilot, its own files are in `agent_sandbox`. `ports` are
    for the executor. `channels` are the variables with the addresses of `app_comm`.
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
    shell: str = ''
    container_tool: str = ''
    launchers: Launchers | None = None
    agent_sandbox: str = ''
    partition: int | None = None
    ports: NodePorts = NodePorts()
    ctrl: str = ''
    channels: Mapping[str, str] = {}

    @property
    def belongs(self) -> dict[str, str]:
        """Variables that mark the environment of all processes which the agent starts for tasks, and no others.

        The address distinguishes sessions that have the same uid.
        """
        own = {} if self.partition is None else {'RP_PARTITION_ID': str(self.partition)}
        return {'RP_SESSION_ID': self.session_id, 'RP_PILOT_ID': self.pilot_id,
                'RP_REGISTRY_ADDRESS': self.registry_address, **own}

    @property
    def in_scripts(self) -> Detail:
        """The events that the scripts of tasks record: none without the helpers."""
        return self.detail if self.prof else Detail(OFF)

    @property
    def own_sandbox(self) -> str:
        """The directory of the agent's own files."""
        return self.agent_sandbox or self.pilot_sandbox

    def variables(self) -> dict[str, str]:
        """Return the variables that describe the pilot to a task."""
        return self.belongs | {
            'RP_RESOURCE': self.resource,
            'RP_RESOURCE_SANDBOX': self.resource_sandbox,
            'RP_SESSION_SANDBOX': self.session_sandbox,
            'RP_PILOT_SANDBOX': self.pilot_sandbox,
            'RP_CONTROL_PUB_ADDRESS': self.control_pub_address,
            'RP_CONTROL_SUB_ADDRESS': self.control_sub_address,
            'RP_GTOD': self.gtod,
            'RP_PROF': self.prof,
            'RP_CTRL': self.ctrl,
            **self.channels,
        }


BINDINGS_MAX = 4096
"""Maximum number of sets of cores whose CPU masks are remembered."""


class Bindings(dict[tuple[int, ...], bytes | None]):
    """The CPU masks of processes by their cores on the node; None for a process that stays unbound."""

    def __init__(self, cpus: tuple[int, ...]) -> None:
        self._cpus = cpus

    def __missing__(self, cores: tuple[int, ...]) -> bytes | None:
        if len(self) >= BINDINGS_MAX:
            self.clear()
        cpus = self._cpus
        bound = cpus and cores and max(cores) < len(cpus)
        self[cores] = mask = cpu_mask(cpus[core] for core in cores) if bound else None
        return mask


class TaskEnvironment:
    """Composes the environments of a pilot's tasks."""

    def __init__(self, context: PilotContext, find: Find = find_program) -> None:
        self.context = context
        # RP_ variables may be those of an outer pilot, and PWD differs between tasks
        self.base = {key: value for key, value in context.base_env.items()
                     if not key.startswith('RP_') and key != 'PWD'}
        self.base.update(context.variables())
        self.search_path = self.base.get('PATH', os.defpath)
        self.programs = Programs(find)
        self._without_gpus = self.base | NO_GPUS
        self.shared = Variables(self._without_gpus)
        """The variables of all tasks that use no GPUs, nearly all tasks."""
        self.bindings = Bindings(context.cpus)

    @cached_property
    def with_gpus(self) -> Variables:
        """The variables of all tasks that use GPUs."""
        return Variables(self.base)

    @cached_property
    def shell(self) -> str:
        """Path of the shell that runs scripts on this host; raise LaunchRefused if the host does not have it."""
        try:
            return find_shell(self.context.shell, self.search_path)
        except PlatformError as error:
            raise LaunchRefused(str(error)) from error

    def of_task(self, task: AgentTask) -> dict[str, str]:
        """Return the variables that describe a task to all of its ranks."""
        description = task.description
        cores, gpus = description['cores_per_rank'], description['gpus_per_rank']
        variables = {
            'RP_TASK_ID': task.uid,
            'RP_TASK_NAME': description['name'] or task.uid,
            'RP_TASK_SANDBOX': task.sandbox,
            'RP_CORES_PER_RANK': str(cores),
            'RP_GPUS_PER_RANK': str(int(gpus)) if gpus == int(gpus) else f'{gpus:f}',
            'RP_RANKS': str(description['ranks']),
            'PWD': task.sandbox,
        }
        if self.context.detail.on:
            variables['RP_PROF_TGT'] = f'{task.sandbox}/{task.uid}.prof'
        if description['threading_type'] == 'OpenMP':
            variables['OMP_NUM_THREADS'] = str(cores)
        if VARIABLES in task.extra:
            variables |= task.extra[VARIABLES]
        return variables

    def of_rank(self, task: AgentTask, rank: int) -> dict[str, str]:
        """Return the variables that describe one rank to itself, in addition to those of `block`."""
        variables = {'RP_RANK': str(rank)}
        if uses_gpus(task) and task.slots is not None and rank < len(task.slots):
            gpus = [gpu['index'] for gpu in task.slots[rank]['gpus']]
            variables |= self.visible_gpus(task.description['gpu_type'], gpus)
        return variables

    def scope(self, task: AgentTask, variables: dict[str, str]) -> Mapping[str, str]:
        """Return the whole environment of a process of the task that has these variables, for lookups."""
        return ChainMap(variables, self.base if uses_gpus(task) else self._without_gpus)

    def block(self, task: AgentTask, variables: dict[str, str]) -> Block:
        """Return the whole environment of a process of the task that has these variables."""
        return (self.with_gpus if uses_gpus(task) else self.shared).block(variables)

    def visible_gpus(self, gpu_type: str, gpus: Sequence[int], node: int | None = None) -> dict[str, str]:
        """Return the variables that make only the GPUs with these indices visible to programs for this type of GPU.

        `node` is the position of their node, None for this host.
        """
        if not gpus:
            return NO_GPUS
        name = VISIBLE_GPUS.get(gpu_type)
        if name is None:
            return {}
        hip = {HIP_GPUS: ','.join(map(str, range(len(gpus))))} if gpu_type == 'ROCm' and HIP_GPUS in self.base else {}
        return {name: ','.join(self.gpu_names(gpus, node)), **hip}

    def gpu_names(self, gpus: Sequence[int], node: int | None = None) -> list[str]:
        """Return the names of the GPUs with these indices, as in `visible_gpus`."""
        known = self.context.gpu_ids if node is None else self._gpu_ids(node)
        return [known[gpu] if gpu < len(known) else str(gpu) for gpu in gpus]

    def _gpu_ids(self, node: int) -> tuple[str, ...]:
        """Return the names of GPUs on a node; numbers, unlike UUIDs, are the same on all hosts of the same kind."""
        launchers, known = self.context.launchers, self.context.gpu_ids
        if launchers is None or launchers.is_here(node):
            return known
        return known if launchers.is_alike(node) and all(map(str.isdecimal, known)) else ()


def uses_gpus(task: AgentTask) -> bool:
    """Return whether ranks of a task may have GPUs: it asks for some, or for slots, which may have some."""
    return bool(task.description['gpus_per_rank'] or task.description['slots'])

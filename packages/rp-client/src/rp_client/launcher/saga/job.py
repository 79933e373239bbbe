"""The job of a pilot: what is asked of the batch system, from the pilot's description and its platform. No I/O.

The result has the names of radical.saga's job description. Where an adaptor of radical.saga 1.103 leaves out of its
script what was asked for, or puts there what the batch system refuses, `amendments` says how the script is changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rp_api.description.pilot import PilotDescription
from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import fill

Amendment = tuple[str, str]
"""A regular expression, and what stands in the script for what it matches."""

_ARCHITECTURE = ('smt', 'options', 'blocked_cores', 'exclusive', 'gpu', 'cpu')
_PARTS = {'queue': ('qos', ('slurm',)), 'project': ('reservation', ('slurm', 'lsf'))}
"""What may follow a colon in an attribute, and the batch systems that know it."""


class Size(NamedTuple):
    """What a pilot asks for; `nodes` is 0 where the platform does not say how large they are."""

    nodes: int
    cores: int
    gpus: int
    cores_per_node: int


def size(description: PilotDescription, platform: ResourceConfig) -> Size:
    """Whole nodes, as many as it takes; cores that tasks cannot have (`blocked_cores`) do not count."""
    cores, gpus = platform.cores_per_node, platform.gpus_per_node
    if description.nodes:
        if not cores:
            raise PlatformError(f'PilotDescription.nodes is {description.nodes}, but {platform.label} does not say how '
                                'many cores a node has (cores_per_node): set cores instead')
        nodes = description.nodes + description.backup_nodes
        return Size(nodes, nodes * cores, nodes * gpus, cores)
    if not cores:
        return Size(0, description.cores, description.gpus, 0)
    architecture = platform.system_architecture
    usable = cores * int(architecture.get('smt', 1)) - len(architecture.get('blocked_cores', ()))
    usable_gpus = gpus - len(architecture.get('blocked_gpus', ()))
    if description.gpus and usable_gpus < 1:
        raise PlatformError(f'PilotDescription.gpus is {description.gpus}, but nodes of {platform.label} have none')
    nodes = max(math.ceil(description.cores / usable), math.ceil(description.gpus / max(1, usable_gpus)))
    return Size(nodes, nodes * cores, nodes * gpus if description.gpus else 0, cores)


def job_description(description: PilotDescription, platform: ResourceConfig, sandbox: str,
                    command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of radical.saga's job description, without those that are not set."""
    scheme = _scheme(platform)
    _refuse(description, platform, scheme)
    wanted = size(description, platform)
    program, *arguments = command
    found = {
        'executable': program,
        'arguments': arguments,
        'environment': dict(environment),
        'working_directory': sandbox,
        'output': f'{sandbox}/bootstrap_0.out',
        'error': f'{sandbox}/bootstrap_0.err',
        'name': _job_name(description.job_name or description.uid),
        'queue': _checked('queue', description.queue or fill(platform.default_queue, description), scheme),
        'project': _checked('project', description.project, scheme),
        'wall_time_limit': description.runtime,
        'total_cpu_count': wanted.cores,
        'total_gpu_count': wanted.gpus,
        'processes_per_host': wanted.cores_per_node,
        'total_physical_memory': description.memory,
        'system_architecture': {name: value for name, value in platform.system_architecture.items()
                                if name in _ARCHITECTURE},
        'spmd_variation': 'MPI' if scheme == 'sge' else None}
    known = {name: value for name, value in found.items() if value or name == 'arguments'}
    return {name: value for name, value in known.items() if name not in _UNKNOWN.get(scheme, ())}


def amendments(description: PilotDescription, platform: ResourceConfig) -> list[Amendment]:
    """What is changed in the script that the adaptor makes."""
    scheme, wanted = _scheme(platform), size(description, platform)
    amend = _AMEND.get(scheme)
    return amend(description, platform, wanted) if amend else []


def _scheme(platform: ResourceConfig) -> str:
    return urlsplit(platform.job_manager_endpoint).scheme.partition('+')[0]


def _job_name(name: str) -> str:
    """The name with which all batch systems can do something."""
    return re.sub(r'[^\w.+-]', '_', name)


def _checked(name: str, value: str | None, scheme: str) -> str | None:
    part, known = _PARTS[name]
    if value and ':' in value and scheme not in known:
        raise PlatformError(f'PilotDescription.{name} is {value!r}, which asks for a {part} behind the colon, but '
                            f'for {scheme} there is none: only for {", ".join(known)}')
    return value


def _refuse(description: PilotDescription, platform: ResourceConfig, scheme: str) -> None:
    """Raise for what cannot be asked of a batch system; what is not said would be missed when it is too late."""
    for name in ('gpus', 'memory'):
        if description[name] and scheme in _CANNOT[name]:
            raise PlatformError(f'PilotDescription.{name} is {description[name]}, but radical.saga has no way to ask '
                                f'{scheme} for that: leave it unset, and choose a queue that has it')
    if description.memory and scheme == 'sge' and 'memreqs=' not in urlsplit(platform.job_manager_endpoint).query:
        raise PlatformError(f'PilotDescription.memory is {description.memory}, but job_manager_endpoint of '
                            f'{platform.label} does not say how its Grid Engine calls memory: add, for example, '
                            '?memreqs=h_vmem to it')


def _per_node(total: int, wanted: Size) -> int:
    return math.ceil(total / max(1, wanted.nodes))


def _options(platform: ResourceConfig) -> list[str]:
    return [str(option) for option in platform.system_architecture.get('options', ())]


def _after(pattern: str, lines: Sequence[str]) -> list[Amendment]:
    """Lines that follow the first one which the pattern matches."""
    return [(f'({pattern}.*\n)', r'\1' + ''.join(f'{line}\n' for line in lines))] if lines else []


def _amend_slurm(_: PilotDescription, platform: ResourceConfig, wanted: Size) -> list[Amendment]:
    lines = [f'#SBATCH --nodes={wanted.nodes}'] if wanted.nodes else []
    lines.append('#SBATCH --no-kill')   # a pilot goes on without a node that fails
    if wanted.gpus and 'smt' in platform.system_architecture:   # the adaptor leaves them out then
        lines += [f'#SBATCH --gpus-per-node={_per_node(wanted.gpus, wanted)}']
    return _after('#SBATCH --ntasks=', lines)


def _amend_pbspro(description: PilotDescription, platform: ResourceConfig, wanted: Size) -> list[Amendment]:
    chunk = f':ngpus={_per_node(wanted.gpus, wanted)}' if wanted.gpus else ''
    chunk += f':mem={_per_node(description.memory, wanted)}mb' if description.memory else ''
    found = [(r'(select=\d+:ncpus=\d+)', rf'\1{chunk}')] if chunk else []
    exclusive = platform.system_architecture.get('exclusive')
    return found + _after('#PBS -l select=', ['#PBS -l place=scatter:excl'] if exclusive else [])


def _amend_torque(description: PilotDescription, platform: ResourceConfig, wanted: Size) -> list[Amendment]:
    chunk = f':ppn={wanted.cores_per_node}' if wanted.cores_per_node else ''
    chunk += f':gpus={_per_node(wanted.gpus, wanted)}' if wanted.gpus else ''
    lines = [f'#PBS -l {option}' for option in _options(platform)]
    lines += [f'#PBS -l mem={description.memory}mb'] if description.memory else []
    lines += ['#PBS -n'] if platform.system_architecture.get('exclusive') else []
    nodes = wanted.nodes or '\\1'
    # the adaptor has the command's line go on with one of its own
    return [(r'#PBS -l nodes=(\d+)', f'#PBS -l nodes={nodes}{chunk}'), *_after('#PBS -l nodes=', lines),
            (r' export SAGA_PPN=', '\nexport SAGA_PPN=')]


def _amend_sge(_: PilotDescription, platform: ResourceConfig, wanted: Size) -> list[Amendment]:
    lines = [f'#$ -l {option}' for option in _options(platform)]
    lines += ['#$ -l exclusive=true'] if platform.system_architecture.get('exclusive') else []
    return _after(r'#\$ -V', lines)


_FROM_INPUT = (r'&& (\S+) \$SCRIPTFILE', r'&& \1 < $SCRIPTFILE')
"""Only what `bsub` reads there is searched for #BSUB."""


def _amend_lsf(description: PilotDescription, platform: ResourceConfig, wanted: Size) -> list[Amendment]:
    memory = _per_node(description.memory, wanted)
    lines = [f"#BSUB -R 'rusage[mem={memory}MB]'"] if description.memory else []
    lines += ['#BSUB -x'] if platform.system_architecture.get('exclusive') else []
    found = [*_after('#BSUB -nnodes', lines), _FROM_INPUT]
    if 'JSRUN' not in platform.launch_methods.get('order', ()):   # elsewhere, LSF knows neither of these
        size_lines = f"#BSUB -n {wanted.cores}\n#BSUB -R 'span[ptile={wanted.cores_per_node}]'\n"
        size_lines += f"#BSUB -gpu 'num={_per_node(wanted.gpus, wanted)}'\n" if wanted.gpus else ''
        found += [(r'#BSUB -nnodes .*\n', size_lines), (r'#BSUB -alloc_flags .*\n', '')]
    return found


def _amend_loadl(description: PilotDescription, _: ResourceConfig, wanted: Size) -> list[Amendment]:
    lines = [f'#@ account_no = {description.project}'] if description.project else []
    nodes = [f'#@ node = {wanted.nodes}'] if wanted.nodes else []
    return [*_after('#@ job_name', lines + nodes), (r'#@ class = edison\n', '')]   # its default, without a queue


_AMEND = {'slurm': _amend_slurm, 'pbspro': _amend_pbspro, 'torque': _amend_torque, 'sge': _amend_sge, 'lsf': _amend_lsf,
          'loadl': _amend_loadl}

_UNKNOWN: dict[str, tuple[str, ...]] = {
    'pbspro': ('total_physical_memory',), 'torque': ('total_gpu_count', 'total_physical_memory', 'system_architecture'),
    'lsf': ('total_physical_memory',), 'sge': ('total_gpu_count', 'system_architecture'),
    'loadl': ('total_gpu_count', 'system_architecture'), 'condor': ('total_gpu_count', 'system_architecture')}
"""Attributes that an adaptor refuses, and that it can do without, or whose place amendments take."""

_CANNOT = {'gpus': ('sge', 'loadl', 'condor'), 'memory': ('cobalt', 'condor')}
"""Attributes for which there is no way."""

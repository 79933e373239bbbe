"""Jobs and launch methods for tests, and what each method makes of each job, as text.

`python packages/rp-agent/tests/launch_method_support.py` writes the files in `golden/launch_methods` anew: read the
difference before it is committed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rp_agent.launch_method.base import Job, LaunchMethod, Program, Rank, Setting
from rp_agent.launch_method.cray import Aprun, Ccmrun, MpirunCcmrun
from rp_agent.launch_method.dvm import DVM_URI, Orte, OrteLib, Prte
from rp_agent.launch_method.flux import Dragon, Flux
from rp_agent.launch_method.ibm import Jsrun, JsrunErf, Poe, Runjob
from rp_agent.launch_method.ibrun import Ibrun
from rp_agent.launch_method.mpirun import Mpiexec, Mpirun, MpirunRsh
from rp_agent.launch_method.mpt import Dplace, MpiexecMpt, MpirunDplace, MpirunMpt
from rp_agent.launch_method.single import Fork, Rsh, Ssh
from rp_agent.launch_method.srun import Srun

GOLDEN = Path(__file__).parent / 'golden/launch_methods'

EXECUTABLE = ('/bin/sh', '/pilot/task.000000/task.000000.exec.sh')

NODES = tuple(f'nid{number:05}' for number in range(1, 61))
SETTING = Setting(NODES, cores_per_node=16, gpus_per_node=4, facts={'loadl_bg_block': 'R00-M0'})


def job(*places: tuple[int, Sequence[int], Sequence[int]], **values: Any) -> Job:
    """A job, each of whose ranks is on the node of that position, with these cores and GPUs."""
    ranks = tuple(Rank(NODES[node], node, tuple(cores), tuple(gpus)) for node, cores, gpus in places)
    return Job('task.000000', '/pilot/task.000000', ranks, **{'mpi': len(ranks) > 1, **values})


def on(*nodes: int, cores: int = 1, **values: Any) -> Job:
    """A job with a rank for each of these nodes, and cores for each, from the first one on."""
    used: dict[int, int] = {}
    places = []
    for node in nodes:
        first = used.get(node, 0)
        used[node] = first + cores
        places.append((node, range(first, first + cores), ()))
    return job(*places, cores_per_rank=cores, **values)


JOBS: dict[str, Job] = {
    'one process': on(0),
    'one process on another node': on(1),
    'threads': on(0, cores=4, threading='POSIX'),
    'OpenMP': on(0, cores=4, threading='OpenMP'),
    'one MPI rank': on(0, mpi=True),
    'ranks that are not MPI': on(0, 0, 1, 1, mpi=False),
    'MPI on one node': on(0, 0, 0, 0),
    'MPI on two nodes': on(0, 0, 1, 1),
    'MPI and OpenMP on two nodes': on(0, 0, 1, 1, cores=4, threading='OpenMP'),
    'MPI with variables': on(0, 1, variables=('RP_TASK_ID', 'MY_INPUT')),
    'memory': on(0, 0, 1, 1, mem_per_rank=512),
    'fewer ranks on the last node': on(0, 0, 0, 1),
    'uneven ranks': on(0, 1, 1, 1),
    'other nodes': on(7, 7, 9, 9),
    'nodes in another order': on(2, 0, 1),
    'a node twice': on(0, 1, 0),
    'a node in the middle has more ranks': on(0, 1, 1, 2),
    'whole GPUs, CUDA': job((0, [0], [0]), (0, [1], [1]), (1, [0], [0]), (1, [1], [1]), gpus_per_rank=1.0,
                            gpu_type='CUDA'),
    'one rank with a GPU, CUDA': job((0, [0], [2]), gpus_per_rank=1.0, gpu_type='CUDA'),
    'several GPUs for each rank, ROCm': job((0, [0], [0, 1]), (0, [1], [2, 3]), gpus_per_rank=2.0, gpu_type='ROCm'),
    'shared GPUs': job((0, [0], [0]), (0, [1], [0]), (0, [2], [1]), (0, [3], [1]), gpus_per_rank=0.5, gpu_type='CUDA'),
    'other GPUs on each node': job((0, [0], [0, 1]), (0, [1], [2, 3]), (1, [0], [3, 1]), gpus_per_rank=2.0,
                                   gpu_type='CUDA'),
    'no word about GPUs': job((0, [0], [0]), (0, [1], [1]), gpus_per_rank=1.0, skip_gpus=True),
    'cores here and there': job((0, [0, 1, 5], []), (0, [6, 7, 9], []), cores_per_rank=3),
    'the same cores on two nodes': job((0, [4, 5], []), (0, [6, 7], []), (1, [4, 5], []), (1, [6, 7], []),
                                       cores_per_rank=2),
    'cores that are not known': job((0, [], []), (0, [], []), (1, [], []), (1, [], []), cores_per_rank=2),
    'a block of a torus': on(4, 4, 4, 5, 5, 5, details={'corner_node': 'R00-M0-N00-J04', 'shape': (1, 2, 1, 1, 1)}),
    'as many nodes as stand in a command line': on(*range(42)),
    'more nodes': on(*range(43)),
}


def method(kind: Callable[..., LaunchMethod], program: str, version: str = '', flavour: str = '',
           setting: Mapping[str, Any] | None = None, options: Mapping[str, Any] | None = None,
           **more: Any) -> LaunchMethod:
    """A launch method as if it had been detected."""
    return kind(Program(program, version, flavour), replace(SETTING, **(setting or {})), options, **more)


HERE = frozenset(NODES[:1])
MPIRUN, MPIEXEC = '/opt/mpi/bin/mpirun', '/opt/mpi/bin/mpiexec'
METHODS: dict[str, LaunchMethod] = {
    'APRUN': method(Aprun, '/usr/bin/aprun'),
    'APRUN, two threads on each core': method(Aprun, '/usr/bin/aprun', setting={'threads_per_core': 2}),
    'CCMRUN': method(Ccmrun, '/usr/bin/ccmrun'),
    'DPLACE': method(Dplace, '/usr/bin/dplace', here=HERE),
    'DRAGON': method(Dragon, '/usr/bin/dragon'),
    'FLUX': method(Flux, '/usr/bin/flux', '0.66.0'),
    'FORK': method(Fork, '', here=HERE),
    'IBRUN': method(Ibrun, '/usr/local/bin/ibrun'),
    'IBRUN, with tasks_per_node': method(Ibrun, '/usr/local/bin/ibrun', options={'tasks_per_node': 8}),
    'JSRUN': method(Jsrun, '/opt/ibm/jsrun'),
    'JSRUN, four threads on each core': method(Jsrun, '/opt/ibm/jsrun', setting={'threads_per_core': 4}),
    'JSRUN_ERF': method(JsrunErf, '/opt/ibm/jsrun'),
    'MPIEXEC, Hydra': method(Mpiexec, MPIEXEC, '4.1.1', 'Hydra'),
    'MPIEXEC, Intel MPI': method(Mpiexec, MPIEXEC, '2021.9', 'Intel MPI'),
    'MPIEXEC, PALS': method(Mpiexec, '/opt/cray/pals/1.2/bin/mpiexec', '1.2.12', 'PALS'),
    'MPIEXEC_MPT': method(MpiexecMpt, '/usr/bin/mpiexec_mpt'),
    'MPIRUN, Hydra, in a job of Slurm with --gpus': method(Mpirun, MPIRUN, '4.1.1', 'Hydra', counts_gpus=True),
    'MPIRUN, Open MPI': method(Mpirun, MPIRUN, '5.0.3', 'Open MPI'),
    'MPIRUN, Open MPI, as root with arguments': method(
        Mpirun, MPIRUN, '5.0.3', 'Open MPI', as_root=True, options={'arguments': ['--mca', 'btl', 'tcp,self']}),
    'MPIRUN, Spectrum MPI': method(Mpirun, MPIRUN, '10.4', 'Spectrum MPI'),
    'MPIRUN_CCMRUN': method(MpirunCcmrun, MPIRUN, '4.1.6', 'Open MPI'),
    'MPIRUN_DPLACE': method(MpirunDplace, '/usr/bin/mpirun', dplace='/usr/bin/dplace'),
    'MPIRUN_MPT': method(MpirunMpt, '/usr/bin/mpirun_mpt'),
    'MPIRUN_RSH': method(MpirunRsh, '/usr/bin/mpirun_rsh'),
    'ORTE': method(Orte, '/usr/bin/orterun'),
    'ORTE_LIB': method(OrteLib, '/usr/bin/orterun'),
    'POE': method(Poe, '/usr/bin/poe'),
    'PRTE, prterun': method(Prte, '/opt/prrte/bin/prterun', '3.0.14', 'prterun'),
    'PRTE, prun': method(Prte, '/opt/prrte/bin/prun', '3.0.2', 'prun'),
    'RSH': method(Rsh, '/usr/bin/rsh'),
    'RUNJOB': method(Runjob, '/bgsys/drivers/ppcfloor/hlcs/bin/runjob'),
    'SRUN': method(Srun, '/usr/bin/srun', '23.02.7'),
    'SRUN, exclusive': method(Srun, '/usr/bin/srun', '23.02.7', setting={'exclusive': True}),
    'SRUN, exclusive, without GPUs': method(Srun, '/usr/bin/srun', '23.02.7',
                                            setting={'exclusive': True, 'gpus_per_node': 0}),
    'SRUN, exclusive, in a job with --gpus': method(Srun, '/usr/bin/srun', '23.02.7', setting={'exclusive': True},
                                                   counts_gpus=True),
    'SRUN, in a job with --gpus': method(Srun, '/usr/bin/srun', '23.02.7', counts_gpus=True),
    'SRUN, of 2018': method(Srun, '/usr/bin/srun', '18.08.8'),
    'SRUN, two threads on each core, verbose, with arguments': method(
        Srun, '/usr/bin/srun', '23.02.7', setting={'threads_per_core': 2}, options={'arguments': ['--mpi=pmix']},
        binds=False, verbose=True),
    'SSH': method(Ssh, '/usr/bin/ssh'),
    'SSH, which is a link to rsh': method(Ssh, '/usr/bin/ssh', '', 'rsh'),
}
METHODS['MPIRUN_CCMRUN'].first = ('/usr/bin/ccmrun', MPIRUN)   # type: ignore[attr-defined]


def described(method: LaunchMethod) -> str:
    """What the method makes of all jobs."""
    return '\n'.join(_with(method, title, each) for title, each in JOBS.items())


def _with(method: LaunchMethod, title: str, job: Job) -> str:
    if isinstance(method, Orte):
        job = replace(job, details={DVM_URI: 'prte-7@0.0;tcp4://10.0.0.1:4242'})
    lines = [f'# {title}']
    reason = method.refuses(job)
    if reason:
        return '\n'.join([*lines, f'refused: {reason}', ''])
    command = method.command(job, EXECUTABLE)
    lines += [f'{name}={shlex.quote(value)}' for name, value in command.environment.items()]
    lines.append(shlex.join(command.argv).replace(shlex.join(EXECUTABLE), 'EXEC'))
    for name, text in command.files.items():
        lines += [f'{name}:', *(f'    {line}' for line in _short(text.splitlines()))]
    return '\n'.join([*lines, ''])


def _short(lines: list[str]) -> list[str]:
    return lines if len(lines) < 10 else [*lines[:2], f'... {len(lines) - 3} lines', lines[-1]]


def path(name: str) -> Path:
    """The file of a method."""
    return GOLDEN / f'{name.lower().replace(", ", "-").replace(" ", "_")}.txt'


if __name__ == '__main__':
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for old in GOLDEN.glob('*.txt'):
        old.unlink()
    for name, each in METHODS.items():
        path(name).write_text(described(each))

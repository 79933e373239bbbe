"""Wherever the ranks of a job belong, its command puts them there: its options are read as launchers read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch_method_support import EXECUTABLE, METHODS, NODES, job

from rp_agent.launch_method.base import Command, Job
from rp_agent.launch_method.nodes import blocks, parts, ranges
from rp_agent.resource_manager.binding import cpu_list

NODE = st.integers(0, 5)
JOBS = st.lists(st.tuples(NODE, st.integers(1, 4)), min_size=1, max_size=8).map(
    lambda runs: job(*((node, (number,), ()) for node, ranks in runs for number in range(ranks))))


def after(words: Sequence[str], option: str) -> str:
    return words[words.index(option) + 1]


def value(words: Sequence[str], option: str) -> str:
    return next(word.removeprefix(f'{option}=') for word in words if word.startswith(f'{option}='))


def lines(command: Command, suffix: str) -> list[str]:
    return next(text for name, text in command.files.items() if name.endswith(suffix)).split()


def listed(command: Command) -> list[str]:
    """Open MPI, PRRTE: a host for each rank."""
    assert {'seq:OVERSUBSCRIBE'} <= set(command.argv)
    return after(command.argv, '--host').split(',')


def counted(command: Command) -> list[str]:
    """Hydra, Intel MPI: hosts and numbers."""
    entries = after(command.argv, '-hosts').split(',') if '-hosts' in command.argv else lines(command, '.hosts')
    pairs = [entry.split(':') for entry in entries]
    return [node for node, count in pairs for _ in range(int(count))]


def segments(argv: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for word in argv:
        if word == ':':
            found.append([])
        else:
            found[-1].append(word)
    return found


def filled(count: str, each: str, hosts: Callable[[Sequence[str]], list[str]]) -> Callable[[Command], list[str]]:
    """PALS, ALPS: parts, in each of which hosts are filled one after the other."""
    def read(command: Command) -> list[str]:
        nodes = []
        for words in segments(command.argv):
            assert tuple(words[-len(EXECUTABLE):]) == EXECUTABLE
            names = hosts(words)
            places = [name for name in names for _ in range(int(after(words, each)))]
            assert len(set(names)) == len(names)
            assert len(places) - int(after(words, each)) < int(after(words, count)) <= len(places)
            nodes += places[:int(after(words, count))]
        return nodes
    return read


def of_slurm(command: Command) -> list[str]:
    """srun: a host for each rank, or as many ranks on each node, whose order is that of the job of Slurm."""
    if 'SLURM_HOSTFILE' in command.environment:
        assert '--distribution=arbitrary' in command.argv
        return lines(command, '.hosts')
    nodes = value(command.argv, '--nodelist').split(',')
    assert nodes == sorted(set(nodes))
    assert len(nodes) == int(after(command.argv, '--nodes'))
    return [node for node in nodes for _ in range(int(after(command.argv, '--ntasks-per-node')))]


def of_tacc(command: Command) -> list[str]:
    """ibrun: consecutive places."""
    each = int(command.environment['IBRUN_TASKS_PER_NODE'])
    first, count = int(after(command.argv, '-o')), int(after(command.argv, '-n'))
    return [NODES[place // each] for place in range(first, first + count)]


def of_poe(command: Command) -> list[str]:
    words = command.environment['LSB_MCPU_HOSTS'].split()
    return [node for node, count in zip(words[::2], words[1::2], strict=True) for _ in range(int(count))]


def of_erf(command: Command) -> list[str]:
    text = next(iter(command.files.values()))
    hosts = [int(line.split('host: ')[1].split(';')[0]) for line in text.splitlines()[1:]]
    return [NODES[host - 1] for host in hosts]


def of_mpt(command: Command) -> list[str]:
    nodes = command.argv[1].split(',')
    return [node for node in nodes for _ in range(int(after(command.argv, '-np')))]


READERS: Mapping[str, Callable[[Command], list[str]]] = {
    'APRUN': filled('-n', '-N', lambda words: [f'nid{int(number):05}' for number in after(words, '-L').split(',')]),
    'IBRUN': of_tacc,
    'IBRUN, with tasks_per_node': of_tacc,
    'JSRUN_ERF': of_erf,
    'MPIEXEC, Hydra': counted,
    'MPIEXEC, Intel MPI': counted,
    'MPIEXEC, PALS': filled('-np', '--ppn', lambda words: after(words, '--hosts').split(',')),
    'MPIEXEC_MPT': lambda command: lines(command, '.hosts'),
    'MPIRUN, Open MPI': listed,
    'MPIRUN_DPLACE': of_mpt,
    'MPIRUN_MPT': of_mpt,
    'POE': of_poe,
    'PRTE, prterun': listed,
    'SRUN': of_slurm,
}


@given(each=JOBS)
def test_ranks_are_where_they_belong(each: Job) -> None:
    each = replace(each, details={'dvm_uri': 'uri'})
    for name, read in READERS.items():
        method = METHODS[name]
        if not method.refuses(each):
            assert read(method.command(each, EXECUTABLE)) == [rank.node for rank in each.ranks], name


@pytest.mark.parametrize('name', ['MPIRUN, Open MPI', 'PRTE, prun'])
def test_more_ranks_than_an_argument_can_name(name: str) -> None:
    large = replace(job(*((number % 60, (), ()) for number in range(10_000))), details={'dvm_uri': 'uri'})
    command = METHODS[name].command(large, EXECUTABLE)
    assert after(command.argv, '--hostfile') == '/pilot/task.000000/task.000000.hosts'
    assert lines(command, '.hosts') == [rank.node for rank in large.ranks]


@given(each=JOBS)
def test_only_few_methods_refuse_a_job_because_of_its_nodes(each: Job) -> None:
    picky = {'CCMRUN', 'DPLACE', 'FORK', 'IBRUN', 'MPIRUN_DPLACE', 'ORTE', 'ORTE_LIB', 'PRTE', 'RSH', 'RUNJOB', 'SSH'}
    assert {method.NAME for method in METHODS.values() if method.refuses(each)} <= picky


@given(each=JOBS)
def test_parts_are_all_of_the_runs_and_even(each: Job) -> None:
    runs = blocks(each.ranks)
    found = parts(runs)
    assert [run for part in found for run in part] == runs
    for part in found:
        assert len({run.position for run in part}) == len(part)
        assert {run.ranks for run in part[:-1]} <= {part[0].ranks}
        assert part[-1].ranks <= part[0].ranks


@given(st.lists(st.integers(0, 40), unique=True).map(sorted))
def test_ranges_are_numbers(numbers: list[int]) -> None:
    assert cpu_list(ranges(numbers)) == numbers

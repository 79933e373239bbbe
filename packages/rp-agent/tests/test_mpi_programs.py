"""Which MPI a program uses, how often that is looked at, and which launch methods do not start it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from launch_method_support import METHODS, SETTING, on
from programs_support import program

from rp_agent.launch_method.find import Methods, choose
from rp_agent.launch_method.mpi_library import MPICH, OPEN_MPI, Linked, MpiPrograms, of_executable, of_python
from rp_agent.launch_method.mpirun import Mpiexec
from rp_agent.launch_method.system import LaunchSystem
from rp_agent.lookup import LaunchRefused

EMPTY: dict[str, Any] = {'executable': '', 'arguments': [], 'environment': {}, 'pre_exec': [], 'named_env': '',
                         'container': {}, 'literal_arguments': False}


@pytest.fixture
def ldd(tmp_path: Path) -> Path:
    """A directory with an `ldd` that prints the file, and counts how often it was asked."""
    program(tmp_path / 'bin' / 'ldd', f'echo "$1" >> {tmp_path}/asked; cat "$1"')
    return tmp_path / 'bin'


def system(directory: Path) -> LaunchSystem:
    return LaunchSystem({'PATH': f'{directory}:{os.environ["PATH"]}'})


@pytest.mark.parametrize(('needed', 'kind', 'library'), [
    ('libmpi.so.40', OPEN_MPI, 'libmpi.so.40'), ('libmpi_cxx.so.40 libopen-pal.so.40', OPEN_MPI, 'libmpi_cxx.so.40'),
    ('libmpich.so.12', MPICH, 'libmpich.so.12'), ('libmpi_gnu_123.so.12', MPICH, 'libmpi_gnu_123.so.12'),
    ('libmpi.so.12', MPICH, 'libmpi.so.12'), ('libmpi.so.20 libpmix.so.2', OPEN_MPI, 'libmpi.so.20')])
def test_libraries(ldd: Path, tmp_path: Path, needed: str, kind: str, library: str) -> None:
    path = tmp_path / 'program'
    path.write_text(''.join(f'\t{name} => not found\n' for name in (*needed.split(), 'libc.so.6')))
    assert of_executable(system(ldd), str(path)) == Linked(str(path), kind, library)


@pytest.mark.parametrize('needed', [
    'libc.so.6', '', 'libmpi_abi.so.0', 'libmpi.so.40 libmpich.so.12', 'libmpich.so.12 libpmix.so.2',
    'libmpi.so.12 libopen-rte.so.12', 'libmpi.so', 'libmpi.so.1'])
def test_libraries_that_tell_nothing(ldd: Path, tmp_path: Path, needed: str) -> None:
    path = tmp_path / 'program'
    path.write_text(''.join(f'\t{name} => /lib/{name} (0x00007f00)\n' for name in needed.split()))
    assert of_executable(system(ldd), str(path)) is None


def test_what_ldd_refuses(tmp_path: Path) -> None:
    path = tmp_path / 'script'
    path.write_text('#!/bin/sh\n')
    assert of_executable(LaunchSystem(), str(path)) is None
    assert of_executable(LaunchSystem({'PATH': str(tmp_path)}), '/bin/sh') is None   # there is no ldd


@pytest.mark.parametrize(('said', 'kind', 'library'), [
    ('Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4', OPEN_MPI, 'Open MPI v4.1.4'),
    ('MPICH Version:      4.0.2\nMPICH Release date: ...', MPICH, 'MPICH Version: 4.0.2'),
    ('Intel(R) MPI Library 2021.9 for Linux* OS', MPICH, 'Intel(R) MPI Library 2021.9 for Linux* OS')])
def test_mpi4py(tmp_path: Path, said: str, kind: str, library: str) -> None:
    python = program(tmp_path / 'python3', f"cat <<'END'\n{said}\nEND")
    assert of_python(LaunchSystem(), str(python)) == Linked(f'mpi4py of {python}', kind, library)


def test_a_python_without_mpi4py(tmp_path: Path) -> None:
    python = program(tmp_path / 'python3', 'exit 1')
    assert of_python(LaunchSystem(), str(python)) is None


class Looking:
    """Programs that are looked at when `work` is called."""

    def __init__(self, directory: Path) -> None:
        self._left: list[Callable[[], object]] = []
        self.programs = MpiPrograms({'PATH': f'{directory}:{os.environ["PATH"]}'}, self._offload)

    def work(self) -> None:
        left, self._left = self._left, []
        for call in left:
            call()

    def _offload(self, work: Callable[[], Any], done: Callable[[Any], object],
                 failed: Callable[[BaseException], object]) -> None:
        def run() -> None:
            try:
                result = work()
            except OSError as error:
                failed(error)
            else:
                done(result)

        self._left.append(run)


def test_a_program_is_looked_at_once(ldd: Path, tmp_path: Path) -> None:
    path = program(tmp_path / 'program', 'libmpi.so.40')
    looking = Looking(ldd)
    seen: list[int] = []
    known = looking.programs.program({**EMPTY, 'executable': str(path)}, '/sandbox')
    assert known is not None
    for number in range(3):
        assert looking.programs.look(known, partial(seen.append, number))
    assert looking.programs.linked(known) is None
    looking.work()
    assert seen == [0, 1, 2]
    assert not looking.programs.look(known, lambda: seen.append(3))
    found = looking.programs.linked(known)
    assert found is not None
    assert (found.kind, found.library) == (OPEN_MPI, 'libmpi.so.40')
    assert (tmp_path / 'asked').read_text() == f'{path}\n'


def test_a_program_that_has_changed_is_looked_at_again(ldd: Path, tmp_path: Path) -> None:
    path = program(tmp_path / 'program', 'libmpi.so.40')
    looking = Looking(ldd)
    description = {**EMPTY, 'executable': './program'}
    looking.programs.look(looking.programs.program(description, str(tmp_path)), lambda: None)
    looking.work()
    program(path, 'libmpich.so.12')
    now = looking.programs.program(description, str(tmp_path))
    assert looking.programs.look(now, lambda: None)
    looking.work()
    found = looking.programs.linked(now)
    assert found is not None
    assert found.kind == MPICH


@pytest.mark.parametrize('fields', [
    {'executable': '/no/such/program'}, {'executable': '$HOME/program'}, {'executable': 'no-such-program'},
    {'executable': 'sh', 'pre_exec': ['module load x']}, {'executable': 'sh', 'named_env': 'x'},
    {'executable': 'sh', 'container': {'image': 'x'}},
    {'executable': 'sh', 'environment': {'PATH': '/elsewhere'}}, {'executable': 'a\0b/c'},
    {'executable': '/bin/sh', 'environment': {'LD_LIBRARY_PATH': '$MINE/lib'}},
    {'executable': 'python3', 'arguments': ['-c', 'import mpi4py']}, {'executable': 'python3'}])
def test_programs_that_are_not_known_before(ldd: Path, fields: dict[str, Any]) -> None:
    looking = Looking(ldd)
    found = looking.programs.program({**EMPTY, **fields}, '/sandbox')
    assert found is None
    assert not looking.programs.look(found, lambda: None)
    assert looking.programs.linked(found) is None


def test_a_script_that_is_gone_when_it_is_looked_at(ldd: Path, tmp_path: Path) -> None:
    program(ldd / 'python3', 'exit 1')
    script = tmp_path / 'script.py'
    script.write_text('import mpi4py\n')
    looking, seen = Looking(ldd), []
    known = looking.programs.program({**EMPTY, 'executable': 'python3', 'arguments': ['script.py']}, str(tmp_path))
    assert looking.programs.look(known, lambda: seen.append(1))
    script.unlink()
    looking.work()
    assert (seen, looking.programs.linked(known)) == ([1], None)


@pytest.mark.parametrize(('name', 'own', 'other'), [
    ('MPIEXEC, Hydra', MPICH, OPEN_MPI), ('MPIEXEC, Intel MPI', MPICH, OPEN_MPI), ('MPIRUN_RSH', MPICH, OPEN_MPI),
    ('MPIRUN, Open MPI', OPEN_MPI, MPICH), ('MPIRUN, Spectrum MPI', OPEN_MPI, MPICH),
    ('MPIRUN_CCMRUN', OPEN_MPI, MPICH)])
def test_a_launcher_of_another_mpi_is_not_taken(name: str, own: str, other: str) -> None:
    method, job = METHODS[name], on(0, 0)
    fits, wrong = (replace(job, linked=Linked('/a/program', kind, 'libx.so')) for kind in (own, other))
    alone = replace(on(0), mpi=True, linked=wrong.linked)
    for each in (fits, job, alone, replace(wrong, mpi=False)):
        assert choose(each, Methods((method,))) is method
    assert choose(wrong, Methods((method, METHODS['SRUN']))) is METHODS['SRUN']
    with pytest.raises(LaunchRefused) as caught:
        choose(wrong, Methods((method,)))
    assert (f'{method.NAME}: {method.program} is a launcher of {own}, and /a/program uses {other} (libx.so): each rank '
            f'would run as a separate program. Build the program with {own}, or') in str(caught.value)


def test_another_launcher_of_the_method_is_taken(tmp_path: Path) -> None:
    """Wherever it is on PATH, and only if the first one of each method does not fit."""
    for place, text in (('a', 'mpirun (Open MPI) 5.0.3'), ('b', 'nothing'), ('c', 'mpirun (Open MPI) 4.1.4'),
                        ('d', 'HYDRA build details:\\n Version: 4.0.2')):
        (tmp_path / place).mkdir()
        path = tmp_path / place / ('mpiexec.openmpi' if place == 'c' else 'mpiexec')
        path.write_text(f"#!/bin/sh\nprintf '{text}\\n'\n")
        path.chmod(0o755)
    (tmp_path / 'a' / 'mpiexec.hydra').symlink_to(tmp_path / 'a' / 'mpiexec')
    system = LaunchSystem({'PATH': ':'.join(str(tmp_path / place) for place in 'abcd')})
    first = Mpiexec.detect(system, SETTING)
    other, = first.others
    assert [each.program.path for each in (first, other)] == [f'{tmp_path}/a/mpiexec', f'{tmp_path}/d/mpiexec']
    assert (other.mpi, other.rank_variables[0], other.NAME) == (MPICH, 'PMI_RANK', 'MPIEXEC')
    assert first.label != other.label
    of_mpich = replace(on(0, 0), linked=Linked('/a/program', MPICH, 'libx.so'))
    assert choose(of_mpich, Methods((first,))) is other
    assert choose(of_mpich, Methods((first, METHODS['SRUN']))) is METHODS['SRUN']
    assert choose(replace(of_mpich, linked=None), Methods((first,))) is first
    assert choose(replace(of_mpich, linked=Linked('/a/program', OPEN_MPI, 'libx.so')), Methods((first,))) is first


@pytest.mark.parametrize('name', ['SRUN', 'MPIEXEC, PALS', 'APRUN'])
def test_launchers_for_several_kinds(name: str) -> None:
    for kind in (OPEN_MPI, MPICH):
        job = replace(on(0, 0), linked=Linked('/a/program', kind, 'libx.so'))
        assert choose(job, Methods((METHODS[name],))) is METHODS[name]

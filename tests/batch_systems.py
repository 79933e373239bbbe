"""Batch systems that are not there: programs on PATH that answer as those of PBS Pro, Torque, LSF, Flux, Cobalt,
LoadLeveler and HTCondor, and run the jobs on this machine. `batch_stand_ins/stand_ins` has the programs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clusters import SYSTEM_PATH, Cluster, own_directory

SOURCE = Path(__file__).parent / 'batch_stand_ins'
PROGRAMS = {
    'pbspro': ['qsub', 'qstat', 'qdel', 'pbsnodes'],
    'torque': ['qsub', 'qstat', 'qdel', 'pbsnodes', 'checkjob'],
    'lsf': ['bsub', 'bjobs', 'bkill', 'bqueues', 'lsid', 'hostname'],
    'flux': ['flux'],
    'cobalt': ['qsub', 'qstat', 'qdel', 'nodelist', 'partlist'],
    'loadl': ['llsubmit', 'llq', 'llcancel'],
    'condor': ['condor_submit', 'condor_q', 'condor_rm', 'condor_history', 'condor_vacate', 'condor_version']}


class BatchSystem(Cluster):
    """One of them, with no jobs yet."""

    def __init__(self, directory: Path, system: str) -> None:
        super().__init__(directory, {'PATH': f'{directory}/bin:{SYSTEM_PATH}', 'RP_STAND_IN': str(directory)})
        self.system = system
        (directory / 'bin').mkdir()
        for name in PROGRAMS[system]:
            path = directory / 'bin' / name
            path.write_text(f'#!/bin/sh\nexport RP_STAND_IN={directory}\n'
                            f'exec {sys.executable} -E -s {SOURCE}/stand_ins/main.py {system} {name} "$@"\n')
            path.chmod(0o755)

    def hold(self) -> None:
        """Keep jobs in the queue from now on."""
        (self.directory / 'hold').touch()

    def release(self) -> None:
        """Let jobs start."""
        (self.directory / 'hold').unlink()

    def stop_queue(self, name: str) -> None:
        """Have a queue take jobs, and start none."""
        (self.directory / f'stopped.{name}').touch()

    def down(self) -> None:
        """Let nothing reach the batch system from now on."""
        (self.directory / 'down').touch()

    def up(self) -> None:
        """Let it be reached again."""
        (self.directory / 'down').unlink()

    def jobs(self) -> list[dict[str, Any]]:
        """What is known of each job, in the order of their submission."""
        return [json.loads(path.read_text()) for path in sorted(self.directory.glob('*.job'))]

    def script(self, number: int) -> str:
        """The script of a job as it was submitted."""
        return (self.directory / f'{number}.script').read_text()


@contextmanager
def batch_system(system: str) -> Iterator[BatchSystem]:
    """The batch system of that name, which ends with all of its jobs."""
    with own_directory(f'{system}.') as directory:
        found = BatchSystem(directory, system)
        try:
            yield found
        finally:
            found.stop()

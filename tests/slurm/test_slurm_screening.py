"""The example of a virtual screening, with a worker that spans nodes of a real Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from batch_pilots import platform
from slurm_cluster import SlurmCluster

from rp_profiling.check import check_session
from rp_profiling.read.calls import read_calls
from rp_profiling.read.session import read_trace

PROGRAM = Path(__file__).parents[2] / 'examples/screening/screening.py'
CORES = 15   # with that of the master, all of two nodes


@pytest.mark.long
def test_molecules_are_screened_on_two_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    if 'CI' not in os.environ:   # there it is installed
        pytest.importorskip('rdkit', reason='examples/screening needs RDKit')
    environ = os.environ | slurm.environ | platform(
        tmp_path, 'slurm://localhost/', 'SLURM', launch_methods={'order': ['SRUN'], 'SRUN': {}})
    done = subprocess.run([sys.executable, PROGRAM, '--molecules', '40', '--cores', str(CORES), '--resource',
                           'test.machine', '--check'], cwd=tmp_path, env=environ, check=False, capture_output=True,
                          text=True, timeout=150)
    assert 'a plain loop gives the same' in done.stdout, done.stdout + done.stderr
    (session,) = tmp_path.glob('rp.session.*')
    calls = read_calls(read_trace(session, []))
    assert len(calls) == 40
    assert {rank.rank for rank in calls.ranks} == set(range(CORES))
    findings = check_session(session)
    assert not findings, str(findings)

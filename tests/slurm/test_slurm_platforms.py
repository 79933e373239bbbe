"""What `rp platforms check` says of a real Slurm, and pilots with backup nodes on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from batch_pilots import Managers, platform, use
from slurm_cluster import SlurmCluster

import radical.pilot as rp
from rp_client.cli.platforms import platforms

SICK_NODES = """#!/bin/sh
echo "ssh: no route to host" >&2
exit 255
"""


@pytest.fixture
def define(slurm: SlurmCluster, base: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this Slurm the platform `test.machine`."""
    def defined(**fields: Any) -> None:
        use(slurm.environ | platform(base, 'slurm://localhost/', 'SLURM', **fields), monkeypatch)

    return defined


def test_a_definition_that_is_true(define: Any, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    define(launch_methods={'order': ['SRUN'], 'SRUN': {}}, mem_per_node=16000)
    assert platforms(['check', 'test.machine']) == 0
    found = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert 'debug is there' in found['queue']
    assert found['workdir'].split()[2] == f'{base},'
    assert 'SRUN: ' in found['launch']
    assert {line.split()[0] for line in found.values()} == {'ok'}


def test_a_queue_that_is_not_there(define: Any, capsys: pytest.CaptureFixture[str]) -> None:
    define(default_queue='nowhere')
    assert platforms(['check', 'test.machine']) == 1
    assert 'bad   queue       default_queue nowhere is not there' in capsys.readouterr().out


def test_sick_backup_nodes_are_left_out(define: Any, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of the nodes lead nowhere, so that all but the own one are sick."""
    program = base / 'bin' / 'ssh'
    program.parent.mkdir()
    program.write_text(SICK_NODES)
    program.chmod(0o755)
    monkeypatch.setenv('PATH', str(program.parent), prepend=':')
    define()
    with rp.Session(cfg={'base': str(base)}) as session:
        managers = Managers(session)
        pilot = managers.active(cores=0, nodes=1, backup_nodes=1)
        assert pilot.nodelist is not None
        assert len(pilot.nodelist.nodes) == 1
        managers.pmgr.cancel_pilots(pilot.uid)
        said = managers.failed(managers.submitted(cores=0, nodes=2, backup_nodes=1))
        assert 'nodes=2 of the pilot description is more than the 1 that job' in said
        assert 'out of order are n' in said

"""Whole pilots whose tasks are launched by Flux, Dragon and PRRTE; programs on PATH answer as these do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import radical.pilot as rp

TESTS = Path(__file__).parents[2] / 'packages' / 'rp-agent' / 'tests'

PRTE = '''
echo "prterun-host-$$@0;tcp4://127.0.0.1:4242"
echo "DVM ready"
trap 'exit 1' TERM
while :; do sleep 0.05; done
'''

PRUN = '''
case "$1" in (--version) echo 'prun (PRRTE) 3.0.2'; exit 0 ;; esac
ranks=$4; pids=; rank=0; code=0
while :; do case "$1" in (/bin/sh | */rp-rank) break ;; esac; shift; done
while test "$rank" -lt "$ranks"; do PMIX_RANK=$rank "$@" & pids="$pids $!"; rank=$((rank + 1)); done
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
'''


@pytest.fixture
def programs(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs on PATH, and a platform that launches with PRTE."""
    for name, text in (('prte', PRTE), ('prun', PRUN)):
        path = base / 'bin' / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\n{text}')
        path.chmod(0o755)
    configs = base / '.radical' / 'pilot' / 'configs'
    configs.mkdir(parents=True)
    (configs / 'resource_mine.json').write_text('''{"prte": {
        "resource_manager": "DEBUG", "cores_per_node": 4, "default_schema": "local",
        "schemas": {"local": {"job_manager_endpoint": "fork://localhost/", "filesystem_endpoint": "file://localhost/"}},
        "launch_methods": {"order": ["PRTE"], "PRTE": {"dvm_count": 2}}}}''')
    stand_ins = [str(TESTS / f'{name}_stand_in') for name in ('flux', 'dragon')]
    monkeypatch.setenv('PATH', os.pathsep.join([str(base / 'bin'), *stand_ins, os.environ['PATH']]))
    monkeypatch.setenv('STAND_IN_PYTHONPATH', os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(base))


@pytest.mark.usefixtures('programs')
@pytest.mark.parametrize(('resource', 'size', 'mpi'), [
    ('debug.flux', {'cores': 2}, True), ('local.dragon', {'cores': 2}, False), ('mine.prte', {'nodes': 2}, True)])
def test_tasks(base: Path, resource: str, size: dict[str, int], mpi: bool) -> None:
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(rp.PilotDescription(
            {'resource': resource, 'runtime': 10, 'sandbox': str(base), **size}))
        tmgr.add_pilots(pilot)
        program: dict[str, Any] = {'executable': '/bin/sh', 'arguments': ['-c', 'echo $RP_RANK/$RP_RANKS']}
        tasks = tmgr.submit_tasks([rp.TaskDescription({**program, 'ranks': 2, 'use_mpi': mpi}) for _ in range(6)])
        fails = tmgr.submit_tasks(rp.TaskDescription({'executable': 'false', 'ranks': 2, 'use_mpi': mpi}))
        nice = tmgr.submit_tasks(rp.TaskDescription({'executable': 'nice', 'ranks': 2, 'use_mpi': mpi, 'nice': 19}))
        tmgr.wait_tasks(timeout=50)
        assert [(task.state, task.exception_detail) for task in tasks] == [(rp.DONE, None)] * 6
        assert all(sorted(task.stdout.split()) == ['0/2', '1/2'] for task in tasks)
        assert (fails.state, fails.exit_code) == (rp.FAILED, 1)
        assert (nice.state, nice.stdout) == (rp.DONE, '19\n19\n')
        if resource == 'mine.prte':
            machines = {(task.slots or [])[0]['node_index'] for task in tasks}
            assert machines == {0, 1}
    assert pilot.state == rp.CANCELED


@pytest.mark.usefixtures('programs')
@pytest.mark.parametrize(('resource', 'said'), [
    ('debug.flux', 'flux-broker: bootstrap failed'), ('local.dragon', 'no active job allocations were found'),
    ('mine.prte', 'no such fabric')])
def test_instances_that_cannot_be_started(base: Path, resource: str, said: str,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks and pilot fail, and say what the launcher has said."""
    monkeypatch.setenv('FLUX_STAND_IN_FAILS', str(base / 'never'))
    monkeypatch.setenv('DRAGON_STAND_IN_FAILS', 'yes')
    (base / 'bin' / 'prte').write_text('#!/bin/sh\necho no such fabric\nexit 1\n')
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(rp.PilotDescription(
            {'resource': resource, 'runtime': 10, 'sandbox': str(base), 'nodes': 2 if resource == 'mine.prte' else 1}))
        tmgr.add_pilots(pilot)
        tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': 'true', 'use_mpi': resource != 'local.dragon'})
                                   for _ in range(2)])
        tmgr.wait_tasks(timeout=50)
        pilot.wait(rp.FAILED, timeout=30)
        assert [task.state for task in tasks] == [rp.FAILED] * 2
        assert all(said in str(task.exception_detail) for task in tasks), [task.exception_detail for task in tasks]
        assert pilot.state == rp.FAILED
        assert said in str(pilot.exception_detail)
        assert 'has lost its last node' in str(pilot.exception_detail)
        assert 'Traceback' not in Path(urlsplit(pilot.pilot_sandbox).path, 'agent_0.log').read_text()

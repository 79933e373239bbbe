"""Sessions on platforms that ask for an executor or scheduling policy other than the default one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description

import radical.pilot as rp
from rp_api import states
from rp_profiling.read.profile import read_profile


@pytest.fixture
def on(session: rp.Session, base: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Starts a pilot on a platform with these settings."""
    def start(cores: int = 4, pilot: Mapping[str, Any] | None = None, **settings: Any) -> Run:
        directory = base / '.radical' / 'pilot' / 'configs'
        directory.mkdir(parents=True)
        (directory / 'resource_local.json').write_text(json.dumps({'exact': settings}))
        monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(base))
        pmgr, tmgr = rp.PilotManager(session=session), rp.TaskManager(session=session)
        started = pmgr.submit_pilots(pilot_description(base, cores=cores, **(pilot or {})))
        tmgr.add_pilots(started)
        return Run(session, pmgr, started, tmgr)

    return start


def final(run: Run, tasks: list[rp.Task]) -> list[str]:
    run.tmgr.wait_tasks([task.uid for task in tasks], timeout=40)
    return [task.state for task in tasks]


@pytest.mark.parametrize('spawner', ['POPEN', 'SHELL'])
def test_ranks_are_as_nice_as_described(on: Callable[..., Run], spawner: str) -> None:
    run = on(agent_spawner=spawner)
    tasks = run.tmgr.submit_tasks([rp.TaskDescription({'executable': 'nice', 'use_mpi': False, **more}) for more in (
        {'nice': 18}, {'nice': '19', 'ranks': 2, 'pre_exec': ['nice']}, {})])
    assert final(run, tasks) == [rp.DONE] * 3
    assert [task.stdout.split() for task in tasks[:2]] == [['18'], ['19'] * 4]
    assert int(tasks[2].stdout) < 18


def test_shell(on: Callable[..., Run]) -> None:
    run = on(agent_spawner='SHELL')
    descriptions: list[dict[str, Any]] = [
        {'executable': 'echo', 'arguments': ["it's", '$RP_TASK_ID', '"quoted"'], 'uid': 'plain'},
        {'executable': 'echo', 'arguments': ['$A'], 'pre_exec': ['export A=1'], 'uid': 'script'},
        {'executable': '/bin/sh', 'arguments': ['-c', 'echo lost >&2; exit 3'], 'uid': 'fails'},
        {'executable': 'sleep', 'arguments': ['1000'], 'timeout': 0.1, 'uid': 'slow'},
        {'executable': '/bin/sh', 'arguments': ['-c', 'echo \\$PPID'], 'ranks': 2, 'use_mpi': False, 'uid': 'ranks'},
        *({'executable': '/bin/true'} for _ in range(50)),
    ]
    tasks = run.tmgr.submit_tasks([rp.TaskDescription(description) for description in descriptions])
    ended = final(run, tasks)
    plain, script, fails, slow, ranks = tasks[:5]
    assert ended[:5] == [rp.DONE, rp.DONE, rp.FAILED, rp.CANCELED, rp.DONE], [task.exception_detail for task in tasks]
    assert set(ended[5:]) == {rp.DONE}
    assert (plain.stdout, script.stdout) == ("it's plain \"quoted\"\n", '1\n')
    assert (fails.exit_code, fails.stderr, fails.exception_detail) == (3, 'lost\n', 'exit code: 3')
    assert slow.exception_detail == 'timeout: the task ran longer than 0.1 s'
    first, second = ranks.stdout.split()
    assert first == second
    assert os.readlink(f'/proc/{first}/exe') == os.path.realpath('/bin/sh')


def test_simulated(on: Callable[..., Run]) -> None:
    """A thousand tasks that sleep side by side, on cores that do not exist, take hardly longer than one of them."""
    run = on(cores=1000, agent_spawner='SIMULATED', agent_config={'spawner': {'launch_model': {'seconds': 0.5}}})
    assert run.pilot.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE
    started = time.monotonic()
    tasks = run.tmgr.submit_tasks(
        [rp.TaskDescription({'executable': 'sleep', 'arguments': ['1.5'], 'timeout': 3600.0})] * 1000)
    failing = run.tmgr.submit_tasks(rp.TaskDescription({'executable': 'x', 'metadata': {'exit_code': 7}}))
    endless = run.tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['infinity']}))
    assert set(final(run, tasks)) == {rp.DONE}
    assert time.monotonic() - started >= 2.0
    final(run, [failing])
    assert (failing.state, failing.exit_code, failing.exception_detail) == (rp.FAILED, 7, 'exit code: 7')
    endless.cancel()
    assert final(run, [endless]) == [rp.CANCELED]
    run.session.close()
    sandbox = Path(run.pilot.pilot_sandbox)
    rows = [row for row in read_profile(sandbox / 'agent_executing.0000.prof') if row.event == 'advance']
    executing = [row.state for row in rows if row.uid.startswith('task.')]
    assert executing.count(states.AGENT_EXECUTING) == len(tasks) + 2
    assert [path for path in sandbox.iterdir() if path.is_dir()] == []


def test_an_unknown_spawner_fails_the_pilot_with_the_reason(on: Callable[..., Run]) -> None:
    run = on(agent_spawner='NOPE')
    assert run.pilot.wait(timeout=30) == rp.FAILED
    said = "agent_spawner 'NOPE' is unknown, installed are DRAGON, FLUX, NOOP, POPEN, SHELL, SIMULATED"
    assert said in str(run.pilot.stderr)


def test_a_file_sets_the_size_of_tasks(on: Callable[..., Run], base: Path) -> None:
    sizes = base / 'sizes.json'
    sizes.write_text('{"cores_per_rank": 3}')
    run = on(agent_scheduler='CONTINUOUS_RECONFIG', pilot={'reconfig_src': str(sizes)})
    task, = run.tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true'})])
    assert final(run, [task]) == [rp.DONE]
    slot, = task.slots or []
    assert len(slot.cores) == 3

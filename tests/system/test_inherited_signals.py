"""Applications that were started with signals ignored or blocked, as by `trap '' CHLD`, or that do so themselves."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_instance_pilots import programs  # noqa: F401 - a fixture

import radical.pilot as rp
from rp_api.system import signals

APPLICATION = Path(__file__).with_name('signal_application.py')
MASKS = 'SigBlk:\t{:016x}\nSigIgn:\t{:016x}\n'

IN_BACKGROUND = 0b110
"""SIGINT and SIGQUIT, which shells have programs ignore that they start in the background (POSIX, 2.11)."""

INTERNAL = 0b11 << 31
"""Signals 32 and 33 of the C library, which no program can set; its posix_spawn, which Python 3.13 uses, ignores 32."""

LAYOUTS: dict[str, dict[str, Any]] = {
    'process': {'components': {'agent_executing': {'target': 'process'}}},
    'sub-agent': {'agents': {'agent_1': {'components': {'agent_executing': {'count': 1}}}}}}


def outcome(how: str, what: str = 'tasks', **pilot: Any) -> dict[str, Any]:
    """What the application tells."""
    command = [sys.executable, str(APPLICATION), how, what, json.dumps({'cores': 4, **pilot})]
    ran = subprocess.run(['/bin/bash', '-c', "trap '' CHLD TERM INT PIPE; exec \"$@\"", 'bash', *command],
                         capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told['pilot'], told['exception']) == (rp.CANCELED, None), told
    return told['tasks']   # type: ignore[no-any-return]


def check(tasks: dict[str, Any], ignored: int = 0, ranks: int = 1) -> None:
    """Fail unless the tasks have ended as they do in any other application."""
    state, code, masks, reason = tasks['masks']
    masks = re.sub('[0-9a-f]{16}', lambda mask: f'{int(mask[0], 16) & ~INTERNAL:016x}', masks)
    assert [state, code, masks, reason] == [rp.DONE, 0, MASKS.format(0, ignored) * ranks, None], tasks
    state, code, said = tasks['fails'][:3]
    assert (state, code) == (rp.FAILED, 3), tasks
    assert said in ['said\n' * count for count in range(1, ranks + 1)]   # MPI ranks are ended with the first that fails
    state, code, stdout, _ = tasks['is_told_to_end']
    assert (state, code in (-15, 143), stdout) == (rp.FAILED, True, ''), tasks
    assert tasks['writes_to_a_closed_pipe'][:3] == [rp.DONE, 0, 'y\n' * ranks], tasks
    assert tasks['is_late'][0] == rp.CANCELED, tasks
    assert 'timeout' in tasks['is_late'][3], tasks


PROGRAMS = [('rp_agent.cli', 'main'), ('rp_agent.nodes.sub_agent', 'main'), ('rp_agent.bootstrap.stage_1', 'main'),
            ('rp_api.coordination.hub.main', 'main'), ('rp_api.coordination.service.main', 'main'),
            ('rp_client.launcher.batch.process', 'main'), ('rp_client.cli.program', 'main'),
            ('rp_raptor.cli', 'master'), ('rp_raptor.worker.manager', 'main'), ('rp_raptor.rank.main', 'main')]


class Begun(Exception):
    """A program has set its signals."""


@pytest.mark.parametrize(('module', 'function'), PROGRAMS)
def test_programs_begin_with_their_signals(module: str, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def set_defaults(**_: object) -> None:
        raise Begun

    monkeypatch.setattr(signals, 'set_defaults', set_defaults)
    with pytest.raises(Begun):
        getattr(importlib.import_module(module), function)()


@pytest.fixture
def settings(base: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Changes settings of the local machine."""
    def change(**fields: Any) -> None:
        directory = base / '.radical' / 'pilot' / 'configs'
        directory.mkdir(parents=True)
        (directory / 'resource_local.json').write_text(json.dumps({'exact': fields}))
        monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(base))

    return change


@pytest.mark.parametrize('how', ['inherit', 'ignore', 'block'])
@pytest.mark.parametrize('spawner', ['POPEN', 'SHELL'])
def test_tasks(settings: Callable[..., None], spawner: str, how: str) -> None:
    settings(agent_spawner=spawner)
    check(outcome(how))


@pytest.mark.usefixtures('base')
def test_tasks_with_scripts() -> None:
    check(outcome('block', tasks={'pre_exec': ['true']}), ignored=IN_BACKGROUND)


@pytest.mark.usefixtures('base')
@pytest.mark.parametrize('layout', LAYOUTS)
def test_tasks_of_sub_agents(layout: str) -> None:
    check(outcome('block', _config=LAYOUTS[layout]))


@pytest.mark.usefixtures('base')
def test_tasks_of_partitions() -> None:
    check(outcome('block', partitions=2))


@pytest.mark.usefixtures('programs')
@pytest.mark.parametrize(('resource', 'size', 'mpi', 'ignored'), [
    ('debug.flux', {'cores': 2}, True, IN_BACKGROUND), ('local.dragon', {'cores': 2}, False, IN_BACKGROUND),
    ('mine.prte', {'cores': 0, 'nodes': 2}, True, 0)])
def test_tasks_of_instances(resource: str, size: dict[str, Any], mpi: bool, ignored: int) -> None:
    check(outcome('block', resource=resource, **size, tasks={'ranks': 2, 'use_mpi': mpi}), ignored, 2)


@pytest.mark.usefixtures('base')
@pytest.mark.parametrize('worker', ['DefaultWorker', 'MPIWorker'])
def test_calls(worker: str) -> None:
    """Of RAPTOR: what ranks start ends as it should, and is told so."""
    calls = outcome('block', worker)
    for name in ('shell', 'program'):
        assert calls[name][:3] == [rp.FAILED, 3, MASKS.format(0, 0)], calls
    assert calls['python'][:3] == [rp.DONE, 0, '3\n'], calls

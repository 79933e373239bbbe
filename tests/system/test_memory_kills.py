"""Programs that the kernel kills because the control group of their pilot has no memory left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description, traces_in_order

import radical.pilot as rp
from rp_agent.executor.memory_failures import FRESH

LIMIT = 400 << 20
"""Bytes: more than an agent needs."""


def _group() -> Path:
    """The control group (version 1) of this process that counts memory."""
    for line in Path('/proc/self/cgroup').read_text().splitlines():
        _, controllers, path = line.split(':', 2)
        if 'memory' in controllers.split(','):
            return Path(f'/sys/fs/cgroup/memory{path}')
    pytest.skip('this host has no control groups of version 1 that count memory')


@pytest.fixture
def limited(base: Path) -> Iterator[Run]:
    """An active pilot in a control group with little memory."""
    ours = _group()
    theirs = ours / f'rp-tests-{os.getpid()}'
    try:
        theirs.mkdir()
    except OSError as error:
        pytest.skip(f'no control group can be made here: {error}')
    for name in ('limit_in_bytes', 'memsw.limit_in_bytes'):   # the second one includes swap space
        if (theirs / f'memory.{name}').exists():
            (theirs / f'memory.{name}').write_text(str(LIMIT))
    try:
        with rp.Session(cfg={'base': str(base)}) as session:
            pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
            (theirs / 'cgroup.procs').write_text(str(os.getpid()))   # the agent inherits it
            try:
                pilot = pmgr.submit_pilots(pilot_description(base))
                assert pilot.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE
            finally:
                (ours / 'cgroup.procs').write_text(str(os.getpid()))
            tmgr.add_pilots(pilot)
            yield Run(session, pmgr, pilot, tmgr)
        traces_in_order(session.path)
    finally:
        theirs.rmdir()


@pytest.mark.parametrize('way', [{}, {'pre_exec': ['true']}, {'ranks': 2, 'use_mpi': False}],
                         ids=['direct', 'script', 'ranks'])
def test_killed_program(limited: Run, way: dict[str, Any]) -> None:
    task = limited.one(executable='/usr/bin/python3', arguments=['-c', f'bytearray({4 * LIMIT})'], retries=1,
                       retry_on=['memory'], retry_delay=0.01, **way)
    assert (task.state, task.attempts) == (rp.FAILED, 2)
    with pytest.raises(rp.TaskMemoryError, match='the out-of-memory killer has killed it'):
        task.result()
    assert task.history[0]['kind'] == 'memory'
    time.sleep(FRESH)   # both ranks were killed
    other = limited.one(executable='/bin/sh', arguments=['-c', r'kill -9 \$\$'])
    assert other.error is not None
    assert other.error.kind == 'signal'

"""What happens to tasks when the agent dies under load, is short of something, or has a clock that steps."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description, processes_with, traces_in_order, wait_until

import radical.pilot as rp
from rp_profiling.read.profile import read_profile

pytestmark = pytest.mark.fault

HOUR = 3600
PIDFD = 'anon_inode:[pidfd]'
CLOCK = Path(__file__).parents[2] / 'packages/rp-agent/tests/clock.c'


def started(session: rp.Session, base: Path, cores: int) -> Run:
    """A pilot of so many (faked) cores, and a task manager that uses it."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, cores=cores))
    tmgr.add_pilots(pilot)
    assert pilot.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE, (pilot.exception, pilot.stderr)
    return Run(session, pmgr, pilot, tmgr)


@pytest.fixture
def wide(session: rp.Session, base: Path) -> Run:
    """A pilot on which 200 tasks can run at a time."""
    return started(session, base, 200)


def sandbox(run: Run) -> Path:
    return Path(run.pilot.pilot_sandbox.removeprefix('file://localhost'))


def agent_pid(run: Run) -> int:
    agents = [pid for pid, command in processes_with(run.pilot.pilot_sandbox).items() if 'rp_agent.cli' in command]
    assert len(agents) == 1, agents
    return agents[0]


def opened_by(pid: int) -> list[str]:
    """What the descriptors of a process lead to."""
    found = []
    for link in Path(f'/proc/{pid}/fd').iterdir():
        with suppress(FileNotFoundError):   # it has been closed
            found.append(os.readlink(link))
    return found


def sleepers(run: Run) -> int:
    """How many processes of tasks there are."""
    return len(processes_with(f'RP_PILOT_SANDBOX={sandbox(run)}'))


def submit(run: Run, count: int, **description: Any) -> list[rp.Task]:
    return run.tmgr.submit_tasks([rp.TaskDescription(description) for _ in range(count)])


def submit_many(run: Run, count: int) -> list[rp.Task]:
    """Tasks that do not end; when this returns, 200 of them run and the others wait in the agent."""
    tasks = submit(run, count, executable='sleep', arguments=['1000'])
    wait_until(lambda: sleepers(run) >= 200, 30, 'start of 200 tasks')
    return tasks


@pytest.mark.long
def test_agent_killed_with_ten_thousand_tasks(wide: Run) -> None:
    """200 run, the others wait: pilot and tasks fail within bounds, with the reason, and no process is left."""
    tasks = submit_many(wide, 10_000)
    os.kill(agent_pid(wide), signal.SIGKILL)
    assert wide.pilot.wait(timeout=30) == rp.FAILED
    wait_until(lambda: not sleepers(wide), 30, 'end of the processes of tasks')
    wide.tmgr.wait_tasks(timeout=30)
    assert 'killed by signal 9 (SIGKILL)' in str(wide.pilot.exception)
    assert {task.state for task in tasks} == {rp.FAILED}
    for task in tasks:
        assert wide.pilot.uid in str(task.exception)
        assert 'SIGKILL' in str(task.exception)


@pytest.mark.parametrize('count', [200, 2000])
def test_agent_ends_in_order_under_load(wide: Run, count: int) -> None:
    """SIGTERM, as batch systems send it: all that runs fails with the pilot, all that waits goes back."""
    tasks = submit_many(wide, count)
    os.kill(agent_pid(wide), signal.SIGTERM)
    assert wide.pilot.wait(timeout=30) == rp.CANCELED
    wait_until(lambda: sum(task.state == rp.FAILED for task in tasks) == 200, 30, 'end of the tasks that ran')
    assert {task.error and task.error.kind for task in tasks if task.state == rp.FAILED} == {'pilot'}
    waiting = [task for task in tasks if task.state not in rp.FINAL]
    wait_until(lambda: all('another pilot' in str(task.reason) for task in waiting), 30, 'reasons of the others')
    assert len(waiting) == count - 200
    wait_until(lambda: not sleepers(wide), what='end of the processes of tasks')
    assert 'signal' in wide.pilot.log[-1]


@pytest.mark.long
def test_agent_ends_although_its_tasks_do_not_want_to(wide: Run) -> None:
    """200 tasks that ignore SIGTERM are killed when their time is over."""
    command = "trap '' TERM; echo; while :; do sleep 1000; done"
    tasks = submit(wide, 200, executable='/bin/sh', arguments=['-c', command])
    wait_until(lambda: sleepers(wide) >= 400, 30, 'start of 200 tasks, each with a child')
    os.kill(agent_pid(wide), signal.SIGTERM)
    assert wide.pilot.wait(timeout=30) == rp.CANCELED
    wide.tmgr.wait_tasks(timeout=30)
    assert {task.state for task in tasks} == {rp.FAILED}, {(task.state, str(task.exception)) for task in tasks}
    wait_until(lambda: not sleepers(wide), 30, 'end of the processes of tasks')


def test_agent_with_few_descriptors(base: Path) -> None:
    """More tasks are to run at a time than it may have open files: all of them are done, one after the other."""
    with rp.Session(cfg={'base': str(base)}) as session:
        wide = started(session, base, 200)
        agent = agent_pid(wide)
        before = opened_by(agent).count(PIDFD)
        used = max(map(int, os.listdir(f'/proc/{agent}/fd')))
        resource.prlimit(agent, resource.RLIMIT_NOFILE, (used + 24, used + 24))
        tasks = submit(wide, 400, executable='sleep', arguments=['0.05'])
        wide.tmgr.wait_tasks(timeout=40)
        assert {task.state for task in tasks} == {rp.DONE}, {task.exception_detail for task in tasks}
        assert wide.pilot.state == rp.PMGR_ACTIVE
        left = opened_by(agent)
        assert left.count(PIDFD) == before
        assert [path for path in left if '/task.' in path] == []
    traces_in_order(session.path)


def test_tasks_whose_output_is_nowhere(run: Run) -> None:
    """A full device, and a sandbox that is gone when the task ends: data on the tasks, and the pilot goes on."""
    full = run.one(executable='/bin/echo', arguments=['x'], stdout='/dev/full')
    assert (full.state, full.exit_code, full.stdout) == (rp.FAILED, 1, '')
    assert 'No space left on device' in full.stderr
    gone = run.one(executable='/bin/sh', arguments=['-c', 'echo x; rm -r "$RP_TASK_SANDBOX"'])
    assert (gone.state, gone.exit_code, gone.stdout) == (rp.DONE, 0, '')
    assert run.one(executable='/bin/echo', arguments=['x']).stdout == 'x\n'
    assert run.pilot.state == rp.PMGR_ACTIVE


def test_sandbox_that_is_a_file(run: Run) -> None:
    path = sandbox(run) / 'in_the_way'
    path.touch()
    task = run.one(executable='/bin/true', sandbox=str(path))
    assert task.state == rp.FAILED
    assert f'{path}: File exists' in str(task.exception_detail)
    assert run.one(executable='/bin/true').state == rp.DONE


@pytest.fixture
def step(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Steps the wall clock of the processes that are started from now on, by so many seconds."""
    shim, offset = base / 'clock.so', base / 'offset'
    subprocess.run(['cc', '-O1', '-shared', '-fPIC', '-o', shim, CLOCK], check=True)
    offset.write_bytes(bytes(8))
    monkeypatch.setenv('TEST_CLOCK_OFFSET', str(offset))
    monkeypatch.setenv('LD_PRELOAD', str(shim))
    with offset.open('r+b') as file, mmap.mmap(file.fileno(), 8) as memory:
        def add(seconds: int) -> None:
            struct.pack_into('=q', memory, 0, struct.unpack_from('=q', memory)[0] + seconds)

        yield add


@pytest.mark.disorder('the clock is set while everything runs')
def test_clock_of_agent_and_hub_steps(step: Callable[[int], None], base: Path) -> None:
    """Runtime of the pilot, time limits and waits keep to the time that passes; the traces can be read."""
    with rp.Session(cfg={'base': str(base)}) as session:
        run = started(session, base, 8)
        patient = submit(run, 1, executable='/bin/sh', timeout=1000.0, arguments=[
            '-c', 'until test -e ../go; do sleep 0.02; done; date +%s'])[0]
        patient.wait(rp.AGENT_EXECUTING, timeout=30)
        for seconds in (HOUR, -2 * HOUR, 3 * HOUR):
            step(seconds)
            short = run.one(executable='sleep', arguments=['1000'], timeout=0.3)
            assert (short.state, short.exception_detail) == (
                rp.CANCELED, 'timeout: the task ran longer than 0.3 s')
            assert run.one(executable='/bin/true').state == rp.DONE
        (sandbox(run) / 'go').touch()
        assert patient.wait(timeout=30) == rp.DONE, patient.exception_detail
        assert int(patient.stdout) - time.time() > HOUR, 'the clock of the tasks has not been stepped'
        assert run.pilot.state == rp.PMGR_ACTIVE
    profiles = sorted(sandbox(run).glob('*.prof'))
    assert profiles
    rows = {path.name: read_profile(path) for path in profiles}
    assert all(rows.values())
    times = [row.time for row in rows['agent_executing.0000.prof']]
    assert max(times) - min(times) > HOUR

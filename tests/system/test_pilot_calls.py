"""Calls of applications and tasks to a pilot: each gets its own answer, and none waits forever."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mongo_servers
import pytest
from conftest import Run, _nothing_left, _started, hub_pid, traces_in_order, wait_until
from losing import agent_of

import radical.pilot as rp
from rp_api.coordination import sessions
from rp_api.coordination.mongodb import admin

TIMEOUT = 30.0

FROM_A_TASK = """
import threading
import radical.pilot as rp

with rp.PilotEndpoint() as endpoint:
    uids = endpoint.call('submit_tasks', [{'executable': '/bin/echo', 'arguments': ['from', 'a task']}])
    print(endpoint.call('wait_tasks', uids)[0]['stdout'])
    over = threading.Event()
    endpoint.register_rpc_cb('double', lambda number: 2 * number)
    endpoint.register_rpc_cb('over', over.set)
    over.wait()
"""

BY_ITS_PROGRAM = """
uids=$("$RP_CTRL" "$RP_PILOT_SANDBOX" submit_tasks '[{"executable": "sleep", "arguments": ["100"]}]')
"$RP_CTRL" "$RP_PILOT_SANDBOX" cancel_tasks uids="$uids" || exit 1
env -i "$RP_CTRL" "$RP_PILOT_SANDBOX" wait_tasks uids="$uids" | grep -o CANCELED
"$RP_CTRL" "$RP_PILOT_SANDBOX" dance
"""


@pytest.fixture(scope='module')
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A pilot with an endpoint, for all tests that leave it as they found it."""
    base = tmp_path_factory.mktemp('calls')
    with pytest.MonkeyPatch.context() as patch, _nothing_left(base):
        patch.setenv('RADICAL_BASE', str(base))
        patch.chdir(base)
        with rp.Session(cfg={'base': str(base)}) as session:
            yield _started(session, base, enable_ep=True)
        traces_in_order(session.path)


@contextmanager
def waiting(pilot: rp.Pilot) -> Iterator[tuple[Future[Any], str]]:
    """A call that waits for a task, and the task's uid."""
    uid, = pilot.rpc('submit_tasks', [{'executable': 'sleep', 'arguments': ['1000']}], rpc_timeout=TIMEOUT)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(pilot.rpc, 'wait_tasks', uid), uid


def test_concurrent_calls_get_their_own_answers(open_run: Run) -> None:
    def echo(number: int) -> str:
        uids = open_run.pilot.rpc('submit_tasks', [{'executable': '/bin/echo', 'arguments': [str(number)]}])
        task, = open_run.pilot.rpc('wait_tasks', uids, rpc_timeout=TIMEOUT)
        return str(task['stdout'])

    known = open_run.tmgr.list_tasks()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(echo, range(16))) == [f'{number}\n' for number in range(16)]
    assert (open_run.tmgr.list_tasks(), open_run.session.list_task_managers()) == (known, [open_run.tmgr.uid])


def test_deadline(open_run: Run) -> None:
    with waiting(open_run.pilot) as (call, uid):
        with pytest.raises(TimeoutError, match=r'wait_tasks of pilot\.0000 was not answered within 0\.1 s'):
            open_run.pilot.rpc('wait_tasks', uid, rpc_timeout=0.1)
        open_run.pilot.rpc('cancel_tasks', uid)
        assert call.result(TIMEOUT)[0]['state'] == 'CANCELED'
    with pytest.raises(RuntimeError, match="no procedure 'dance': it has cancel_pilots, cancel_tasks, get_tasks"):
        open_run.pilot.rpc('dance')


def test_task_at_the_endpoint(open_run: Run) -> None:
    """It submits tasks, and answers calls of the application; its address alone does not admit anybody."""
    description = {'executable': sys.executable, 'arguments': ['-c', FROM_A_TASK]}
    task = open_run.tmgr.submit_tasks(rp.TaskDescription(description))
    assert str(open_run.pilot.rest_url()).startswith('ipc://')
    assert os.stat(f'{open_run.pilot.pilot_sandbox}/endpoint.json').st_mode & 0o077 == 0
    wait_until(lambda: _is_there(open_run.pilot, 'over'), TIMEOUT, 'the procedures of the task')
    assert open_run.pilot.rpc('double', 21, rpc_addr=task.uid, rpc_timeout=TIMEOUT) == 42
    with pytest.raises(RuntimeError, match='missing 1 required positional argument'):
        open_run.pilot.rpc('double')
    open_run.pilot.rpc('over')
    assert (task.wait(timeout=TIMEOUT), task.stdout) == (rp.DONE, 'from a task\n\n'), task.stderr


def _is_there(pilot: rp.Pilot, name: str) -> bool:
    """Return whether the pilot has a procedure of that name, without calling it."""
    with pytest.raises(RuntimeError, match='no procedure') as error:
        pilot.rpc('no such procedure', rpc_timeout=TIMEOUT)
    return name in str(error.value)


def test_task_with_the_control_program(open_run: Run, tmp_path: Path) -> None:
    (tmp_path / 'script').write_text(BY_ITS_PROGRAM)
    task = open_run.one(executable='/bin/sh', arguments=[str(tmp_path / 'script')])
    assert (task.exit_code, task.stdout) == (1, 'OK\nCANCELED\n'), task.stderr
    assert "radical-pilot-control: dance of the pilot failed: the agent has no procedure 'dance'" in task.stderr


@pytest.mark.fault
@pytest.mark.disorder('the agent is killed')
def test_deaths_during_calls(session: rp.Session, base: Path) -> None:
    """Calls outlive a hub, but not their agent. Callbacks may call as well: the thread that they keep busy is not
    needed."""
    run = _started(session, base, enable_ep=True)
    answers: list[Any] = []

    def ask(task: rp.Task, state: str) -> None:
        if state == rp.DONE:
            answers.append(run.pilot.rpc('get_tasks', [], rpc_timeout=TIMEOUT))

    run.tmgr.register_callback(ask)
    run.one(executable='/bin/true')
    wait_until(lambda: answers == [[]])
    with waiting(run.pilot) as (call, uid):
        pid = hub_pid(session)
        os.kill(pid, signal.SIGKILL)
        run.pilot.rpc('cancel_tasks', uid, rpc_timeout=TIMEOUT)
        assert call.result(TIMEOUT)[0]['uid'] == uid
    assert hub_pid(session) != pid
    with waiting(run.pilot) as (call, _):
        os.kill(agent_of(run.pilot), signal.SIGKILL)
        with pytest.raises(RuntimeError, match=r'wait_tasks of pilot\.0000 failed: pilot\.0000 is FAILED'):
            call.result(TIMEOUT)
    with pytest.raises(RuntimeError, match=r'pilot\.0000 is FAILED'):
        run.pilot.rpc('get_tasks')


@pytest.mark.fault
@pytest.mark.parametrize('server', ['hub', 'nx-27017'])
def test_next_application(server: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not see the calls of the one before, and calls the same pilot."""
    if server == 'hub':
        _leave_and_attach(base)
    else:
        (base / 'server').mkdir()
        with mongo_servers.running(server, base / 'server') as running:
            monkeypatch.setenv('RADICAL_PILOT_DBURL', f'{running.url.rpartition("/")[0]}/calls')
            _leave_and_attach(base)


def _leave_and_attach(base: Path) -> None:
    cfg = {'base': str(base)}
    with rp.Session(cfg=cfg) as first:
        run = _started(first, base, enable_ep=True)
        with waiting(run.pilot) as (call, uid):
            wait_until(lambda: len(_calls(first)) == 1)
            first.close(terminate=False)
            with pytest.raises(RuntimeError, match='is closed'):
                call.result(TIMEOUT)
    with rp.Session(uid=first.uid, cfg=cfg) as second:
        (pilot,), (tmgr,) = second.get_pilot_managers()[0].get_pilots(), second.get_task_managers()
        assert tmgr.list_tasks() == []
        pilot.rpc('cancel_tasks', uid, rpc_timeout=TIMEOUT)
        task, = pilot.rpc('wait_tasks', uid, rpc_timeout=TIMEOUT)
        assert task['state'] == 'CANCELED'
        wait_until(lambda: not _calls(second), TIMEOUT, 'the end of the first call')
        second._owner.engine.settle(TIMEOUT)
        assert _task_counts(second) == {}


def _task_counts(session: rp.Session) -> dict[str, int]:
    """Return the number of tasks by state that `rp session list` shows."""
    url = os.environ.get('RADICAL_PILOT_DBURL')
    if not url:
        return sessions.summary(session.path).tasks
    found, = admin.sessions(url)
    return dict(found['tasks'])


def _calls(session: rp.Session) -> dict[str, Any]:
    return dict(session._owner.calls.sent)

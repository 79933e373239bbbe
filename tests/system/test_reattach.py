"""A session goes on without its application, and another application takes it over, whatever coordinates it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import pilot_description, processes_with, wait_until
from leaver import COUNT
from reattaching import (  # noqa: F401
    UIDS,
    application,
    backend,
    collect,
    go,
    kill_process,
    left,
    server,
)

import radical.pilot as rp
from rp_api.errors import CoordinationError

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures('backend')]


# an application that goes


@pytest.mark.parametrize('how', ['tasks', 'running'])
def test_everything_is_collected_by_the_next_application(base: Path, how: str) -> None:
    left(how)
    with rp.Session(uid='session') as session:
        assert session.attached
        (pmgr,), (tmgr,) = session.get_pilot_managers(), session.get_task_managers()
        assert (pmgr.uid, tmgr.uid, pmgr.list_pilots()) == ('pmgr.0000', 'tmgr.0000', ['pilot.0000'])
        assert tmgr.list_pilots() == ['pilot.0000']
        go(base)
        tasks = collect(session)
        (pilot,) = pmgr.get_pilots()
        assert pilot.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE
        assert {task.pilot for task in tasks} == {pilot.uid}
        assert {task.pilot_sandbox for task in tasks} == {pilot.pilot_sandbox}
        assert (pilot.description['cores'], pilot.resources) == (4, {'cpu': 4, 'gpu': 0})


def test_session_is_used_as_before(base: Path) -> None:
    """Uids go on, old and new managers take tasks, pilots can be added."""
    left('running')
    go(base)
    with rp.Session(uid='session') as session:
        old = session.get_task_managers('tmgr.0000')
        task = old.submit_tasks(rp.TaskDescription({'executable': 'echo', 'arguments': ['more']}))
        assert (task.uid, task.wait(timeout=30), task.stdout) == (f'task.{COUNT:06d}', rp.DONE, 'more\n')
        with pytest.raises(ValueError, match=r'task\.000002'):
            old.submit_tasks(rp.TaskDescription({'executable': 'true', 'uid': 'task.000002'}))
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        assert (pmgr.uid, tmgr.uid) == ('pmgr.0001', 'tmgr.0001')
        pilot = pmgr.submit_pilots(pilot_description(base))
        assert pilot.uid == 'pilot.0001'
        tmgr.add_pilots(pilot)
        task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'}))
        assert (task.wait(timeout=30), task.pilot) == (rp.DONE, 'pilot.0001')
        old.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': [100]})).wait(rp.AGENT_EXECUTING)
        session.get_pilot_managers('pmgr.0000').cancel_pilots()
        assert old.get_pilots()[0].state == rp.CANCELED
        assert old.wait_tasks(timeout=30)[-1] == rp.CANCELED


def test_forgotten_tasks_do_not_come_back(base: Path) -> None:
    """Nor do their uids."""
    left('running')
    go(base)
    session = rp.Session(uid='session')
    tmgr = session.get_task_managers('tmgr.0000')
    collect(session)
    tmgr.forget_tasks(UIDS[1:])
    session.close(terminate=False)
    with rp.Session(uid='session') as session:
        tmgr = session.get_task_managers('tmgr.0000')
        (task,) = tmgr.get_tasks()
        assert (task.uid, task.state, task.stdout) == (UIDS[0], rp.DONE, f'{UIDS[0]}\n')
        with pytest.raises(ValueError, match=f"task uid '{UIDS[1]}' is in use already"):
            tmgr.submit_tasks(rp.TaskDescription({'executable': 'true', 'uid': UIDS[1]}))
        task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'}))
        assert (task.uid, task.wait(timeout=30)) == (f'task.{COUNT:06d}', rp.DONE)


def test_application_goes_when_it_has_submitted_a_pilot(base: Path) -> None:
    """Whether its agent was launched or not, there is one now, and only one."""
    left('pilot')
    with rp.Session(uid='session') as session:
        pilot = session.get_pilot_managers('pmgr.0000').get_pilots('pilot.0000')
        assert pilot.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE
        assert len([command for command in processes_with(str(base)).values() if 'rp_agent.cli' in command]) == 1
        tmgr = session.get_task_managers('tmgr.0000')
        tmgr.add_pilots(pilot)
        assert tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'})).wait(timeout=30) == rp.DONE


def test_tasks_that_were_not_bound_are_kept(base: Path) -> None:
    """They wait for a pilot, as before."""
    left('unbound')
    go(base)
    with rp.Session(uid='session') as session:
        tmgr = session.get_task_managers('tmgr.0000')
        assert set(tmgr.wait_tasks(state=rp.TMGR_SCHEDULING, timeout=30)) == {rp.TMGR_SCHEDULING}
        tmgr.add_pilots(session.get_pilot_managers('pmgr.0000').get_pilots())
        collect(session)


def test_files_are_moved_by_the_next_application(base: Path) -> None:
    left('files')
    go(base)
    with rp.Session(uid='session') as session:
        collect(session)
    assert [(base / f'out.{number}').read_text() for number in range(COUNT)] == [str(n) for n in range(COUNT)]


def test_session_that_was_left_on_purpose(base: Path) -> None:
    """Pilots go on for as long as they want to, and several applications can look after them."""
    left('left')
    for _ in range(2):
        session = rp.Session(uid='session')
        assert session.get_task_managers('tmgr.0000').get_tasks(UIDS[0]).state == rp.AGENT_EXECUTING
        waiter = threading.Thread(target=pytest.raises, args=(RuntimeError, session.get_task_managers()[0].wait_tasks))
        waiter.start()
        session.close(terminate=False)
        waiter.join(30)
        assert not waiter.is_alive()
        assert session.closed
    go(base)
    with rp.Session(uid='session') as session:
        collect(session)


def test_work_ends_while_nobody_is_there(base: Path) -> None:
    """The results wait for whoever comes."""
    left('running')
    go(base)
    wait_until(lambda: not [line for line in processes_with(str(base)).values() if 'until' in line], 30)
    with rp.Session(uid='session') as session:
        collect(session)


# what is refused, and what is not attached


def test_session_of_a_living_application_is_refused(base: Path) -> None:
    """With its process id; the session itself does not notice."""
    with application('stay') as process:
        with pytest.raises(CoordinationError, match=str(process.pid)):
            rp.Session(uid='session')
        go(base)
    assert process.returncode == 0


def test_closed_session_is_not_attached(base: Path) -> None:
    with application('stay'):
        go(base)
    with rp.Session(uid='session') as session:
        assert not session.attached
        assert session.get_pilot_managers() == session.get_task_managers() == []


def test_attached_session_ends_as_any_other(base: Path) -> None:
    left('running')
    with rp.Session(uid='session') as session:
        tasks = session.get_task_managers('tmgr.0000').get_tasks()
    assert {task.state for task in tasks} == {rp.CANCELED}
    with rp.Session(uid='session') as session:
        assert not session.attached


# pilots that end meanwhile


def test_agent_dies_while_nobody_is_there(base: Path) -> None:
    left('running')
    kill_process('rp_agent', base)
    with rp.Session(uid='session') as session:
        pilot = session.get_pilot_managers('pmgr.0000').get_pilots('pilot.0000')
        tasks = session.get_task_managers('tmgr.0000').get_tasks()
        assert pilot.wait(timeout=30) == rp.FAILED
        assert 'the agent' in pilot.exception
        assert {task.wait(timeout=30) for task in tasks} == {rp.FAILED}
        assert all(pilot.uid in task.exception for task in tasks)


def test_agent_dies_after_the_attachment(base: Path) -> None:
    """It is not a child of this application, but watched, and what it left running is ended."""
    left('running')
    with rp.Session(uid='session') as session:
        pilot = session.get_pilot_managers('pmgr.0000').get_pilots('pilot.0000')
        kill_process('rp_agent', base)
        assert pilot.wait(timeout=30) == rp.FAILED
        assert {task.wait(timeout=30) for task in session.get_task_managers('tmgr.0000').get_tasks()} == {rp.FAILED}
        wait_until(lambda: not [line for line in processes_with(str(base)).values() if 'until' in line])


# callbacks


def test_callbacks_hear_what_nobody_has_heard_yet(base: Path) -> None:
    """What came between the attachment and the first callback, too; nothing twice, all in order."""
    left('tasks')
    with rp.Session(uid='session') as session:
        tmgr, pmgr = session.get_task_managers('tmgr.0000'), session.get_pilot_managers('pmgr.0000')
        go(base)
        collect(session)
        calls: dict[str, list[str]] = {}
        ended = threading.Event()

        def heard(entity: Any, state: str) -> None:
            calls.setdefault(entity.uid, []).append(state)
            if sum(calls.get(uid, [''])[-1] == rp.DONE for uid in UIDS) == COUNT:
                ended.set()

        pmgr.register_callback(heard)
        tmgr.register_callback(heard)
        tmgr.register_callback(lambda task, state: None)
        assert ended.wait(30)
        for uid in UIDS:
            assert calls[uid][-2:] == [rp.TMGR_STAGING_OUTPUT, rp.DONE]
            assert len(set(calls[uid])) == len(calls[uid])
        more = tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'}))
        more.wait(timeout=30)
        wait_until(lambda: calls.get(more.uid, [''])[-1] == rp.DONE)
        assert len(calls[more.uid]) == 15

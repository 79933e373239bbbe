"""What callbacks are told over several applications of a session: every state, whatever coordinates the session."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import teller
from conftest import pilot_description, processes_with, wait_until
from reattaching import UIDS, application, backend, go, server  # noqa: F401
from teller import COUNT

import radical.pilot as rp
from rp_api import states

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures('backend')]

PILOT = [rp.PMGR_LAUNCHING_PENDING, rp.PMGR_LAUNCHING, rp.PMGR_ACTIVE_PENDING, rp.PMGR_ACTIVE]
FORWARD = [name for name in states.TASK.names if name not in (rp.NEW, *rp.FINAL)]


class Heard:
    """A callback that takes down what it is told: by uid, the states in their order."""

    def __init__(self, *managers: Any) -> None:
        self.states: dict[str, list[str]] = {}
        for manager in managers:
            manager.register_callback(self)

    def __call__(self, entity: Any, state: str) -> None:
        self.states.setdefault(entity.uid, []).append(state)

    def until_final(self, uids: Iterable[str]) -> None:
        """Wait until it was told the ends of these."""
        wait_until(lambda: all(self.states.get(uid, [''])[-1] in rp.FINAL for uid in uids))


def managers(session: rp.Session) -> tuple[rp.TaskManager, rp.PilotManager]:
    return session.get_task_managers('tmgr.0000'), session.get_pilot_managers('pmgr.0000')


def path_of(number: int) -> list[str]:
    """The states that a task of `teller.py` passes through."""
    return [*FORWARD, rp.FAILED if number % 2 else rp.DONE]


def paths() -> dict[str, list[str]]:
    return {uid: path_of(number) for number, uid in enumerate(UIDS)}


def killed(base: Path, how: str) -> dict[str, list[str]]:
    """Have an application that is told things killed; what it was told."""
    with application(how, Path(teller.__file__)) as process:
        process.kill()
    told = Heard()
    path = base / 'told.session'
    for line in path.read_text().splitlines() if path.exists() else ():
        uid, state = line.split()
        told.states.setdefault(uid, []).append(state)
    return told.states


@pytest.mark.parametrize('how', ['before', 'stuck'])
def test_states_of_which_no_callback_was_told_are_told_by_the_next_application(base: Path, how: str) -> None:
    """Although the one that was killed had them all: it had no callback, or one that did not return."""
    assert killed(base, how) == {}
    with rp.Session(uid='session') as session:
        heard = Heard(*managers(session))
        heard.until_final(UIDS)
    assert {uid: heard.states[uid] for uid in UIDS} == paths()
    assert heard.states['pilot.0000'][:4] == PILOT


def test_states_that_come_in_between_are_told_by_the_next_application(base: Path) -> None:
    """What the one that was killed was told last may be told again, but nothing is left out."""
    first = killed(base, 'telling')
    go(base)
    wait_until(lambda: not [line for line in processes_with(str(base)).values() if 'until' in line], 30)
    with rp.Session(uid='session') as session:
        heard = Heard(*managers(session))
        heard.until_final(UIDS)
    for uid, path in paths().items():
        second = heard.states[uid]
        assert second == path[-len(second):]
        assert first[uid] == path[:len(first[uid])]
        assert len(first[uid]) + len(second) >= len(path)


def test_each_state_is_told_to_one_of_the_applications_that_leave(session: rp.Session, base: Path) -> None:
    """One of them has no callback. All of it together is what one application would have been told."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    first = Heard(tmgr, pmgr)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, cores=COUNT)))
    tmgr.submit_tasks([teller.describe(number) for number in range(COUNT)])
    tmgr.wait_tasks(state=rp.AGENT_EXECUTING, timeout=60)
    session.close(terminate=False)
    with rp.Session(uid=session.uid) as second:
        second.close(terminate=False)
    go(base)
    third = rp.Session(uid=session.uid)
    heard = Heard(*managers(third))
    heard.until_final(UIDS)
    third.close(terminate=False)
    with rp.Session(uid=session.uid) as last:
        again = Heard(*managers(last))
        more = last.get_task_managers('tmgr.0000').submit_tasks(rp.TaskDescription({'executable': 'true'}))
        again.until_final([more.uid])
        assert set(again.states) == {more.uid}
    told = {uid: first.states.get(uid, []) + heard.states.get(uid, []) for uid in [*UIDS, 'pilot.0000']}
    assert told.pop('pilot.0000') == PILOT
    assert told == paths()


def test_callbacks_of_single_tasks_are_told_as_well(base: Path) -> None:
    """Each of its own task, and the one for all tasks afterwards of the others."""
    killed(base, 'before')
    with rp.Session(uid='session') as session:
        tmgr, _ = managers(session)
        by_task, by_uid, rest, pilot = Heard(), Heard(), Heard(), Heard()
        tmgr.register_callback(lambda manager, size: None, metric=rp.WAIT_QUEUE_SIZE)
        tmgr.get_tasks(UIDS[0]).register_callback(by_task)
        tmgr.register_callback(by_uid, uid=UIDS[1])
        session.get_pilot_managers('pmgr.0000').get_pilots('pilot.0000').register_callback(pilot)
        tmgr.register_callback(rest)
        rest.until_final(UIDS[2:])
        wait_until(lambda: pilot.states)
    found = by_task.states, by_uid.states, rest.states
    assert found == tuple({uid: paths()[uid] for uid in uids} for uids in (UIDS[:1], UIDS[1:2], UIDS[2:]))
    assert set(pilot.states) == {'pilot.0000'}


def test_raptor_calls_that_end_in_between_are_told(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    first = Heard(tmgr)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, cores=COUNT)))
    tmgr.submit_raptors(rp.TaskDescription({'uid': 'master', 'mode': rp.RAPTOR_MASTER}))
    tmgr.submit_workers(rp.TaskDescription({
        'uid': 'worker', 'mode': rp.RAPTOR_WORKER, 'ranks': 2, 'raptor_id': 'master'}))
    code = f"[__import__('time').sleep(0.02) for _ in iter(lambda: __import__('os').path.exists('{base}/go'), True)]"
    tmgr.submit_tasks([rp.TaskDescription({
        'mode': rp.TASK_EVAL, 'raptor_id': 'master', 'code': f'({code}, 1 // {number % 2})[1]'})
        for number in range(COUNT)])
    tmgr.wait_tasks(UIDS[:1], rp.AGENT_EXECUTING, timeout=60)
    session.close(terminate=False)
    go(base)
    with rp.Session(uid=session.uid) as second:
        heard = Heard(*managers(second))
        heard.until_final(UIDS)
    for number, uid in enumerate(UIDS):
        told = first.states[uid] + heard.states[uid]
        assert told[-1] == (rp.DONE if number % 2 else rp.FAILED)
        assert told == [*FORWARD, told[-1]]

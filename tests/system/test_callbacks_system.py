"""What applications hear of pilots and tasks: each state once, in order, whatever callbacks do."""

from __future__ import annotations

import logging
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description, wait_until

import radical.pilot as rp
from rp_api import states

FORWARD = [name for name in states.TASK.names if name not in (rp.NEW, *rp.FINAL)]
"""The states between the first and the final ones."""

TRUE = rp.TaskDescription({'executable': '/bin/true'})


class Heard:
    """A callback that takes down what it hears: by task or pilot, the states in the order of the calls."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = defaultdict(list)
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, entity: Any, state: str, *data: Any) -> None:
        assert states_of(entity).value(entity.state) >= states_of(entity).value(state)
        self.states[entity.uid].append(state)
        self.calls.append((entity, state, *data))

    def ends(self, *uids: str) -> bool:
        """Whether the last states of these are final."""
        return all(self.states[uid] and self.states[uid][-1] in rp.FINAL for uid in uids)


def states_of(entity: Any) -> states.StateModel:
    return states.PILOT if isinstance(entity, rp.Pilot) else states.TASK


@pytest.fixture
def tmgr(shared: Run) -> rp.TaskManager:
    """The shared task manager, without any callback left from another test."""
    shared.tmgr.unregister_callback(None, metrics=[rp.TASK_STATE, rp.WAIT_QUEUE_SIZE])
    return shared.tmgr


def final(tmgr: rp.TaskManager, *tasks: rp.Task) -> None:
    tmgr.wait_tasks([task.uid for task in tasks], timeout=30)
    assert all(task.state in rp.FINAL for task in tasks)


def test_each_state_of_each_task_once_and_in_order(tmgr: rp.TaskManager) -> None:
    heard = Heard()
    tmgr.register_callback(heard)
    tasks = tmgr.submit_tasks([TRUE] * 500)
    final(tmgr, *tasks)
    uids = [task.uid for task in tasks]
    wait_until(lambda: heard.ends(*uids))
    assert {uid: heard.states[uid] for uid in uids if heard.states[uid] != [*FORWARD, rp.DONE]} == {}
    assert set(heard.states) == set(uids)


def test_callbacks_of_one_task(tmgr: rp.TaskManager, tmp_path: Path) -> None:
    """They hear of that task only, from the moment on at which they are registered."""
    by_task, by_uid = Heard(), Heard()
    command = f'until [ -e {tmp_path}/go ]; do sleep 0.02; done'
    task, other = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', command]}), TRUE])
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    task.register_callback(by_task)
    tmgr.register_callback(by_uid, uid=task.uid, metric=rp.TASK_STATE)
    (tmp_path / 'go').touch()
    final(tmgr, task, other)
    wait_until(lambda: by_uid.ends(task.uid) and by_task.ends(task.uid))
    expected = [*FORWARD, rp.DONE][-len(by_task.states[task.uid]):]
    assert dict(by_task.states) == dict(by_uid.states) == {task.uid: expected}


def test_states_of_pilots(session: rp.Session, base: Path) -> None:
    pmgr, all_pilots, one_pilot = rp.PilotManager(session), Heard(), Heard()
    pmgr.register_callback(all_pilots)
    pilots = pmgr.submit_pilots([pilot_description(base, cores=1) for _ in range(2)])
    pilots[0].register_callback(one_pilot)
    pmgr.wait_pilots(state=rp.PMGR_ACTIVE, timeout=30)
    pmgr.cancel_pilots()
    forward = [name for name in states.PILOT.names if name not in (rp.NEW, *rp.FINAL)]
    uids = [pilot.uid for pilot in pilots]
    wait_until(lambda: all_pilots.ends(*uids) and one_pilot.ends(uids[0]))
    assert dict(all_pilots.states) == {uid: [*forward, rp.CANCELED] for uid in uids}
    assert list(one_pilot.states) == uids[:1]
    heard = one_pilot.states[uids[0]]
    assert heard == [*forward, rp.CANCELED][-len(heard):]
    assert {entity for entity, *_ in one_pilot.calls} == {pilots[0]}


@pytest.mark.parametrize(('values', 'last'), [
    ({'executable': '/bin/false'}, rp.TMGR_STAGING_OUTPUT), ({'executable': '/no/such/file'}, rp.TMGR_STAGING_OUTPUT),
    ({'executable': '/bin/sleep', 'arguments': ['100'], 'timeout': 0.1}, rp.TMGR_STAGING_OUTPUT),
    ({'executable': '/bin/true', 'cores_per_rank': 99}, rp.AGENT_SCHEDULING),
    ({'executable': '/bin/true', 'input_staging': ['/no/such/file']}, rp.TMGR_STAGING_INPUT),
    ({'executable': '/bin/true', 'input_staging': [{'source': 'task:///no', 'action': rp.COPY, 'target': 'x'}]},
     rp.AGENT_STAGING_INPUT)])
def test_states_of_tasks_that_do_not_succeed(tmgr: rp.TaskManager, values: dict[str, Any], last: str) -> None:
    """All that they went through, once and in order, then the final one; nothing is made up in between."""
    heard = Heard()
    tmgr.register_callback(heard)
    task = tmgr.submit_tasks(rp.TaskDescription(values))
    final(tmgr, task)
    assert task.state in (rp.FAILED, rp.CANCELED)
    wait_until(lambda: heard.ends(task.uid))
    assert heard.states[task.uid] == [*FORWARD[:FORWARD.index(last) + 1], task.state]


def test_states_of_a_task_that_is_cancelled_early(session: rp.Session) -> None:
    tmgr, heard = rp.TaskManager(session), Heard()
    tmgr.register_callback(heard)
    task = tmgr.submit_tasks(TRUE)
    task.wait(rp.TMGR_SCHEDULING, timeout=30)
    task.cancel()
    wait_until(lambda: heard.ends(task.uid))
    assert heard.states[task.uid] == [rp.TMGR_SCHEDULING_PENDING, rp.TMGR_SCHEDULING, rp.CANCELED]


def test_results_are_there_when_a_task_is_final(tmgr: rp.TaskManager) -> None:
    seen: dict[str, tuple[Any, ...]] = {}

    def look(task: rp.Task, state: str) -> None:
        if state in rp.FINAL:
            seen[task.uid] = (state, task.state, task.exit_code, task.stdout, bool(task.exception), task.pilot is None,
                              len(task.slots or []))

    tmgr.register_callback(look)
    good, bad = tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', f'echo x; exit {code}']}) for code in (0, 3)])
    wait_until(lambda: len(seen) == 2)
    assert seen == {good.uid: (rp.DONE, rp.DONE, 0, 'x\n', False, False, 1),
                    bad.uid: (rp.FAILED, rp.FAILED, 3, 'x\n', True, False, 1)}


@pytest.mark.parametrize('data', [{'a': 1}, 0, '', []])
def test_data_of_callbacks(tmgr: rp.TaskManager, data: Any) -> None:
    with_data, without = Heard(), Heard()
    tmgr.register_callback(with_data, cb_data=data)
    tmgr.register_callback(without)
    task = tmgr.submit_tasks(TRUE)
    wait_until(lambda: without.ends(task.uid))
    assert {len(call) for call in without.calls} == {2}
    assert {len(call) for call in with_data.calls} == {3}
    assert all(call[2] is data for call in with_data.calls)


def test_data_of_callbacks_of_pilots_and_tasks(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    of_all, of_one, of_task = Heard(), Heard(), Heard()
    pmgr.register_callback(of_all, cb_data='all')
    pilot = pmgr.submit_pilots(pilot_description(base))
    pilot.register_callback(of_one, cb_data='one', metric=rp.PILOT_STATE)
    task = tmgr.submit_tasks(TRUE)
    task.register_callback(of_task, cb_data='task', metric=rp.TASK_STATE)
    tmgr.add_pilots(pilot)
    task.wait(timeout=30)
    pilot.cancel()
    wait_until(lambda: of_all.ends(pilot.uid) and of_one.ends(pilot.uid) and of_task.ends(task.uid))
    for heard, data in ((of_all, 'all'), (of_one, 'one'), (of_task, 'task')):
        assert {call[2] for call in heard.calls} == {data}


@pytest.mark.parametrize('error', [ValueError('of the application'), SystemExit(3), KeyboardInterrupt()])
def test_errors_in_callbacks_do_not_stop_delivery(tmgr: rp.TaskManager, caplog: pytest.LogCaptureFixture,
                                                  error: BaseException) -> None:
    def fail(task: rp.Task, state: str) -> None:
        raise error

    before, after = Heard(), Heard()
    for callback in (before, fail, after):
        tmgr.register_callback(callback)
    with caplog.at_level(logging.ERROR):
        task = tmgr.submit_tasks(TRUE)
        wait_until(lambda: before.ends(task.uid) and after.ends(task.uid))
    assert before.states == after.states == {task.uid: [*FORWARD, rp.DONE]}
    assert any(record.exc_info and record.exc_info[1] is error for record in caplog.records)
    tmgr.unregister_callback(fail)
    assert tmgr.submit_tasks(TRUE).wait(timeout=30) == rp.DONE


def test_callbacks_can_be_unregistered(tmgr: rp.TaskManager) -> None:
    one, other = Heard(), Heard()

    def once(task: rp.Task, state: str) -> None:
        other(task, state)
        tmgr.unregister_callback(once)

    for callback in (one, once):
        tmgr.register_callback(callback)
    tmgr.unregister_callback(one)
    task = tmgr.submit_tasks(TRUE)
    final(tmgr, task)
    tmgr.register_callback(marker := Heard())
    last = tmgr.submit_tasks(TRUE)
    wait_until(lambda: marker.ends(last.uid))
    tmgr.unregister_callback(marker)
    assert one.calls == []
    assert len(other.calls) == 1
    with pytest.raises(ValueError, match='not registered'):
        tmgr.unregister_callback(once)


def test_one_call_for_many_tasks(session: rp.Session, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_BULK_CB', 'TRUE')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    bulks: list[list[Any]] = []
    with_data: list[tuple[Any, ...]] = []
    pilots: list[Any] = []
    pmgr.register_callback(pilots.extend)
    tmgr.register_callback(bulks.append)
    tmgr.register_callback(lambda *args: with_data.append(args), cb_data='data')
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([TRUE] * 50)
    assert tmgr.wait_tasks(timeout=30) == [rp.DONE] * 50
    wait_until(lambda: {task for bulk in bulks for task in bulk} == set(tasks) and len(with_data) == len(bulks))
    assert max(len(bulk) for bulk in bulks) == 50
    assert with_data == [(bulk, 'data') for bulk in bulks]
    assert set(pilots) == {pilot}


def test_callbacks_are_called_in_one_other_thread(tmgr: rp.TaskManager) -> None:
    threads: set[threading.Thread] = set()
    heard = Heard()
    tmgr.register_callback(lambda task, state: threads.add(threading.current_thread()))
    tmgr.register_callback(heard)
    tasks = tmgr.submit_tasks([TRUE] * 20)
    wait_until(lambda: heard.ends(*[task.uid for task in tasks]))
    assert len(threads) == 1
    assert threads != {threading.current_thread()}


def in_callback(tmgr: rp.TaskManager, work: Callable[[rp.Task], Any]) -> Any:
    """What `work(task)` gives when it is done by the callback for a task that is executing."""
    results: list[Any] = []

    def callback(task: rp.Task, state: str) -> None:
        if state == rp.AGENT_EXECUTING:
            results.append(work(task))

    tmgr.register_callback(callback)
    task = tmgr.submit_tasks(TRUE)
    wait_until(lambda: results, 30)
    tmgr.unregister_callback(callback)
    assert task.wait(timeout=30) == rp.DONE
    return results[0]


def test_waiting_in_callbacks(shared: Run, tmgr: rp.TaskManager) -> None:
    """For the task itself, for another one that is submitted there, for pilots."""
    other = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/sleep', 'arguments': ['0.2']}))
    assert in_callback(tmgr, lambda task: task.wait(timeout=30)) == rp.DONE
    assert in_callback(tmgr, lambda task: other.wait(timeout=30)) == rp.DONE
    assert in_callback(tmgr, lambda task: tmgr.wait_tasks([task.uid, other.uid], timeout=30)) == [rp.DONE] * 2
    assert in_callback(tmgr, lambda task: shared.pilot.wait(rp.PMGR_ACTIVE, timeout=30)) == rp.PMGR_ACTIVE


def test_no_state_is_told_before_the_submission_has_returned(shared: Run, base: Path) -> None:
    """From several threads, singly and in bulks, and from callbacks; threads are switched as often as possible."""
    tmgr = rp.TaskManager(shared.session)
    heard, known, early = Heard(), set[str](), list[tuple[str, str]]()
    more = iter(range(40))

    def submit(descriptions: Any) -> None:
        tasks = tmgr.submit_tasks(descriptions)
        known.update(task.uid for task in (tasks if isinstance(tasks, list) else [tasks]))

    def callback(task: rp.Task, state: str) -> None:
        heard(task, state)
        if task.uid not in known:
            early.append((task.uid, state))
        if state == rp.AGENT_EXECUTING and (number := next(more, None)) is not None:
            submit([TRUE] * 5 if number % 2 else TRUE)

    def work(number: int) -> None:
        for _ in range(30):
            submit([TRUE] * 40 if number == 0 else TRUE)

    tmgr.register_callback(callback)
    shared.tmgr.remove_pilots(shared.pilot.uid)
    tmgr.add_pilots(shared.pilot)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        wait_until(lambda: len(known) == 30 * 42 + 20 * 6 and heard.ends(*known), 60)
    finally:
        sys.setswitchinterval(interval)
    assert known == set(tmgr.list_tasks()) == set(heard.states)
    assert [uid for uid in known if heard.states[uid] != [*FORWARD, rp.DONE]] == []
    assert early == []
    tmgr.close()
    shared.tmgr.add_pilots(shared.pilot)


def test_submission_in_callbacks(shared: Run) -> None:
    """An application in which each task starts the next one, and waits for it."""
    tmgr = rp.TaskManager(shared.session)
    shared.tmgr.remove_pilots(shared.pilot.uid)
    tmgr.add_pilots(shared.pilot)
    chain: list[rp.Task] = []

    def callback(task: rp.Task, state: str) -> None:
        if state == rp.DONE and len(chain) < 10:
            chain.append(tmgr.submit_tasks(TRUE))
            chain[-1].wait(timeout=30)

    tmgr.register_callback(callback)
    tmgr.submit_tasks(TRUE)
    wait_until(lambda: len(chain) == 10 and chain[-1].state == rp.DONE)
    tmgr.close()
    shared.tmgr.add_pilots(shared.pilot)


def test_managers_used_in_callbacks(session: rp.Session, base: Path) -> None:
    """An application that does everything there: it adds a pilot, and cancels it, when it is told to."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)

    def pilot_callback(pilot: rp.Pilot, state: str) -> None:
        if state == rp.PMGR_ACTIVE:
            tmgr.add_pilots(pilot)
            tmgr.submit_tasks(TRUE)

    def task_callback(task: rp.Task, state: str) -> None:
        if state == rp.DONE:
            pmgr.cancel_pilots(task.pilot)

    pmgr.register_callback(pilot_callback)
    tmgr.register_callback(task_callback)
    pilot = pmgr.submit_pilots(pilot_description(base))
    assert pilot.wait(timeout=30) == rp.CANCELED
    assert tmgr.wait_tasks() == [rp.DONE]


def test_closing_the_session_in_a_callback(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    closed = threading.Event()

    def callback(task: rp.Task, state: str) -> None:
        if state == rp.DONE:
            session.close()
            closed.set()

    tmgr.register_callback(callback)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    tmgr.submit_tasks(TRUE)
    assert closed.wait(30)
    assert pilot.state == rp.CANCELED


def test_closing_a_session_that_a_callback_closes(session: rp.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application may end after it: nothing is left to be done by then."""
    pmgr = rp.PilotManager(session)
    closing, go, order, end_pilots = threading.Event(), threading.Event(), list[str](), pmgr._owner.close

    def slowly() -> None:
        closing.set()
        assert go.wait(30)
        end_pilots()
        order.append('the pilots have ended')

    def again() -> None:
        session.close()
        order.append('the session is closed')

    monkeypatch.setattr(pmgr._owner, 'close', slowly)
    session._owner.engine.call(session._owner.engine.dispatcher.call, session.close)
    assert closing.wait(30)
    other = threading.Thread(target=again)
    other.start()
    other.join(0.1)
    assert order == []
    go.set()
    other.join(30)
    assert order == ['the pilots have ended', 'the session is closed']


def test_a_callback_closes_a_session_that_is_being_closed(session: rp.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for what waits for it."""
    pmgr = rp.PilotManager(session)
    returned, end_pilots = threading.Event(), pmgr._owner.close

    def close() -> None:
        session.close()
        returned.set()

    def meanwhile() -> None:
        session._owner.engine.call(session._owner.engine.dispatcher.call, close)
        assert returned.wait(30)
        session.close()   # as a signal handler of this thread may do
        end_pilots()

    monkeypatch.setattr(pmgr._owner, 'close', meanwhile)
    session.close()
    assert returned.is_set()


def test_what_was_queued_is_delivered_before_the_session_is_closed(session: rp.Session, base: Path) -> None:
    pmgr, tmgr, heard = rp.PilotManager(session), rp.TaskManager(session), Heard()
    pmgr.register_callback(heard)
    tmgr.register_callback(heard)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([TRUE] * 20)
    tmgr.wait_tasks(timeout=30)
    session.close()
    assert heard.ends(pilot.uid, *[task.uid for task in tasks])

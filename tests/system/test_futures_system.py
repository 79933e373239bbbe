"""Futures of the tasks of real sessions: their results, and their end with the session, whatever ends it."""

from __future__ import annotations

import asyncio
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description

import radical.pilot as rp

SLEEP = {'executable': '/bin/sleep', 'arguments': ['100']}


def program(text: str, **more: Any) -> rp.TaskDescription:
    return rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', text]} | more)


def test_results(shared: Run) -> None:
    task, failing = shared.tmgr.submit_tasks([program('echo out; echo err >&2'), program('exit 3')])
    future = task.future()
    result = task.result(60)
    assert result == rp.TaskResult(0, 'out\n', 'err\n', task.sandbox) == future.result()
    with pytest.raises(rp.TaskError) as caught:
        failing.result(60)
    assert (caught.value.kind, caught.value.exit_code) == ('exit', 3)


def test_own_time_limit(shared: Run) -> None:
    task = shared.tmgr.submit_tasks(rp.TaskDescription(SLEEP | {'timeout': 0.2}))
    with pytest.raises(rp.TaskTimeoutError):
        task.result(60)
    assert not task.future().cancelled()


def test_task_whose_dependency_has_failed(shared: Run) -> None:
    first = shared.tmgr.submit_tasks(program('exit 3'))
    second = shared.tmgr.submit_tasks(program('true', after=[first]))
    with pytest.raises(rp.TaskError) as caught:
        second.result(60)
    assert caught.value.kind == 'dependency'
    assert not second.future().cancelled()


def test_cancellation(shared: Run) -> None:
    task = shared.tmgr.submit_tasks(rp.TaskDescription(SLEEP))
    assert task.future().cancel()
    with pytest.raises(futures.CancelledError):
        task.result(60)
    assert task.future().cancelled()


def test_awaiting(shared: Run) -> None:
    async def campaign() -> None:
        good, bad, long = shared.tmgr.submit_tasks([program('echo $((6 * 7))'), program('exit 1'),
                                                    rp.TaskDescription(SLEEP)])
        assert (await good).stdout == '42\n'
        with pytest.raises(rp.TaskError):
            await bad
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(long), 0.01)
        assert not long.done()
        waiting = asyncio.ensure_future(long)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await long
        assert long.state == rp.CANCELED

    asyncio.run(campaign())


def test_callback_that_submits(shared: Run) -> None:
    """It waits for the thread of the engine, and for another future."""
    results: futures.Future[Any] = futures.Future()

    def go_on(future: futures.Future[Any]) -> None:
        try:
            results.set_result(shared.tmgr.submit_tasks(program('echo second')).result(60))
        except BaseException as error:
            results.set_exception(error)

    shared.tmgr.submit_tasks(program('true')).future().add_done_callback(go_on)
    assert results.result(60).stdout == 'second\n'


def test_session_is_closed(session: rp.Session) -> None:
    task = rp.TaskManager(session).submit_tasks(program('true'))
    future = task.future()
    called: futures.Future[Any] = futures.Future()
    future.add_done_callback(called.set_result)
    session.close()
    assert called.result(30) is future
    assert future.cancelled()
    with pytest.raises(futures.CancelledError, match='the session was closed'):
        task.result()


def test_session_is_closed_by_a_callback_of_a_future(session: rp.Session) -> None:
    task = rp.TaskManager(session).submit_tasks(program('true'))
    closed: futures.Future[None] = futures.Future()

    def close(_: futures.Future[Any]) -> None:
        session.close()
        closed.set_result(None)

    task.future().add_done_callback(close)
    task.cancel()
    closed.result(60)
    assert session.closed
    assert task.future().cancelled()


def test_session_is_left_and_attached(base: Path) -> None:
    first = rp.Session(cfg={'base': str(base)})
    pmgr, tmgr = rp.PilotManager(first), rp.TaskManager(first)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    task, ended = tmgr.submit_tasks([program(f'until [ -e {base}/go ]; do sleep 0.02; done; echo done'),
                                     program('echo before')])
    ended.result(60)
    future = task.future()
    first.close(terminate=False)
    for look in (future.result, task.result, task.future().result):
        with pytest.raises(RuntimeError, match='cannot go on'):
            look(30)
    with rp.Session(uid=first.uid, cfg={'base': str(base)}) as second:
        again, = second.get_task_managers()
        assert repr(again).endswith('2 tasks, 1 DONE>')
        restored = again.get_tasks(task.uid).future()
        assert again.get_tasks(ended.uid).future().result(30).stdout == 'before\n'
        (base / 'go').touch()
        assert restored.result(60).stdout == 'done\n'


def test_session_shows_nothing_else(shared: Run) -> None:
    for thing, names in ((shared.session, {'base', 'client_sandbox', 'path', 'uid'}), (shared.pmgr, {'uid'}),
                         (shared.tmgr, {'scheduler', 'uid'})):
        assert {name for name in dir(thing) if not name.startswith('_')} - set(dir(type(thing))) == names


def test_tasks_and_pilots_are_taken_for_their_uids(shared: Run) -> None:
    tmgr, pmgr, pilot = shared.tmgr, shared.pmgr, shared.pilot
    quick, long = tmgr.submit_tasks([program('true', pilot=pilot), rp.TaskDescription(SLEEP)])
    heard: futures.Future[str] = futures.Future()

    def told(task: rp.Task, state: str) -> None:
        if state in rp.FINAL:
            heard.set_result(task.uid)

    tmgr.register_callback(told, uid=long)
    assert tmgr.wait_tasks(quick, timeout=60) == rp.DONE
    tmgr.cancel_tasks([long])
    assert tmgr.wait_tasks([quick, long.uid], timeout=60) == [rp.DONE, rp.CANCELED]
    assert heard.result(30) == long.uid
    tmgr.unregister_callback(told, uid=long)
    assert tmgr.get_tasks(quick) is quick
    assert tmgr.get_tasks([quick, long.uid]) == [quick, long]
    assert quick.description.pilot == pilot.uid
    tmgr.forget_tasks(quick)
    assert pmgr.get_pilots(pilot) is pilot
    assert pmgr.wait_pilots([pilot], rp.PMGR_ACTIVE, 30) == [rp.PMGR_ACTIVE]
    assert pmgr.wait_pilots(pilot, rp.PMGR_ACTIVE, 30) == rp.PMGR_ACTIVE


def test_iterating_over_tasks_as_they_end(shared: Run) -> None:
    tasks = shared.tmgr.submit_tasks([program(f'exit {number % 2}') for number in range(20)])
    assert set(rp.as_completed(tasks, 60)) == set(tasks)
    assert set(shared.tmgr.as_completed([task.uid for task in tasks])) == set(tasks)
    assert rp.wait(tasks) == (set(tasks), set())

    async def iterate() -> None:
        more = shared.tmgr.submit_tasks([program('true')] * 20)
        assert {task async for task in shared.tmgr.as_completed(more, timeout=60)} == set(more)
        assert {task async for task in rp.aio.as_completed(more)} == set(more)
        assert await rp.aio.wait(more, return_when=futures.FIRST_COMPLETED) == (set(more), set())

    asyncio.run(iterate())


def test_objects_show_themselves(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([program('true')] * 100 + [program('exit 3')])
    tmgr.wait_tasks(timeout=60)
    tmgr.forget_tasks(tasks[:10])
    assert repr(tmgr) == f'<TaskManager {tmgr.uid}: 91 tasks, 90 DONE, 1 FAILED>'
    assert repr(pmgr) == f'<PilotManager {pmgr.uid}: 1 pilot, 1 PMGR_ACTIVE>'
    assert repr(session) == f'<Session {session.uid} open>'
    for thing, text in ((session, '91 tasks, 90 DONE, 1 FAILED'), (pmgr, '1 PMGR_ACTIVE'), (tmgr, 'round_robin'),
                        (pilot, 'local.exact'), (tasks[100], '>FAILED<')):
        assert text in thing._repr_html_()
    session.close()
    assert repr(session) == f'<Session {session.uid} closed>'

"""An application that forks: `forker.py CASE`, in the directory of its sessions. Prints what came of that as JSON."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import radical.pilot as rp
from rp_api.errors import CoordinationError

TRUE = rp.TaskDescription({'executable': '/bin/true'})
TIMEOUT = 60


class App(NamedTuple):
    """A session with a pilot."""

    session: rp.Session
    pmgr: rp.PilotManager
    tmgr: rp.TaskManager
    pilot: rp.Pilot


def opened() -> App:
    session = rp.Session()
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.exact', 'cores': 2, 'runtime': 10, 'sandbox': os.getcwd()}))
    tmgr.add_pilots(pilot)
    return App(session, pmgr, tmgr, pilot)


def echo(text: object) -> rp.TaskDescription:
    return rp.TaskDescription({'executable': 'echo', 'arguments': [text]})


def in_child(work: Callable[[], Any]) -> Any:
    """What `work()` gives in a fork of this process, which ends as programs do, with its exit handlers."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(TIMEOUT)   # so that it never waits for ever
        os.write(writing, json.dumps(work()).encode())
        os.close(writing)
        sys.exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said and status == 0 else f'the child ended with {status}, and said {said!r}'


def uses(app: App, task: rp.Task, master: rp.RaptorMaster) -> dict[str, Callable[[], Any]]:
    """All calls that do something."""
    session, pmgr, tmgr, pilot = app
    description = rp.PilotDescription({'resource': 'local.exact', 'cores': 1, 'runtime': 10})
    worker = rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'raptor_id': master.uid})
    calls: dict[str, Callable[[], Any]] = {
        'PilotManager': lambda: rp.PilotManager(session), 'TaskManager': lambda: rp.TaskManager(session),
        'fetch_profiles': session.fetch_profiles, 'fetch_logfiles': session.fetch_logfiles, 'dump': session.dump,
        'submit_pilots': lambda: pmgr.submit_pilots(description), 'wait_pilots': pmgr.wait_pilots,
        'cancel_pilots': pmgr.cancel_pilots, 'kill_pilots': pmgr.kill_pilots,
        'pmgr.register_callback': lambda: pmgr.register_callback(print),
        'pmgr.unregister_callback': pmgr.unregister_callback,
        'add_pilots': lambda: tmgr.add_pilots(pilot), 'remove_pilots': lambda: tmgr.remove_pilots(pilot.uid),
        'submit_tasks': lambda: tmgr.submit_tasks(TRUE), 'submit_raptors': lambda: tmgr.submit_raptors([]),
        'submit_workers': lambda: tmgr.submit_workers(worker), 'wait_tasks': tmgr.wait_tasks,
        'cancel_tasks': tmgr.cancel_tasks, 'tmgr.register_callback': lambda: tmgr.register_callback(print),
        'tmgr.unregister_callback': tmgr.unregister_callback,
        'pilot.wait': lambda: pilot.wait(rp.PMGR_ACTIVE), 'pilot.cancel': pilot.cancel,
        'pilot.submit_tasks': lambda: pilot.submit_tasks(TRUE), 'stage_in': lambda: pilot.stage_in([]),
        'stage_out': lambda: pilot.stage_out([]), 'add_partition': pilot.add_partition,
        'pilot.register_callback': lambda: pilot.register_callback(print),
        'pilot.unregister_callback': lambda: pilot.unregister_callback(None),
        'task.wait': task.wait, 'task.cancel': task.cancel,
        'task.register_callback': lambda: task.register_callback(print),
        'master.submit_tasks': lambda: master.submit_tasks(TRUE),
        'master.submit_workers': lambda: master.submit_workers(worker), 'rpc': lambda: master.rpc('stop'),
        'pilot.rpc': lambda: pilot.rpc('stop'), 'pilot_rpc': lambda: tmgr.pilot_rpc(pilot.uid, 'stop'),
        'Executor': lambda: rp.raptor.Executor(master).submit(print),
        'stream': lambda: list(rp.raptor.stream(master, print, [1]))}
    return calls


def refused() -> Any:
    """The calls in a child that are not refused, and how they end; what can be read there; what the parent has."""
    app = opened()
    task = app.tmgr.submit_tasks(echo('x'))
    task.wait(timeout=TIMEOUT)
    master, = app.tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER, 'uid': 'master'}))

    def use() -> Any:
        found = {}
        for name, call in uses(app, task, master).items():
            try:
                found[name] = f'gave {call()!r}'
            except CoordinationError as error:
                if f'belongs to process {os.getppid()}, and cannot be used in process {os.getpid()}' not in str(error):
                    found[name] = repr(error)
            except Exception as error:
                found[name] = repr(error)
        return [found, [task.state, task.stdout, app.tmgr.list_tasks(), app.session.closed]]

    not_refused, seen = in_child(use)
    with app.session:
        return [not_refused, seen, app.tmgr.list_tasks(), app.tmgr.submit_tasks(echo('y')).wait(timeout=TIMEOUT)]


def closes() -> Any:
    """Children close what they have, in each way, or only end; the parent's tasks go on."""
    app = opened()
    waiting = f'until [ -e {os.getcwd()}/go ]; do sleep 0.02; done'
    task = app.tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', waiting]}))
    task.wait(rp.AGENT_EXECUTING, timeout=TIMEOUT)

    def leave() -> None:
        with app.session:
            pass

    ways = [app.session.close, lambda: app.session.close(terminate=False), leave, app.tmgr.close, app.pmgr.close,
            lambda: None]
    ended = [in_child(way) for way in ways]
    open('go', 'w').close()
    with app.session:
        return [ended, task.wait(timeout=TIMEOUT), app.session.closed]


def locked() -> Any:
    """A child of a process in which other threads have locked everything closes the session, and is refused calls."""
    app = opened()
    master, = app.tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER, 'uid': 'master'}))
    task = app.tmgr.submit_tasks(echo('x'))
    task.wait(timeout=TIMEOUT)
    executor = rp.raptor.Executor(master)
    owner = app.session._owner
    engine = owner.engine
    locks: list[Any] = [
        owner._lock, owner.uids._lock, app.tmgr._owner.board.lock, app.pmgr._owner.tracker.board.lock,
        engine.helpers._lock, engine.loop._wakeup_lock, executor._lock, owner.tracer._lock]
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        held.set()
        go.wait(TIMEOUT)
        for lock in locks:
            lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(TIMEOUT)

    def use() -> Any:
        refusals = 0
        calls = uses(app, task, master)
        calls['executor'] = lambda: executor.submit(print)
        for call in calls.values():
            try:
                call()
            except CoordinationError:
                refusals += 1
        executor.shutdown()
        app.session.close()
        return refusals == len(calls)

    ended = in_child(use)
    go.set()
    holder.join()
    with app.session:
        executor.shutdown()
        return [ended, app.tmgr.submit_tasks(echo('y')).wait(timeout=TIMEOUT)]


def one_session(number: int) -> bool:
    """Whether tasks of a session of its own end as they should."""
    app = opened()
    with app.session:
        tasks = app.tmgr.submit_tasks([echo(number)] * 5)
        app.tmgr.wait_tasks(timeout=TIMEOUT)
        return [task.stdout for task in tasks] == [f'{number}\n'] * 5


def own_session() -> Any:
    """A child opens a session while its parent has one."""
    app = opened()
    with app.session:
        task = app.tmgr.submit_tasks(echo('x'))
        return [in_child(lambda: one_session(1)), task.wait(timeout=TIMEOUT)]


def pool_inside() -> Any:
    """The workers of a pool are forked within a session."""
    app = opened()
    with app.session:
        tasks = app.tmgr.submit_tasks([TRUE] * 50)
        with multiprocessing.get_context('fork').Pool(3) as pool:
            squares = sum(pool.starmap(pow, [(number, 2) for number in range(50)]))
        app.tmgr.wait_tasks(timeout=TIMEOUT)
        return [squares, sorted({task.state for task in tasks})]


def pool_of_sessions() -> Any:
    """The workers of a pool have sessions, one after the other."""
    with multiprocessing.get_context('fork').Pool(2) as pool:
        return pool.map(one_session, range(4))


def in_callback() -> Any:
    """A callback forks; its child ends as programs do."""
    app = opened()
    found: list[Any] = []
    done = threading.Event()

    def fork(task: rp.Task, state: str) -> None:
        def close() -> str:
            app.session.close()
            return state

        if state == rp.DONE:
            found.append(in_child(close))
            done.set()

    app.tmgr.register_callback(fork)
    with app.session:
        app.tmgr.submit_tasks(TRUE)
        done.wait(TIMEOUT)
        found.append(app.tmgr.submit_tasks(TRUE).wait(timeout=TIMEOUT))
    return found[:2]


if __name__ == '__main__':
    print(json.dumps(globals()[sys.argv[1]]()))

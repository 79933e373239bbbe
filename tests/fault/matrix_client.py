"""The application of the fault matrix: `matrix_client.py CONFIG.json`.

It can be killed and started again at any moment: it takes up what is there and makes what is missing. On standard
input it is told how many tasks there are to be, in several steps, and to `close`. Its words on standard output: `open`
with a session; `COUNT` when nearly all of so many tasks are final (the others go on while the next ones come), or all
that the run has, of which `results.json` tells then how they ended; `closed` when it has closed the session.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import signal
import sys
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any

from fault_matrix import workload

import radical.pilot as rp
from rp_api.coordination import hub_process
from rp_api.system.host import python_program
from rp_client.service.tasks import ACCEPTANCE

BULK = 1000

GOING_ON = 0.1
"""Part of the tasks of a step that need not be final before the next one."""


def say(*words: object) -> None:
    print(*words, flush=True)


def use_other_hub(command: list[str]) -> None:
    """Have the session start this program as its hub."""

    def program(module: str) -> list[str]:
        return command if module.endswith('.hub') else python_program(module)

    hub_process.python_program = program  # type: ignore[attr-defined]


def open_session(config: dict[str, Any]) -> rp.Session:
    more = {'dburl': config['dburl']} if config['dburl'] else {}
    return rp.Session(config['proxy_url'] or None, config['uid'], {'base': config['sessions']}, **more)


def managers(session: rp.Session) -> tuple[rp.PilotManager, rp.TaskManager]:
    """Those that the session had, or new ones."""
    pmgrs, tmgrs = session.get_pilot_managers(), session.get_task_managers()
    return (pmgrs[0] if pmgrs else rp.PilotManager(session)), (tmgrs[0] if tmgrs else rp.TaskManager(session))


def provide_pilots(pmgr: rp.PilotManager, tmgr: rp.TaskManager, config: dict[str, Any]) -> None:
    """See to it that as many pilots are at work as the configuration asks for."""
    live = [pilot for pilot in pmgr.get_pilots() if pilot.state not in rp.FINAL]
    missing = config['pilots'] - len(live)
    if missing > 0:
        requeue = {'requeue': True} if config['resource'] == 'test.machine' else {}
        live += pmgr.submit_pilots([rp.PilotDescription({
            'resource': config['resource'], 'cores': config['cores'], 'runtime': 60, 'exit_on_error': False,
            'sandbox': config['base'], **requeue}) for _ in range(missing)])
    used = tmgr.list_pilots()
    unused = [pilot for pilot in live if pilot.uid not in used]
    if unused:
        tmgr.add_pilots(unused)


def provide_raptor(tmgr: rp.TaskManager, config: dict[str, Any]) -> None:
    """See to it that there are a master and a worker, if tasks are calls."""
    known, common = set(tmgr.list_tasks()), {'pilot': tmgr.list_pilots()[0]}
    if config['kind'] == workload.RAPTOR and workload.MASTER not in known:
        tmgr.submit_raptors(rp.TaskDescription({'uid': workload.MASTER, 'mode': rp.RAPTOR_MASTER, **common}))
    if config['kind'] == workload.RAPTOR and workload.WORKER not in known:
        tmgr.submit_workers(rp.TaskDescription({
            'uid': workload.WORKER, 'mode': rp.RAPTOR_WORKER, 'raptor_id': workload.MASTER, 'ranks': 2, **common}))


def provide_service(tmgr: rp.TaskManager, config: dict[str, Any]) -> None:
    """See to it that there is the service that tasks need."""
    if config['kind'] == workload.SERVICE and workload.DATABASE not in tmgr.list_tasks():
        tmgr.submit_tasks(workload.service())


def submit_missing(tmgr: rp.TaskManager, count: int, config: dict[str, Any]) -> None:
    """Submit what is not there of the first `count` tasks; what was accepted once must be."""
    if config['kind'] == workload.SWEEP:
        if not tmgr.get_sweeps():
            tmgr.submit_sweep(workload.sweep(config), range(count))
        return
    known = set(tmgr.list_tasks())
    missing = [number for number in range(count) if workload.uid(number) not in known]
    with open(config['accepted'], 'a+') as accepted:
        accepted.seek(0)
        forgotten = set(accepted.read().split()) - known
        assert not forgotten, f'{len(forgotten)} tasks that were accepted are not there any more: {min(forgotten)} ...'
        for first in range(0, len(missing), BULK):
            numbers = missing[first:first + BULK]
            began = time.monotonic()
            tmgr.submit_tasks([workload.description(number, config) for number in numbers])
            if time.monotonic() - began < ACCEPTANCE:   # else they may still be on their way
                print(*map(workload.uid, numbers), sep='\n', file=accepted, flush=True)


def wait_for(tmgr: rp.TaskManager, count: int, timeout: float, config: dict[str, Any]) -> None:
    """Wait for the first `count` tasks; of a sweep, for all."""
    if config['kind'] == workload.SWEEP:
        tmgr.get_sweeps()[0].wait(timeout)
    else:
        tmgr.wait_tasks(list(map(workload.uid, range(count))), timeout=timeout)


def outcome(task: rp.Task) -> dict[str, Any]:
    return {'state': task.state, 'exit_code': task.exit_code, 'stdout': task.stdout, 'pilot': task.pilot,
            'attempts': getattr(task, 'attempts', 1), 'losses': getattr(task, 'losses', 0),
            'exception': f'{task.exception}: {task.exception_detail}'}


def record(pmgr: rp.PilotManager, tmgr: rp.TaskManager, config: dict[str, Any]) -> None:
    """Write down how everything ended."""
    tasks = itertools.chain(tmgr.get_tasks(), *tmgr.get_sweeps())
    results = {workload.name(task.uid): outcome(task) for task in tasks if workload.name(task.uid)}
    pilots = {pilot.uid: [pilot.state, f'{pilot.exception}: {pilot.exception_detail}'] for pilot in pmgr.get_pilots()}
    Path(config['results']).write_text(json.dumps({'tasks': results, 'pilots': pilots}))


def work(session: rp.Session, config: dict[str, Any], told: Any) -> None:
    """Do what standard input asks for, until it says `close`."""
    def note(task: rp.Task, state: str) -> None:
        if (state in rp.FINAL or config['all_states']) and (name := workload.name(task.uid)):
            told.write(f'{name} {state}\n'.encode())

    deadline = time.monotonic() + config['deadline']
    lock = threading.Lock()

    def provide() -> None:
        with lock:
            provide_pilots(pmgr, tmgr, config)

    def replace(_: rp.Pilot, state: str) -> None:
        if state == rp.FAILED:
            provide()

    pmgr, tmgr = managers(session)
    tmgr.register_callback(note)
    pmgr.register_callback(replace)
    before = 0
    while (order := sys.stdin.readline().strip()) != 'close':
        count = int(order)
        provide()
        provide_raptor(tmgr, config)
        provide_service(tmgr, config)
        submit_missing(tmgr, count, config)
        everything = count == config['tasks']
        waited_for = count if everything else count - int(GOING_ON * (count - before))
        wait_for(tmgr, waited_for, deadline - time.monotonic(), config)
        if everything:
            record(pmgr, tmgr, config)
        say(count)
        before = count
    told_all = threading.Event()
    session._owner.engine.call(session._owner.engine.dispatcher.call, told_all.set)
    assert told_all.wait(deadline - time.monotonic()), 'callbacks take too long'


def outcome_of(future: futures.Future[Any]) -> dict[str, Any]:
    """How a program of an executor has ended."""
    result, task = future.result(), future.task   # type: ignore[attr-defined]
    return {'state': rp.FAILED if result.returncode else rp.DONE, 'exit_code': result.returncode,
            'stdout': result.stdout, 'pilot': task.pilot, 'attempts': task.attempts, 'losses': task.losses,
            'exception': str(task.exception)}


def execute(config: dict[str, Any], told: Any) -> None:
    """Do the same with an executor: request all programs, also those that an earlier one has requested."""
    with rp.Executor(config['cores'], resource=config['resource'], uid=config['uid']) as executor:
        while (order := sys.stdin.readline().strip()) != 'close':
            described = [workload.description(number, config) for number in range(int(order))]
            made = {task.uid: executor.run(task.executable, *task.arguments, check=False) for task in described}
            futures.wait(made.values(), return_when=futures.FIRST_COMPLETED)[0].pop().result()
            say('open')   # the executor has opened its session
            ends = {uid: outcome_of(future) for uid, future in made.items()}
            told.write(''.join(f'{uid} {end["state"]}\n' for uid, end in ends.items()).encode())
            Path(config['results']).write_text(json.dumps({'tasks': ends, 'pilots': {}}))
            say(order)


def main() -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)   # to see where it hangs
    config = json.loads(Path(sys.argv[1]).read_text())
    if config['hub_command']:
        use_other_hub(config['hub_command'])
    # a kill must not take with it what callbacks have told, so nothing is buffered
    with open(f'{config["told"]}.{os.getpid()}', 'ab', buffering=0) as told:
        if config['kind'] == workload.EXECUTOR:
            execute(config, told)
        else:
            with open_session(config) as session:
                say('open', session.path)
                work(session, config, told)
    say('closed')


if __name__ == '__main__':
    main()

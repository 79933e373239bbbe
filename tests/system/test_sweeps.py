"""Sweeps in real sessions: their tasks run, end with their pilots, move, and are there for the next application."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from conftest import Run, pilot_description, processes_with, wait_until

import radical.pilot as rp
from rp_api import states
from rp_api.coordination.results import read_results
from rp_api.coordination.sessions import summary

MANY = 3000
"""Tasks in three chunks."""

LARGE = 12_000
"""More tasks than are on the way to an agent at a time."""


def agent_of(pilot: rp.Pilot) -> int:
    """The process of a pilot's agent; 0 if it has not been started."""
    return next((pid for pid, command in processes_with(pilot.pilot_sandbox).items() if 'rp_agent.cli' in command), 0)


def program(text: str, **more: Any) -> rp.TaskDescription:
    return rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', text]} | more)


def test_rows_fill_the_description(shared: Run) -> None:
    description = rp.TaskDescription({
        'name': '{a}-{i:03d}', 'executable': '/bin/sh', 'environment': {'B': '{b}'}, 'stdout': 'out.{a}',
        'arguments': ['-c', 'echo "{a}" $B "{{x}}"'], 'sandbox': 'of-{b}'})
    sweep = shared.tmgr.submit_sweep(description, [{'a': 'x', 'b': 1}, {'b': 2.5, 'a': Path('y z')}])
    assert sweep.wait(60) == {rp.DONE: 2}
    first, second = sweep
    assert (first.stdout, second.stdout) == ('x 1 {x}\n', 'y z 2.5 {x}\n')
    assert (second.name, second.uid, second.description.sandbox) == ('y z-001', f'{sweep.uid}.000001', 'of-2.5')
    assert (Path(str(first.sandbox)).name, (Path(str(second.sandbox)) / 'out.y z').exists()) == ('of-1', True)
    assert shared.tmgr.get_tasks(second.uid) is second


@pytest.mark.parametrize('literal', [False, True])
def test_values_of_rows_are_no_code(shared: Run, literal: bool) -> None:
    value = 'p$5word $(echo x) `y` $RP_TASK_ID'
    shows = 'echo "$B" "$1"' if literal else r'echo "\$B" "\$1"'
    description = program('', arguments=['-c', shows, 'sh', '{}'], environment={'B': '{}'}, literal_arguments=literal)
    sweep = shared.tmgr.submit_sweep(description, [value])
    assert sweep.wait(60) == {rp.DONE: 1}
    assert sweep[0].stdout == f'{value} {value}\n'


def test_sweep_is_a_sequence(shared: Run) -> None:
    told: list[tuple[str, str]] = []
    shared.tmgr.register_callback(lambda task, state: told.append((task.uid, state)))
    before = len(shared.tmgr.list_tasks())
    sweep = shared.tmgr.submit_sweep(program('exit $(({} % 500 == 7))'), range(MANY))
    held = sweep[1007]
    assert len(sweep) == MANY == sum(sweep.states.values())
    assert held.wait(timeout=120) == rp.FAILED
    assert sweep.wait(120) == {rp.DONE: MANY - 6, rp.FAILED: 6}
    assert [task.uid for task in sweep.failed()] == [f'{sweep.uid}.{number:06d}' for number in range(7, MANY, 500)]
    assert sweep[1007] is held
    assert held.exit_code == 1
    assert [task.uid for task in sweep[-2:]] == [f'{sweep.uid}.{MANY - 2:06d}', f'{sweep.uid}.{MANY - 1:06d}']
    with pytest.raises(IndexError, match='has no row'):
        sweep[MANY]

    def ends() -> Counter[str]:
        return Counter(state for uid, state in list(told) if state in rp.FINAL and uid.startswith(sweep.uid))

    wait_until(lambda: ends().total() == MANY)
    shared.tmgr.unregister_callback()
    assert ends() == {rp.DONE: MANY - 6, rp.FAILED: 6}
    passed = [state for uid, state in told if uid == held.uid]
    assert (passed[0], passed[-1]) == (rp.TMGR_SCHEDULING_PENDING, rp.FAILED)
    values = [states.TASK.value(state) for state in passed]
    assert values == sorted(set(values))
    assert len(shared.tmgr.list_tasks()) == before + MANY
    assert shared.tmgr.wait_tasks(timeout=60)[-MANY:].count(rp.DONE) == MANY - 6
    shared.tmgr.forget_tasks([sweep[0].uid, held.uid])
    assert len(shared.tmgr.list_tasks()) == before + MANY - 2
    with pytest.raises(ValueError, match='not known'):
        sweep[0]


def test_sweep_stands_for_its_tasks(shared: Run) -> None:
    tmgr = shared.tmgr
    one, two = (tmgr.submit_sweep(program('test {} != 1'), range(3)) for _ in range(2))
    assert tmgr.wait_tasks(one, timeout=60) == [rp.DONE, rp.FAILED, rp.DONE]
    assert tmgr.wait_tasks([two[0].uid, one, two], timeout=60) == [rp.DONE, *[rp.DONE, rp.FAILED, rp.DONE] * 2]
    assert tmgr.get_tasks(two) == list(two)
    assert tmgr.submit_tasks(program('true', after={one: 'ended', two[0]: 'done'})).wait(timeout=60) == rp.DONE
    assert tmgr.submit_tasks(program('true', after=[two])).wait(timeout=60) == rp.CANCELED
    long = tmgr.submit_sweep(program('sleep 100'), range(5))
    tmgr.cancel_tasks(long)
    assert long.wait(60) == {rp.CANCELED: 5}
    tmgr.forget_tasks(one)
    with pytest.raises(ValueError, match='not known'):
        one[0]
    assert '<th' in two._repr_html_()
    assert 'FAILED' in two._repr_html_()


@pytest.mark.long
def test_tasks_are_few_in_memory(session: rp.Session, base: Path) -> None:
    """Most tasks of a large sweep are no objects, neither before they run nor after."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    sweep = tmgr.submit_sweep(program('exit {}'), [0] * MANY)
    assert len(tmgr._owner.tasks.in_memory()) == 3
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    sweep.wait(120)
    wait_until(lambda: gc.collect() >= 0 and len(tmgr._owner.tasks.in_memory()) < 300)
    assert {task.state for task in sweep} == {rp.DONE}


def test_cancellation(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    ended = Event()
    unbound = tmgr.submit_sweep(program('sleep 100'), range(MANY))
    task = unbound[5]
    unbound.cancel()
    assert unbound.wait(30) == {rp.CANCELED: MANY}
    assert (task.state, unbound[6].state, unbound[2999].exception) == (
        rp.CANCELED, rp.CANCELED, 'cancelled before it was sent to a pilot')
    single = tmgr.submit_sweep(program('echo {}'), range(3))
    single[1].cancel()
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    assert single.wait(60) == {rp.DONE: 2, rp.CANCELED: 1}
    assert [task.stdout for task in single] == ['0\n', '', '2\n']
    bound = tmgr.submit_sweep(program('sleep 100'), range(LARGE))
    held = bound[LARGE - 1]
    tmgr.register_callback(lambda task, state: ended.set() if state == rp.CANCELED else None)
    wait_until(lambda: rp.AGENT_EXECUTING in bound.states)
    bound.cancel()
    assert bound.wait(120) == {rp.CANCELED: LARGE}
    assert ended.wait(30)
    assert held.state == rp.CANCELED
    wait_until(lambda: summary(session.path).tasks == {rp.CANCELED: MANY + 1 + LARGE, rp.DONE: 2})


@pytest.mark.parametrize('active', [False, True])
def test_sweep_ends_with_its_pilot(session: rp.Session, base: Path, active: bool) -> None:
    """Also one that no agent has taken, as a whole."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    sweep = tmgr.submit_sweep(program('sleep 100'), range(LARGE))
    held = sweep[LARGE - 1]
    if active:
        wait_until(lambda: rp.AGENT_EXECUTING in sweep.states)
    pilot.cancel()
    assert sweep.wait(120) == {rp.CANCELED: LARGE}
    assert held.state == sweep[LARGE - 2].state == rp.CANCELED
    assert pilot.uid in str(held.exception)


def test_sweep_is_cancelled_before_its_pilot_is_active(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    sweep = tmgr.submit_sweep(program('sleep 100'), range(LARGE))
    tmgr.cancel_tasks()
    assert sweep.wait(60) == {rp.CANCELED: LARGE}
    assert tmgr.wait_tasks(timeout=10) == [rp.CANCELED] * LARGE
    assert tmgr.submit_sweep(program('true'), [1]).wait(60) == {rp.DONE: 1}


def test_manager_that_is_closed_ends_its_sweeps(session: rp.Session, base: Path) -> None:
    """Also tasks that its pilot has taken without a report."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    sweep = tmgr.submit_sweep(program('sleep 1000'), range(LARGE))
    wait_until(lambda: rp.AGENT_EXECUTING in sweep.states)
    tmgr.close()
    assert sweep.states == {rp.CANCELED: LARGE}
    other = rp.TaskManager(session)
    other.add_pilots(pilot)
    assert other.submit_sweep(program('echo {}'), ['x']).wait(60) == {rp.DONE: 1}
    wait_until(lambda: not [line for line in processes_with(str(base)).values() if 'sleep' in line])


@pytest.mark.parametrize('active', [False, True])
def test_restartable_sweep_goes_to_another_pilot(session: rp.Session, base: Path, active: bool) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, exit_on_error=False))
    tmgr.add_pilots(pilot)
    sweep = tmgr.submit_sweep(program(f'until [ -e {base}/go ]; do sleep 0.1; done; echo {{}}', restartable=True),
                              range(1500))
    wait_until(lambda: agent_of(pilot))
    if active:
        wait_until(lambda: rp.AGENT_EXECUTING in sweep.states)
    os.kill(agent_of(pilot), signal.SIGKILL)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    (base / 'go').touch()
    assert sweep.wait(120) == {rp.DONE: 1500}
    assert {task.pilot for task in sweep} == {'pilot.0001'}
    assert sweep[1499].stdout == '1499\n'


def test_all_pilots_get_tasks_of_a_small_sweep(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilots = pmgr.submit_pilots([pilot_description(base) for _ in range(3)])
    tmgr.add_pilots(pilots)
    sweep = tmgr.submit_sweep(program('true'), range(1500))
    assert sweep.wait(120) == {rp.DONE: 1500}
    assert Counter(task.pilot for task in sweep) == {pilot.uid: 500 for pilot in pilots}


def test_two_pilots_share_a_sweep_and_one_is_drained(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    first, second = pmgr.submit_pilots([pilot_description(base), pilot_description(base)])
    tmgr.add_pilots([first, second])
    here = f'[ $RP_PILOT_ID = {first.uid} ] && [ -e {base}/go ]'
    sweep = tmgr.submit_sweep(program(f'until {here}; do sleep 0.1; done'), range(LARGE))
    wait_until(lambda: sweep.states.get(rp.AGENT_EXECUTING, 0) == 8)
    (base / 'go').touch()
    tmgr.remove_pilots(first.uid, drain=True)
    rest = sweep.states
    sweep.cancel()
    ended = sweep.wait(120)
    assert ended.keys() == {rp.DONE, rp.CANCELED}
    assert rest.get(rp.FAILED) is None
    assert {task.pilot for task in sweep.in_state(rp.DONE)} == {first.uid}
    assert all(task.pilot == second.uid for task in sweep.in_state(rp.CANCELED) if task.pilot)


@pytest.mark.parametrize('scheduler', ['round_robin', 'backfilling'])
def test_next_application_has_the_sweep(base: Path, scheduler: str) -> None:
    with_left: list[str] = []
    session = rp.Session(uid='session', cfg={'base': str(base)})
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session, scheduler=scheduler)
    sweep = tmgr.submit_sweep(program('echo {}'), range(MANY))
    other = tmgr.submit_sweep(program('true'), [()] * 10)
    other.cancel()
    other.wait(30)
    if scheduler == 'round_robin':
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
        wait_until(lambda: sweep.states.get(rp.DONE, 0) > 10)
        done = next(sweep.in_state(rp.DONE))
        tmgr.forget_tasks(done.uid)
        with_left.append(done.uid)
    session.close(terminate=False)
    assert len(list(read_results(session.path))) == MANY + 10
    with rp.Session(uid='session', cfg={'base': str(base)}) as session:
        (tmgr,), (pmgr,) = session.get_task_managers(), session.get_pilot_managers()
        found, cancelled = tmgr.get_sweeps()
        assert (found.uid, len(found), cancelled.states) == ('sweep.0000', MANY, {rp.CANCELED: 10})
        if scheduler == 'backfilling':
            tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
        found.wait(120)
        assert tmgr.get_tasks('sweep.0000.002999').stdout == '2999\n'
        assert len(tmgr.list_tasks()) == MANY + 10 - len(with_left)
        assert tmgr.submit_sweep(program('true'), [1]).uid == 'sweep.0002'


def test_files_are_staged(run: Run, base: Path) -> None:
    for number in range(3):
        (base / f'in.{number}').write_text(f'{number}')
    sweep = run.tmgr.submit_sweep(program('cat in > out', input_staging=['in.{1} > in'],
                                          output_staging=['out > out.{1}']), [(0,), (1,), (2,)])
    assert sweep.wait(60) == {rp.DONE: 3}, sweep[0].exception
    assert [(base / f'out.{number}').read_text() for number in range(3)] == ['0', '1', '2']


def test_tasks_are_after_others_and_others_after_them(session: rp.Session, base: Path) -> None:
    """Submitted before there are pilots, and run on two of them."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    first = tmgr.submit_tasks(program(f'sleep 0.2; touch {base}/first'))
    sweep = tmgr.submit_sweep(program(f'test -e {base}/first && touch {base}/done.{{}}', after=[first.uid]), range(20))
    last = tmgr.submit_tasks(program(f'ls {base}/done.* | wc -l', after=[task.uid for task in sweep]))
    tmgr.add_pilots(pmgr.submit_pilots([pilot_description(base), pilot_description(base)]))
    assert last.wait(timeout=60) == rp.DONE
    assert (last.stdout.strip(), sweep.states) == ('20', {rp.DONE: 20})
    with pytest.raises(ValueError, match='nope'):
        tmgr.submit_sweep(program('true', after=['nope']), [1])


def test_results_are_cached_and_failed_tasks_repeated(run: Run, base: Path) -> None:
    for cached in (False, True):
        sweep = run.tmgr.submit_sweep(program('echo {}', cache=True), range(3))
        assert sweep.wait(60) == {rp.DONE: 3}
        assert [(task.cached, task.stdout) for task in sweep] == [(cached, f'{number}\n') for number in range(3)]
    for cached in (False, True):
        sweep = run.tmgr.submit_sweep(program('echo {}', cache='number {}'), range(3))
        assert sweep.wait(60) == {rp.DONE: 3}
        assert [(task.cached, task.stdout) for task in sweep] == [(cached, f'{number}\n') for number in range(3)]
    sweep = run.tmgr.submit_sweep(program(f'mkdir {base}/tried.{{}} && exit 1; true', retries=1), range(3))
    assert sweep.wait(60) == {rp.DONE: 3}
    assert {task.attempts for task in sweep} == {2}


@pytest.mark.parametrize(('description', 'parameters', 'message'), [
    ({'executable': '{sim}'}, [{'a': 1}], r"executable is '{sim}'.*no {sim}: allowed are {a}, {i}, {}"),
    ({'executable': 'a', 'arguments': ['{1}', '{3}']}, [(1, 2)], r'arguments is .*no \{3\}: allowed are \{1\}'),
    ({'executable': 'a', 'arguments': ['{a']}, [{'a': 1}], "arguments is '{a'"),
    ({'executable': 'a', 'arguments': ['{a:d}']}, [{'a': 1}, {'a': 'x'}], "format 'd'.*'x'"),
    ({'executable': 'a', 'environment': {'A': '{a!r}'}}, [{'a': 1}], r'{a!r}'),
    ({'executable': 'a'}, [{'a': 1}, {'b': 2}], 'row 1 of the parameters is'),
    ({'executable': 'a'}, [(1, 2), (3,)], 'row 1 of the parameters is'),
    ({'executable': 'a'}, {'a': [1, 2], 'b': [3]}, 'different lengths'),
    ({'executable': 'a'}, [], 'no rows'),
    ({'executable': 'a'}, [{'a': None}], "column 'a' of the parameters is None in row 0"),
    ({'executable': 'a'}, [{'i': 1}], "called 'i'"),
    ({'executable': 'a'}, 'abc', 'allowed are rows'),
    ({'executable': 'a', 'uid': 'mine'}, [1], "uid of a sweep is 'mine'"),
    ({'mode': rp.TASK_FUNCTION, 'function': 'f', 'raptor_id': 'm'}, [1], 'raptor_id of a sweep'),
    ({'executable': '{}', 'sandbox': '{}'}, ['\0'], 'sandbox'),
    ({}, [1], 'executable is not set'),
    ({'executable': 'a', 'cache': 'key'}, [1, 2], "cache of a sweep is 'key', but each row has a result of its own"),
])
def test_bad_input_is_refused(shared: Run, description: dict[str, Any], parameters: Any, message: str) -> None:
    before = shared.tmgr.list_tasks()
    with pytest.raises(ValueError, match=message):
        shared.tmgr.submit_sweep(rp.TaskDescription(description), parameters)
    assert shared.tmgr.list_tasks() == before

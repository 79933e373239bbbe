"""Named environments of real pilots: tasks wait for them, run in them, and fail with the reason if there are none."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from conftest import Run, hub_pid, pilot_description, processes_with, wait_until

import radical.pilot as rp
from rp_api.errors import DescriptionError
from rp_api.system import agent_process

WHERE = 'import sys; print(sys.prefix)'


def python(code: str, **values: object) -> rp.TaskDescription:
    return rp.TaskDescription({'executable': 'python', 'arguments': ['-c', code]} | values)


def held(path: Path) -> str:
    """A shell line that waits for a file, and notes that it runs."""
    return f'touch {path}.waits; until test -e {path}; do sleep 0.02; done'


def test_tasks_run_in_the_environments_of_the_description(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, prepare_env={
        'mine': {'pre_exec': [held(base / 'go'), 'export GREETING=hello']},
        'broken': {'type': 'shell', 'pre_exec': ['echo the module is not there; false']}}))
    tmgr.add_pilots(pilot)
    inside, failing, agents, plain = tmgr.submit_tasks([
        python(f'{WHERE}; import os; print(os.environ["GREETING"])', named_env='mine'),
        python(WHERE, named_env='broken'),
        python('import rp_agent; print(rp_agent.__name__)', named_env='rp'),
        rp.TaskDescription({'executable': '/bin/true'})])
    assert tmgr.wait_tasks([plain.uid, failing.uid, agents.uid], timeout=50) == [rp.DONE, rp.FAILED, rp.DONE]
    wait_until(lambda: str(inside.reason) == 'waits for environment mine (is being built)')
    assert inside.state == rp.AGENT_SCHEDULING
    assert "environment 'broken' cannot be built: exit code 1 of: echo the module" in str(failing.exception)
    assert '\nthe module is not there\n' in str(failing.exception_detail)
    assert agents.stdout.strip() == 'rp_agent'
    wait_until(lambda: any("environment 'broken' cannot be built" in line for line in pilot.log))
    (base / 'go').touch()
    assert inside.wait(timeout=50) == rp.DONE
    assert inside.stdout.split() == [f'{pilot.pilot_sandbox}/env/rp_named_env.mine', 'hello']
    assert inside.reason is None


def test_environments_are_prepared_by_calls(run: Run, base: Path) -> None:
    errors: dict[str, Exception] = {}

    def prepare(name: str, **spec: object) -> None:
        try:
            run.pilot.prepare_env(name, spec)
        except Exception as error:
            errors[name] = error

    task = run.tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', 'echo \\$A'],
                                                     'named_env': 'late'}))
    wait_until(lambda: str(task.reason) == 'waits for environment late')
    threads = [threading.Thread(target=prepare, args=('late',), kwargs={'type': 'shell', 'pre_exec': ['export A=1']}),
               threading.Thread(target=prepare, args=('late',), kwargs={'type': 'shell', 'pre_exec': ['export A=1']}),
               threading.Thread(target=prepare, args=('bad',), kwargs={'type': 'conda', 'pre_exec': ['PATH=/none']})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert list(errors) == ['bad']
    assert isinstance(errors['bad'], RuntimeError)
    assert 'conda is not on PATH: load a module' in str(errors['bad'])
    assert (task.wait(timeout=30), task.stdout.strip()) == (rp.DONE, '1')
    with pytest.raises(RuntimeError, match="'late' exists with another specification"):
        run.pilot.prepare_env('late', {'type': 'shell'})
    with pytest.raises(DescriptionError, match=r"'typ'.*'type'"):
        run.pilot.prepare_env('other', {'typ': 'venv'})


def test_masters_and_workers_run_in_an_environment(run: Run) -> None:
    run.pilot.prepare_env('mine', {'type': 'shell', 'pre_exec': [
        f'export PATH={Path(sys.executable).parent}:$PATH', 'export SEEN=inside']})
    master, = run.tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    run.tmgr.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'raptor_id': master.uid,
                                                'named_env': 'mine'}))
    task = run.one(mode=rp.TASK_EVAL, code='__import__("os").environ["SEEN"]', raptor_id=master.uid)
    assert (task.state, task.return_value) == (rp.DONE, 'inside'), task.exception
    with pytest.raises(DescriptionError, match=r'named_env.*run in RAPTOR workers'):
        run.one(mode=rp.TASK_EVAL, code='1', raptor_id=master.uid, named_env='mine')


def test_a_worker_runs_in_no_other_environment_than_its_own(run: Run) -> None:
    """This Python, which has the program, is on the PATH of all tasks."""
    run.pilot.prepare_env('plain', {'type': 'venv'})
    master, = run.tmgr.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    for pre_exec in ([], ['export A=1']):
        worker, = run.tmgr.submit_workers([rp.TaskDescription({
            'mode': rp.RAPTOR_WORKER, 'raptor_id': master.uid, 'named_env': 'plain', 'pre_exec': pre_exec})])
        worker.wait(timeout=60)
        assert (worker.state, str(worker.exception).partition(':')[0]) == (
            rp.FAILED, 'rp-raptor is not installed in environment plain')


def test_a_call_survives_the_hub(run: Run, base: Path) -> None:
    go, errors = base / 'go', []

    def prepare() -> None:
        try:
            run.pilot.prepare_env('mine', {'type': 'shell', 'pre_exec': [held(go), 'export A=1']})
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=prepare)
    thread.start()
    wait_until(Path(f'{go}.waits').exists)
    os.kill(hub_pid(run.session), signal.SIGKILL)
    go.touch()
    thread.join(50)
    assert not errors
    assert run.one(executable='/bin/sh', arguments=['-c', 'echo \\$A'], named_env='mine').stdout.strip() == '1'


def test_the_next_application_finds_what_is_being_built(base: Path) -> None:
    with rp.Session(uid='session') as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, prepare_env={
            'mine': {'pre_exec': [held(base / 'go')]}})))
        task = tmgr.submit_tasks(python(WHERE, named_env='mine'))
        wait_until(lambda: 'environment' in str(task.reason))
        session.close(terminate=False)
    with rp.Session(uid='session') as session:
        (task,) = session.get_task_managers('tmgr.0000').get_tasks()
        assert str(task.reason) == 'waits for environment mine (is being built)'
        (base / 'go').touch()
        assert (task.wait(timeout=50), task.stdout.strip()[-4:]) == (rp.DONE, 'mine')


def test_partitions_share_the_environments_of_their_pilot(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    count = base / 'count'
    tool = f'python3() {{ echo x >> {count}; command python3 "$@"; }}'
    pilot = pmgr.submit_pilots(pilot_description(base, partitions=2, prepare_env={'mine': {'pre_exec': [tool]}}))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([python(WHERE, named_env='mine', partition=number) for number in (0, 1)])
    assert tmgr.wait_tasks(timeout=50) == [rp.DONE, rp.DONE]
    assert {task.stdout.strip() for task in tasks} == {f'{pilot.pilot_sandbox}/env/rp_named_env.mine'}
    assert count.read_text().split() == ['x']
    pilot.prepare_env('mine', {'pre_exec': [tool]})


@pytest.mark.disorder('the agent is killed')
def test_builders_end_with_their_agent(run: Run, base: Path) -> None:
    go, name = base / 'go', f'of.{os.getpid()}'
    result: list[str] = []

    def prepare() -> None:
        with pytest.raises(RuntimeError) as raised:
            run.pilot.prepare_env(name, {'pre_exec': [held(go)]})
        result.append(str(raised.value))

    thread = threading.Thread(target=prepare)
    thread.start()
    wait_until(Path(f'{go}.waits').exists)
    assert processes_with(f'RP_BUILDS_ENVIRONMENT={name}')
    found = agent_process.noted(run.pilot.pilot_sandbox)
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    thread.join(50)
    assert run.pilot.uid in result[0]
    wait_until(lambda: not processes_with(f'RP_BUILDS_ENVIRONMENT={name}'))

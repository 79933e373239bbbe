"""Tasks that fail run again: on their pilot, on another one, without their agent, and without the application."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description, processes_with, wait_until

import radical.pilot as rp
from rp_agent.pipeline.losses import ROW

# each attempt adds a line to `tries` beside the sandbox, and goes by their number
COUNT = 'echo $RP_PILOT_ID >> ../tries; n=$(wc -l < ../tries); echo try $n; echo bad luck >&2; '


def sh(command: str, **values: Any) -> dict[str, Any]:
    return {'executable': '/bin/sh', 'arguments': ['-c', command.replace('$', '\\$')], 'retry_delay': 0.01, **values}


def submit(run: Run, command: str, **values: Any) -> rp.Task:
    task: rp.Task = run.tmgr.submit_tasks(rp.TaskDescription(sh(command, **values)))
    return task


def tries(task: rp.Task) -> int:
    """How often a task has begun to run on its pilot."""
    return len(Path(str(task.pilot_sandbox), 'tries').read_text().splitlines())


@pytest.mark.parametrize('way', [{}, {'pre_exec': ['true']}, {'pre_launch': ['true']}],
                         ids=['direct', 'exec', 'launch'])
def test_program_that_succeeds_in_its_third_attempt(run: Run, way: dict[str, Any]) -> None:
    seen: list[str] = []
    run.tmgr.register_callback(lambda task, state: seen.append(state))
    task = run.one(**sh(f'{COUNT} test -e junk && exit 9; touch junk; exit $((3 - n))', retries=4, **way))
    assert (task.state, task.exit_code, task.attempts, task.error) == (rp.DONE, 0, 3, None)
    assert task.read_stdout() == 'try 3\n'
    assert [(each['attempt'], each['kind'], each['reason'], each['exit_code']) for each in task.history] == [
        (1, 'exit', 'exit code: 2', 2), (2, 'exit', 'exit code: 1', 1)]
    for number, each in enumerate(task.history, 1):
        assert each['sandbox'] == f'{task.sandbox}.attempt{number}'
        assert Path(each['sandbox'], f'{task.uid}.out').read_text() == f'try {number}\n'
        assert Path(each['sandbox'], 'junk').exists()
        assert (each['pilot'], len(each['nodes'])) == (run.pilot.uid, 1)
        assert 0 < each['started'] <= each['ended']
    assert task.output_files == ['junk']
    wait_until(lambda: seen[-1] == rp.DONE)
    assert len(set(seen)) == len(seen) == 15   # its state has never gone back


def test_attempts_are_limited(run: Run) -> None:
    task = run.one(**sh(f'{COUNT} exit 7', retries=2))
    assert (task.state, task.exit_code, task.attempts, tries(task)) == (rp.FAILED, 7, 3, 3)
    assert task.error is not None
    assert (task.error.kind, task.error.last_lines) == ('exit', 'bad luck')
    assert [each['exit_code'] for each in task.history] == [7, 7]


@pytest.mark.parametrize(('command', 'rules', 'again'), [
    ('exit 3', [3], True),
    ('exit 3', [4, 'SIGBUS', 'timeout'], False),
    ('kill -BUS $$', ['SIGBUS'], True),
    ('kill -BUS $$', ['signal'], True),
    ('kill -BUS $$', ['SIGSEGV', 'exit'], False),
    ('exit 3', [r'stderr:^bad l.ck$'], True),
    ('exit 3', ['stderr:good luck'], False),
    ('exec sleep 60', ['timeout'], True),
    ('exec sleep 60', ['exit', 'signal'], False),
])
def test_rules_choose_what_is_retried(run: Run, command: str, rules: list[int | str], again: bool) -> None:
    limit = 0.5 if 'sleep' in command else 0.0
    task = run.one(**sh(f'{COUNT} {command}', retries=1, retry_on=rules, timeout=limit))
    assert task.attempts == tries(task) == (2 if again else 1)
    assert task.state == (rp.CANCELED if limit else rp.FAILED)


def test_what_can_never_work_is_not_retried(run: Run) -> None:
    for values in ({'executable': 'not-there'}, {'executable': './sim.sh', 'pre_exec': ['true']},
                   {'executable': '/bin/true', 'cores_per_rank': 1000}):
        task = run.one(retries=3, **values)
        assert (task.state, task.attempts, task.history) == (rp.FAILED, 1, [])


def test_description_changes_with_each_attempt(run: Run) -> None:
    task = run.one(**sh(f'{COUNT} echo $RP_CORES_PER_RANK $WAY >> ../seen; exit 1', retries=3, environment={'WAY': 'a'},
                        retry_with={'cores_per_rank': '*2', 'environment': {'WAY': 'b'}}))
    assert Path(str(task.pilot_sandbox), 'seen').read_text() == '1 a\n2 b\n4 b\n4 b\n'   # the node has four cores
    assert task.description.cores_per_rank == 1


def test_input_stays_and_output_does_not(run: Run, base: Path) -> None:
    (base / 'in.dat').write_text('data')
    for action in (rp.TRANSFER, rp.COPY):
        task = run.one(**sh('cat in.dat; test -e out && exit 5; echo x > out; test -e ../$RP_TASK_ID.attempt1',
                            retries=1, input_staging=[{'source': f'{base}/in.dat', 'target': 'in.dat',
                                                       'action': action}]))
        assert (task.state, task.stdout, task.attempts) == (rp.DONE, 'data', 2), task.error


def test_sandbox_of_several_tasks(run: Run) -> None:
    """Only the files of the task itself are moved."""
    run.one(**sh('echo theirs > theirs', sandbox='common'))
    task = run.one(**sh(f'{COUNT} echo mine > mine; cat theirs; test $n = 2', sandbox='common', expect=['mine'],
                        retries=1))
    assert (task.state, task.read_stdout()) == (rp.DONE, 'try 2\ntheirs\n')
    assert Path(task.history[0]['sandbox'], f'{task.uid}.out').read_text() == 'try 1\ntheirs\n'
    assert Path(task.history[0]['sandbox'], 'mine').exists()


def test_sandbox_that_is_removed(run: Run) -> None:
    task = run.one(**sh(f'{COUNT} test $n = 2', cleanup=True, retries=1))
    assert task.state == rp.DONE
    assert not list(Path(str(task.pilot_sandbox)).glob(f'{task.uid}*'))


@pytest.mark.parametrize(('command', 'expect', 'reason'), [
    ('echo x > a', ['a'], ''),
    ('touch a', ['a'], 'the expected file {}/a is empty'),
    ('true', ['a'], 'the expected file {}/a cannot be found: No such file or directory'),
    ('echo converged > log', ['log', 'command: grep -q converged log'], ''),
    ('echo lost > log', ['command: cat log; test -n "$RP_TASK_ID" && exit 4'],
     'the check `cat log; test -n "$RP_TASK_ID" && exit 4` has failed with exit code 4: lost'),
])
def test_expected_output(run: Run, command: str, expect: list[str], reason: str) -> None:
    task = run.one(**sh(command, expect=expect))
    if not reason:
        assert (task.state, task.error) == (rp.DONE, None)
        return
    assert (task.state, task.exit_code) == (rp.FAILED, 0)
    assert task.error is not None
    assert (task.error.kind, task.error.sentence) == ('output', reason.format(task.sandbox))


def test_output_that_comes_in_the_second_attempt(run: Run) -> None:
    """That of the first one is not taken for it."""
    task = run.one(**sh(f'{COUNT} test $n = 1 && touch a; test $n = 1 || echo x > a', expect=['a'], retries=3))
    assert (task.state, task.attempts, task.history[0]['kind']) == (rp.DONE, 2, 'output')


def test_task_that_waits_for_its_next_attempt_says_so_and_can_be_cancelled(run: Run) -> None:
    task = submit(run, f'{COUNT} exit 3', retries=1, retry_delay=600)
    wait_until(lambda: str(task.reason).startswith('waits for attempt 2 of 2, after '), 30)
    assert str(task.reason).endswith(' s: exit code: 3')
    assert (task.state, len(task.history)) == (rp.AGENT_EXECUTING, 1)
    task.cancel()
    assert task.wait(timeout=30) == rp.CANCELED
    assert isinstance(task.error, rp.TaskCanceledError)
    assert (len(task.history), tries(task)) == (1, 1)


def test_attempts_hold_no_resources(run: Run) -> None:
    waiting = [submit(run, f'{COUNT} exit 3', retries=1, retry_delay=600) for _ in range(4)]
    wait_until(lambda: all(task.history for task in waiting), 30)
    assert run.one(executable='/bin/true', cores_per_rank=4).state == rp.DONE
    run.pilot.cancel()
    run.tmgr.wait_tasks(timeout=30)
    assert {task.state for task in waiting} == {rp.CANCELED}


def test_agent_that_dies_between_two_attempts(run: Run, base: Path) -> None:
    """The task goes to another pilot, which counts the attempts of the first one."""
    task = submit(run, f'{COUNT} exit 3', retries=3, retry_delay=600)
    wait_until(lambda: bool(task.history), 30)
    (agent,) = [pid for pid, command in processes_with(run.pilot.pilot_sandbox).items() if 'rp_agent.cli' in command]
    other = run.pmgr.submit_pilots(pilot_description(base, exit_on_error=False))
    run.tmgr.add_pilots(other)
    other.wait(rp.PMGR_ACTIVE, timeout=30)
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: len(task.history) == 3, 30)   # the pilot that was lost, and the attempt on the second one
    assert [each['kind'] for each in task.history] == ['exit', 'pilot', 'exit']
    assert [each['attempt'] for each in task.history] == [1, 2, 3]
    assert [each['pilot'] for each in task.history] == [run.pilot.uid, run.pilot.uid, other.uid]
    assert (task.pilot, task.attempts, task.state) == (other.uid, 4, rp.AGENT_EXECUTING)
    task.cancel()
    assert task.wait(timeout=30) == rp.CANCELED


def test_retries_without_pilot_rule_end_with_the_pilot(run: Run) -> None:
    task = submit(run, 'exec sleep 60', retries=3, retry_on=['exit'])
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    (agent,) = [pid for pid, command in processes_with(run.pilot.pilot_sandbox).items() if 'rp_agent.cli' in command]
    os.kill(agent, signal.SIGKILL)
    assert task.wait(timeout=30) == rp.FAILED
    assert task.error is not None
    assert task.error.kind == 'pilot'


def test_descriptions_that_make_no_sense(run: Run) -> None:
    for values, complaint in (({'retry_on': [3]}, 'retries is 0: set retries'),
                              ({'retries': 1, 'mode': rp.TASK_SERVICE}, r'service\["restart"\]'),
                              ({'retries': 1, 'retry_with': {'timeout': 'long'}}, r'such as "\*2"'),
                              ({'retries': 1, 'retry_with': {'ranks_per_node': 0}}, 'ranks_per_node is 0'),
                              ({'expect': ['a'], 'mode': rp.TASK_EVAL, 'code': '1', 'raptor_id': 'm'},
                               'calls of RAPTOR')):
        with pytest.raises(ValueError, match=complaint):
            run.tmgr.submit_tasks(rp.TaskDescription({'executable': 'x', **values}))


def test_call_of_raptor_that_succeeds_in_its_third_attempt(run: Run, base: Path) -> None:
    master, = run.pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    run.tmgr.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'raptor_id': master.uid}))
    code = (f'file = open({str(base / "calls")!r}, "a+"); print("x", file=file, flush=True); file.seek(0)\n'
            'count = len(file.readlines())\nif count < 3: raise ValueError(f"call {count}")')
    task, other = run.tmgr.submit_tasks([
        rp.TaskDescription({'mode': rp.TASK_EXEC, 'code': code, 'raptor_id': master.uid, 'retries': 3,
                            'retry_delay': 0.01}),
        rp.TaskDescription({'mode': rp.TASK_EXEC, 'code': 'raise ValueError("bad")', 'raptor_id': master.uid,
                            'retries': 2, 'retry_on': ['timeout']})])
    run.tmgr.wait_tasks([task.uid, other.uid], timeout=45)
    assert (task.state, task.attempts) == (rp.DONE, 3), task.error
    assert [(each['kind'], each['reason']) for each in task.history] == [
        ('exception', "ValueError('call 1')"), ('exception', "ValueError('call 2')")]
    assert (other.state, other.attempts, other.history) == (rp.FAILED, 1, [])
    assert other.error is not None
    assert (other.error.kind, other.error.path) == ('exception', None)
    assert 'Traceback' in other.error.last_lines


def test_node_on_which_tasks_fail(session: rp.Session, base: Path) -> None:
    """It is taken out of use, the application is told, and failed tasks run on the other one."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, resource='local.localhost', cores=0, nodes=2))
    tmgr.add_pilots(pilot)

    def run_on(node: int, executable: str, number: int) -> None:
        tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': executable, 'tags': {'nodes': [node]}})
                                   for _ in range(number)])
        tmgr.wait_tasks([task.uid for task in tasks], timeout=30)

    run_on(0, '/bin/false', 1)
    run_on(1, '/bin/true', ROW)
    assert not any('not used any more' in line for line in pilot.log)
    run_on(0, '/bin/false', ROW - 1)
    wait_until(lambda: any('not used any more' in line for line in pilot.log), 30)
    tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true'}) for _ in range(20)])
    tmgr.wait_tasks([task.uid for task in tasks], timeout=30)
    assert {slot.node_index for task in tasks for slot in task.slots or ()} == {1}
    late = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true', 'tags': {'nodes': [0]}}))
    assert late.wait(timeout=30) == rp.FAILED
    assert late.error is not None
    assert late.error.kind == 'node'
    assert 'not used any more' in str(late.exception), late.exception


def test_program_that_needs_more_memory(run: Run) -> None:
    """It gets twice as much in each further attempt."""
    task = run.one(executable=sys.executable, arguments=['-c', 'block = bytearray(300 << 20)'], mem_per_rank=200,
                   retries=2, retry_on=['memory'], retry_delay=0.01, retry_with={'mem_per_rank': '*2'})
    assert (task.state, task.attempts) == (rp.DONE, 2), task.error
    assert task.history[0]['kind'] == 'memory'
    assert 'mem_per_rank is 200 MB' in task.history[0]['reason']

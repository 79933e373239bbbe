"""How the agent brings tasks to RAPTOR masters and back: each rule, with a scripted pipeline and scripted masters."""

from __future__ import annotations

import time

import pytest
from raptor_support import ACCESS, HOW, PILOT, RaptorPorts, a_master, a_task, a_worker, tasks

from rp_agent.raptor.master import STALLED
from rp_agent.task import AgentTask, divided
from rp_api import constants as c
from rp_api import states
from rp_api.raptor_link import BULK, RPC
from rp_api.wire import codec
from rp_api.wire.codec import NOTHING

LOST = f'raptor.0 has ended before it ran the task: {HOW}'


def nested(depth: int) -> list[object]:
    """Lists, one in the other."""
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.fixture
def agent() -> RaptorPorts:
    return RaptorPorts()


# tasks go to masters

def test_tasks_wait_for_their_master_and_for_being_asked_for(agent: RaptorPorts) -> None:
    agent.take(*tasks(3))
    agent.start()
    assert agent.given() == []
    agent.say('raptor.0', 'credit', 2)
    assert agent.given() == ['task.0', 'task.1']
    agent.say('raptor.0', 'credit', 5)
    agent.take(a_task('task.9'))
    assert agent.given() == ['task.0', 'task.1', 'task.2', 'task.9']
    assert agent.states['task.0'] == [states.AGENT_SCHEDULING, states.AGENT_EXECUTING_PENDING]


@pytest.mark.parametrize('master', ['raptor.0', '*'])
def test_tasks_of_higher_priority_go_first(agent: RaptorPorts, master: str) -> None:
    agent.start()
    agent.take(*[a_task(f'task.{number}', raptor_id=master, priority=number % 3 - 1) for number in range(6)])
    agent.take(a_task('task.late', raptor_id=master, priority=1), a_task('task.plain', raptor_id=master))
    agent.raptor.cancel(['task.4'])
    agent.say('raptor.0', 'credit', 4)
    assert agent.given() == ['task.2', 'task.5', 'task.late', 'task.1']
    agent.say('raptor.0', 'credit', 9)
    assert agent.given()[4:] == ['task.plain', 'task.0', 'task.3']


def test_what_a_master_gets_of_a_task(agent: RaptorPorts) -> None:
    agent.start(credit=1)
    agent.take(a_task(args=[1]))
    agent.say('raptor.0', 'credit', 2)
    agent.take(a_task('task.1'), a_task('task.2', args=[2]))
    alone, two = agent.messages('tasks')
    like = {'mode': c.TASK_FUNCTION, 'function': 'f', 'raptor_id': 'raptor.0'}
    assert codec.unpack_bulk(alone[0], alone[3]) == [like | {'args': [1]}]
    assert alone[1:3] == [['task.0'], ['/pilot/task.0']]
    assert codec.unpack(two[0]) == like   # what they have in common
    assert two[1:] == [['task.1', 'task.2'], ['/pilot/task.1', '/pilot/task.2'], [NOTHING, codec.pack({'args': [2]})]]


@pytest.mark.parametrize('others', [False, True])
def test_what_only_workers_read_is_passed_on_as_it_came(agent: RaptorPorts, others: bool) -> None:
    shared = a_task('task.0', function=b'f', args=b'0').description
    own = [NOTHING, codec.pack({'args': b'1'}), codec.pack({'args': b'2'})]
    agent.start(credit=9)
    agent.take(*[AgentTask(f'task.{number}', shared, PILOT, f'/pilot/task.{number}', each)
                 for number, each in enumerate(own)], *[a_task('task.3', args=[3])] * others)
    message, = agent.messages('tasks')
    assert [each['args'] for each in codec.unpack_bulk(message[0], message[3])] == [b'0', b'1', b'2', [3]][:3 + others]
    if not others:
        assert (codec.unpack(message[0]), message[3]) == (dict(shared), own)


def test_calls_that_share_a_description(agent: RaptorPorts) -> None:
    """Each keeps its own fate."""
    shared = a_task('task.0').description
    calls = [AgentTask(f'task.{number}', shared, PILOT, f'/pilot/task.{number}') for number in range(5)]
    calls[1].cancelled = True
    agent.start(credit=9)
    agent.take(calls[0], a_task('task.x', raptor_id='unknown'), a_worker(raptor_id='unknown'), *calls[1:])
    message, = agent.messages('tasks')
    assert message[0] == codec.pack(dict(shared))
    assert message[1] == ['task.0', 'task.2', 'task.3', 'task.4']
    assert message[3] == [NOTHING] * 4
    agent.say('raptor.0', 'results', ['task.2', 'task.0', 'task.2'], [codec.pack({'exit_code': 0})] * 3)
    assert [task.uid for task in agent.staged] == ['task.2', 'task.0']
    assert [task.uid for task in agent.gone] == ['task.1']


def test_tasks_are_divided_by_their_descriptions() -> None:
    call, plain = a_task(), AgentTask('task.plain', {'executable': 'x'}, PILOT, '/pilot')
    like_call, like_plain = (AgentTask('task.like', task.description, PILOT, '/pilot') for task in (call, plain))
    assert divided([call, like_call, plain, like_plain, call]) == ([call, like_call, call], [plain, like_plain])


def test_bulks_are_bounded(agent: RaptorPorts) -> None:
    agent.start(credit=10 * BULK)
    agent.take(*tasks(BULK + 1))
    assert [len(uids) for _, uids, *_ in agent.messages('tasks')] == [BULK, 1]
    agent.sent.clear()
    agent.take(*[a_task(f'large.{number}', function='f' * (3 << 20)) for number in range(4)])
    assert [len(uids) for _, uids, *_ in agent.messages('tasks')] == [2, 2]


def test_message_that_is_too_large_is_sent_in_parts(agent: RaptorPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    send = agent.send

    def small_only(master: bytes, operation: str, *arguments: object) -> None:
        if operation == 'tasks' and len(arguments[1]) > 2:   # type: ignore[arg-type]
            raise ValueError('too large')
        send(master, operation, *arguments)

    monkeypatch.setattr(agent, 'send', small_only)
    agent.start(credit=9)
    agent.take(*tasks(7))
    assert agent.given() == [f'task.{number}' for number in range(7)]


def test_tasks_for_any_master_are_shared_by_those_who_ask(agent: RaptorPorts) -> None:
    for number in range(3):
        agent.start(f'raptor.{number}')
    agent.take(*tasks(20, raptor_id='*'))
    agent.say('raptor.1', 'credit', 2)
    assert agent.given() == ['task.0', 'task.1']
    agent.say('raptor.0', 'credit', 100)
    assert len(agent.given('raptor.0')) == 18
    for number in range(3):
        agent.say(f'raptor.{number}', 'credit', 100)
    agent.take(*[a_task(f'more.{number}', raptor_id='*') for number in range(30)])
    assert [len(agent.given(f'raptor.{number}')) for number in range(3)] == [18, 16, 16]


def test_tasks_for_any_master_are_shared_by_ranks(agent: RaptorPorts) -> None:
    agent.take(*tasks(40, raptor_id='*'))
    for number, ranks in enumerate((3, 1, 0)):
        agent.start(f'raptor.{number}')
        agent.say(f'raptor.{number}', 'ranks', ranks)
    for number in (1, 2):
        agent.say(f'raptor.{number}', 'credit', 10)
    assert agent.given('raptor.1') == [f'task.{number}' for number in range(10)]
    assert agent.given('raptor.2') == []   # it has no worker yet
    agent.say('raptor.0', 'credit', 100)
    assert len(agent.given('raptor.0')) == 30


def test_tasks_that_have_not_started_go_to_another_master(agent: RaptorPorts) -> None:
    agent.start('raptor.0', credit=100)
    agent.say('raptor.0', 'ranks', 1)
    agent.take(*tasks(9, raptor_id='*'))
    agent.say('raptor.0', 'states', states.AGENT_EXECUTING, ['task.0', 'task.8'])
    agent.start('raptor.1')
    agent.say('raptor.1', 'ranks', 2)
    assert agent.messages('give_back') == []   # it accepts none
    agent.say('raptor.1', 'credit', 50)
    assert agent.messages('give_back', 'raptor.0') == [[6]]
    agent.say('raptor.1', 'credit', 1)
    assert len(agent.messages('give_back')) == 1   # before the answer
    cancelled = agent.raptor._registry.masters['raptor.0'].held['task.7']
    cancelled.cancelled = True
    agent.raptor.cancel(['task.7'])
    agent.say('raptor.0', 'returned', ['task.6', 'task.7', 'task.8', 'unknown'])
    assert agent.given('raptor.1') == ['task.6', 'task.8']
    assert agent.ended() == {'task.7': (states.CANCELED, 'cancelled while it waited for its RAPTOR master')}
    agent.say('raptor.1', 'states', states.AGENT_EXECUTING, ['task.6', 'task.8'])
    agent.say('raptor.1', 'results', ['task.6', 'task.8'], [{'exit_code': 0}] * 2)
    assert [task.uid for task in agent.staged] == ['task.6', 'task.8']
    agent.say('raptor.1', 'credit', 2)
    assert agent.messages('give_back', 'raptor.0')[1:] == [[4]]
    agent.say('raptor.0', 'returned', [])
    agent.say('raptor.1', 'credit', 1)
    assert len(agent.messages('give_back')) == 2   # it has none to give back


def test_named_tasks_come_before_those_for_any(agent: RaptorPorts) -> None:
    agent.start()
    agent.take(a_task('any', raptor_id='*'), a_task('mine'))
    agent.say('raptor.0', 'credit', 1)
    assert agent.given() == ['mine']


def test_masters_and_workers_are_scheduled_when_it_is_time(agent: RaptorPorts) -> None:
    early, master, late = a_worker('worker.0'), a_master(), a_worker('worker.1')
    agent.take(early)
    agent.take(master)
    assert agent.scheduled == [master]
    agent.say('raptor.0', 'hello', 'raptor.0', 7, ACCESS)
    agent.take(late)
    assert agent.scheduled == [master, early, late]
    assert agent.up == {'raptor.0': ACCESS}
    assert agent.messages('welcome') == [[{'nodes': 1}]]


def test_executing_is_said_of_a_master_when_it_is_up(agent: RaptorPorts) -> None:
    master, other = a_master(), a_task('other')
    agent.take(master)
    assert agent.raptor.visible([master, other], states.AGENT_EXECUTING) == [other]
    assert agent.raptor.visible([master, other], states.AGENT_STAGING_OUTPUT) == [master, other]
    agent.say('raptor.0', 'hello', 'raptor.0', 7, ACCESS)
    assert agent.raptor.visible([master], states.AGENT_EXECUTING) == [master]


# what masters say

def test_results_let_tasks_go_on(agent: RaptorPorts) -> None:
    agent.start(credit=9)
    agent.take(*tasks(4))
    agent.say('raptor.0', 'states', states.AGENT_EXECUTING, ['task.0', 'task.7'])
    agent.say('raptor.0', 'results', ['task.0', 'task.1', 'task.2', 'task.7', 'task.0'], [
        {'exit_code': 0, 'return_value': {'x': [1]}, 'stdout': 'out'},
        {'exit_code': 1, 'exception': "ValueError('no')", 'exception_detail': 'trace'},
        {}, {}, {'return_value': 'twice'}])
    first, second, third = agent.staged
    assert (first.target_state, first.return_value, first.stdout) == (states.DONE, {'x': [1]}, 'out')
    assert (second.target_state, second.exception) == (states.FAILED, "ValueError('no')")
    assert (second.exception_detail, second.exit_code) == ('trace', 1)
    assert third.target_state == states.DONE
    assert agent.states['task.0'][-2:] == [states.AGENT_EXECUTING, states.AGENT_STAGING_OUTPUT_PENDING]


def test_what_was_not_executed_leaves_at_once(agent: RaptorPorts) -> None:
    agent.start(credit=9)
    agent.take(*tasks(2))
    agent.say('raptor.0', 'states', states.AGENT_EXECUTING, ['task.1'])
    agent.say('raptor.0', 'results', ['task.0', 'task.1'], [{'target_state': states.CANCELED}] * 2)
    assert agent.ended() == {'task.0': (states.CANCELED, None)}
    assert [task.uid for task in agent.staged] == ['task.1']


def test_results_that_are_packed_are_passed_on(agent: RaptorPorts) -> None:
    """Nobody opens them here; where others have a say in a result, it is the same as if it had come open."""
    agent.start(credit=1)
    agent.take(a_task('task.0'))
    packed = codec.pack({'exit_code': 0, 'return_value': 3})
    agent.say('raptor.0', 'results', ['task.0'], [packed])
    task, = agent.staged
    assert (task.packed, task.target_state, task.exit_code) == (packed, states.DONE, 0)
    assert task.result() == {'exit_code': 0, 'return_value': 3}
    task.output_files = ['a']
    assert task.result() == {'exit_code': 0, 'return_value': 3, 'output_files': ['a']}


@pytest.mark.parametrize(('result', 'expected'), [
    ({'exit_code': '3', 'stdout': 7, 'exception': 5}, (None, '', '5')),
    ({'exit_code': 2, 'stdout': ['a', 'b' * 2000], 'target_state': 'odd'},
     (2, ['a', '[... CONTENT SHORTENED ...]\n' + 'b' * 1024], "RuntimeError('task failed')"))])
def test_odd_results_do_no_harm(agent: RaptorPorts, result: dict[str, object], expected: tuple[object, ...]) -> None:
    agent.start(credit=1)
    agent.take(a_task())
    agent.say('raptor.0', 'results', ['task.0'], [result])
    task, = agent.staged + agent.gone
    assert (task.exit_code, task.stdout, task.exception) == expected
    assert task.target_state == states.FAILED


@pytest.mark.parametrize('result', [
    {'stdout': nested(3000)}, {'exception': nested(3000)}, {'return_value': 1, 'exception_detail': nested(3000)}])
def test_result_that_cannot_be_read_fails_its_task(agent: RaptorPorts, result: dict[str, object]) -> None:
    """The others of the same message have theirs."""
    agent.start(credit=3)
    agent.take(*tasks(3))
    fine = {'return_value': 1}
    agent.say('raptor.0', 'results', ['task.0', 'task.1', 'task.2'], [fine, result, fine])
    found = {task.uid: task for task in agent.staged + agent.gone}
    assert [found[f'task.{number}'].target_state for number in range(3)] == [
        states.DONE, states.FAILED, states.DONE]
    assert 'RecursionError' in str(found['task.1'].exception)


def test_task_that_cannot_be_sent_fails_alone(agent: RaptorPorts) -> None:
    """It may be nested too deeply."""
    agent.start(credit=3)
    agent.take(a_task('task.0'), a_task('task.1', args=nested(3000)), a_task('task.2'))
    assert agent.given() == ['task.0', 'task.2']
    (task,) = agent.gone
    assert (task.uid, task.target_state) == ('task.1', states.FAILED)
    assert task.exception


def test_strangers_are_not_listened_to(agent: RaptorPorts) -> None:
    agent.say('raptor.0', 'hello', 'raptor.0', 7, ACCESS)
    agent.say('raptor.0', 'credit', 5)
    agent.take(a_master())
    agent.say('raptor.0', 'hello', 'raptor.0', 7, {'address': 'x'})
    assert len(agent.refused) == 3
    assert not agent.up


def test_master_that_is_connected_again_is_the_same(agent: RaptorPorts) -> None:
    agent.start(credit=2)
    agent.raptor.receive(b'new', 'hello', ['raptor.0', 7, ACCESS])
    agent.take(*tasks(2))
    assert {master for master, operation, *_ in agent.sent if operation == 'tasks'} == {b'new'}


def test_questions_are_asked_and_answered_once(agent: RaptorPorts) -> None:
    ask = {'mode': RPC, 'method': 'stop', 'args': [1], 'kwargs': {'x': 2}}
    agent.take(a_task('rpc.0', **ask))
    agent.start()
    agent.take(a_task('rpc.1', **ask))
    assert agent.messages('rpc') == [[1, 'stop', [1], {'x': 2}], [2, 'stop', [1], {'x': 2}]]
    agent.say('raptor.0', 'rpc_result', 1, True, 'value')
    agent.say('raptor.0', 'rpc_result', 2, False, 'unknown command')
    agent.say('raptor.0', 'rpc_result', 2, True, 'again')
    assert [(task.target_state, task.return_value, task.exception) for task in agent.staged] == [
        (states.DONE, 'value', None), (states.FAILED, None, 'unknown command')]


# what masters submit

def test_worker_of_the_masters_own(agent: RaptorPorts) -> None:
    agent.start()
    agent.say('raptor.0', 'submit', [{'uid': 'w.0', 'mode': c.RAPTOR_WORKER, 'ranks': 2, 'raptor_class': 'C'}])
    worker, = agent.made
    assert worker.description['arguments'] == ['', 'C', 'raptor.0']
    assert worker.description['sandbox'] == '/pilot/raptor.0'
    agent.take(worker)
    assert agent.scheduled[-1] is worker
    assert worker.beside is agent.scheduled[0], 'the master, whose resources are not free before'
    assert agent.raptor.visible([worker], states.AGENT_SCHEDULING) == []
    assert agent.raptor.visible([worker], states.AGENT_EXECUTING) == []
    agent.end(worker)
    assert agent.gone == []
    assert agent.messages('task_state') == [
        ['w.0', states.AGENT_EXECUTING, None],
        ['w.0', states.DONE, {'exit_code': 0, 'target_state': states.DONE}]]


@pytest.mark.parametrize(('description', 'words'), [
    ({'mode': c.TASK_FUNCTION, 'function': 'f'}, 'a master can have the agent run only'),
    ({'executable': ''}, 'executable'), ({'executable': '/bin/true', 'ranks': 'many'}, 'ranks'),
    ({'executable': '/bin/true', 'environment': 7}, 'environment'), ({'uid': 'known', 'executable': 'x'}, 'another')])
def test_bad_submissions_fail(agent: RaptorPorts, description: dict[str, object], words: str) -> None:
    agent.known.add('known')
    agent.start()
    agent.say('raptor.0', 'submit', [{'uid': 'x.0', **description}])
    (_, state, result), = agent.messages('task_state')
    assert state == states.FAILED
    assert words in result['exception']
    assert agent.made == []


def test_executable_passes_its_master_twice(agent: RaptorPorts) -> None:
    task = a_task(mode=c.TASK_EXECUTABLE, executable='/bin/x')
    agent.start(credit=1)
    agent.take(task)
    assert agent.given() == ['task.0']
    agent.say('raptor.0', 'submit', [{'uid': 'task.0', 'executable': '/bin/y', 'raptor_id': ''}])
    assert agent.scheduled[-1] is task
    assert task.description['executable'] == '/bin/y'
    agent.say('raptor.0', 'results', ['task.0'], [{'stdout': 'too early'}])
    agent.end(task, exit_code=3, target_state=states.FAILED, exception='E', stdout='said')
    assert agent.gone == []
    assert agent.messages('task_state') == [['task.0', states.FAILED, {
        'exit_code': 3, 'stdout': 'said', 'exception': 'E', 'target_state': states.FAILED}]]
    agent.say('raptor.0', 'results', ['task.0'], [{'stdout': 'changed'}])
    assert agent.staged == [task]
    assert (task.target_state, task.exit_code, task.stdout) == (states.FAILED, 3, 'changed')


def test_executable_outlives_its_master(agent: RaptorPorts) -> None:
    task = a_task(mode=c.TASK_EXECUTABLE, executable='/bin/x')
    master = agent.start(credit=1)
    agent.take(task)
    agent.say('raptor.0', 'submit', [{'uid': 'task.0', 'executable': '/bin/y'}])
    agent.end(master)
    agent.pass_time()
    agent.end(task)
    assert agent.gone == [master, task]
    assert task.target_state == states.DONE


# how they end

def test_end_of_a_master_ends_its_tasks(agent: RaptorPorts) -> None:
    master = agent.start(credit=2)
    agent.take(*tasks(2), a_task('waits', function='g'), a_task('rpc.0', mode=RPC, method='x'))
    agent.end(master)
    assert agent.ended().keys() == {'raptor.0'}
    agent.say('raptor.0', 'results', ['task.0'], [{}])   # it was still on its way
    agent.pass_time()
    agent.take(a_task('late'), a_worker())
    assert agent.ended() == {'raptor.0': (states.DONE, None)} | dict.fromkeys(
        ['task.1', 'waits', 'rpc.0', 'late', 'worker.0'], (states.FAILED, LOST))
    assert [task.uid for task in agent.staged] == ['task.0']
    assert agent.removed == [('raptor.0', 'ipc:///x')]


def test_master_that_has_said_goodbye_is_not_waited_for(agent: RaptorPorts) -> None:
    master = agent.start(credit=2)
    agent.say('raptor.0', 'bye')
    agent.take(a_task())
    assert agent.given() == []
    agent.end(master)
    assert agent.ended()['task.0'] == (states.FAILED, LOST)


@pytest.mark.parametrize(('values', 'how'), [
    ({'exit_code': 1, 'target_state': states.FAILED, 'exception': 'E', 'exception_detail': 'exit code: 1'},
     'it has failed: exit code: 1'),
    ({'target_state': states.CANCELED, 'exception': 'why'}, 'it was cancelled (why)')])
def test_master_that_has_never_come_up(agent: RaptorPorts, values: dict[str, object], how: str) -> None:
    master, worker = a_master(), a_worker()
    agent.take(a_task(), worker)
    agent.end(master, **values)   # its input could not be staged, perhaps
    assert agent.ended()['task.0'][1] == f'raptor.0 has ended before it ran the task: {how}'
    assert agent.ended()['worker.0'][0] == states.FAILED
    assert agent.scheduled == []


def test_tasks_for_any_master_are_given_again_once(agent: RaptorPorts) -> None:
    masters = [agent.start(f'raptor.{number}') for number in range(3)]
    for number in range(3):
        agent.take(*tasks(2, raptor_id='*') if number == 0 else [])
        agent.say(f'raptor.{number}', 'credit', 9)
        agent.end(masters[number])
        agent.pass_time()
    assert agent.given() == ['task.0', 'task.1', 'task.0', 'task.1']
    assert agent.ended()['task.0'] == (states.FAILED, f'raptor.1 has ended before it ran the task: {HOW}')


def test_tasks_for_any_master_fail_when_none_is_left(agent: RaptorPorts) -> None:
    first, second = agent.start('raptor.0'), a_master('raptor.1')
    agent.take(a_task(raptor_id='*'))
    agent.take(second)
    agent.end(first)
    agent.pass_time()
    assert agent.ended().keys() == {'raptor.0'}
    agent.end(second)
    agent.take(a_task('late', raptor_id='*'))
    expected = f'no RAPTOR master of pilot.0000 is left: raptor.0: {HOW}; raptor.1: {HOW}'
    assert agent.ended()['task.0'] == agent.ended()['late'] == (states.FAILED, expected)


def test_workers_that_outlive_their_master_are_ended(agent: RaptorPorts) -> None:
    master = agent.start()
    agent.take(a_worker('worker.0'), a_worker('worker.1'))
    agent.say('raptor.0', 'submit', [{'uid': 'x.0', 'executable': '/bin/true'}])
    agent.end(master)
    agent.pass_time()
    agent.end(agent.scheduled[1])
    agent.pass_time()
    assert agent.cancelled == ['worker.1', 'x.0']


def test_cancel(agent: RaptorPorts) -> None:
    agent.take(a_worker())
    agent.raptor.cancel(['worker.0'])
    agent.start(credit=1)
    agent.take(*tasks(2), a_task('any', raptor_id='*'))
    agent.raptor.cancel(['task.0', 'task.1', 'any', 'unknown'])
    agent.raptor.check()
    reason = 'cancelled while it waited for its RAPTOR master'
    assert agent.ended() == dict.fromkeys(['worker.0', 'task.1', 'any'], (states.CANCELED, reason))
    assert agent.messages('cancel') == [[['task.0']]]
    cancelled = a_task('task.3')
    cancelled.cancelled = True
    agent.take(cancelled)
    assert agent.ended()['task.3'] == (states.CANCELED, reason)


def test_master_has_its_own_tasks_cancelled(agent: RaptorPorts) -> None:
    agent.start(credit=1)
    agent.take(a_task(mode=c.TASK_EXECUTABLE, executable='/bin/x'))
    agent.say('raptor.0', 'submit', [{'uid': uid, 'executable': '/bin/y'} for uid in ('task.0', 'x.0')])
    agent.say('raptor.0', 'cancel', ['x.0', 'task.0', 'task.9'])
    assert agent.cancelled == ['x.0', 'task.0']


def test_stop(agent: RaptorPorts) -> None:
    master = agent.start(credit=2)
    executable = a_task('exe', mode=c.TASK_EXECUTABLE, executable='/bin/x')
    agent.take(executable, *tasks(3), a_worker('w', raptor_id='raptor.7'), a_task('any', raptor_id='*'))
    agent.say('raptor.0', 'submit', [{'uid': 'exe', 'executable': '/bin/y'}])
    agent.raptor.stop('the pilot ends')
    agent.take(a_task('late'))
    assert agent.messages('stop') == [['the pilot ends']]
    agent.say('raptor.0', 'results', ['task.0'], [{}])
    agent.end(executable, target_state=states.CANCELED, exception='the pilot ends')
    agent.end(master)
    agent.pass_time()
    assert agent.staged == []
    assert {uid: state for uid, (state, _) in agent.ended().items()} == dict.fromkeys(
        ['exe', 'task.0', 'task.1', 'task.2', 'w', 'any', 'late'], states.CANCELED) | {'raptor.0': states.DONE}


def test_what_may_wait_for_others_is_held_back(agent: RaptorPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent must not stop to ask for tasks when it has only such ones: a master or a worker may be next."""
    agent.take(*tasks(3), a_task('any', raptor_id='*'))
    assert agent.raptor.held_back == 4
    agent.start(credit=1)
    assert agent.raptor.held_back == 0
    now = time.monotonic()
    monkeypatch.setattr(time, 'monotonic', lambda: now + 2 * STALLED)
    assert agent.raptor.held_back == 4
    agent.say('raptor.0', 'results', ['task.0'], [{}])
    assert agent.raptor.held_back == 0


# tasks, masters and workers that wait

def test_masters_and_workers_without_a_place_are_reported(agent: RaptorPorts) -> None:
    master = agent.start()
    master.slots = [{'node_index': 0}]
    placed, cancelled, early = a_worker('worker.0'), a_worker('gone'), a_worker('needs.environment')
    waiting, other = a_worker('worker.1', ranks=3, gpus_per_rank=0.5), a_master('raptor.1')
    agent.take(placed, waiting, cancelled, early, other)
    placed.slots = [{'node_index': 0}]
    cancelled.target_state = states.CANCELED
    for task in (placed, waiting, cancelled, other):
        task.ticket = 5
    agent.pass_time()
    assert agent.waiting == [
        (uid, f'resources for {ranks}', states.AGENT_SCHEDULING)
        for uid, ranks in (('worker.1', '3 ranks with 1 cores and 0.5 GPUs each'),
                           ('raptor.1', '1 ranks with 1 cores and 0 GPUs each'))]
    agent.pass_time()
    assert len(agent.waiting) == 2


def test_a_worker_that_the_application_does_not_know_is_reported_with_its_master(agent: RaptorPorts) -> None:
    agent.start()
    agent.say('raptor.0', 'submit', [{'uid': 'own', 'mode': c.RAPTOR_WORKER, 'raptor_id': 'raptor.0'}])
    agent.take(*agent.made)
    agent.made[0].ticket = 5
    agent.pass_time()
    (uid, text, state), = agent.waiting
    assert (uid, state) == ('raptor.0', states.AGENT_EXECUTING)
    assert text == 'its worker own waits for resources for 1 ranks with 1 cores and 0 GPUs each'
    agent.raptor.visible(agent.made, states.AGENT_EXECUTING)
    assert agent.waiting[1:] == [('raptor.0', '', states.AGENT_EXECUTING)]


def test_what_a_master_waits_for_is_reported(agent: RaptorPorts) -> None:
    master = agent.start()
    agent.say('raptor.0', 'waits', 'workers')
    agent.say('raptor.0', 'bye')
    agent.say('raptor.0', 'waits', '')
    assert agent.waiting == [('raptor.0', 'workers', states.AGENT_EXECUTING)]
    agent.end(master)

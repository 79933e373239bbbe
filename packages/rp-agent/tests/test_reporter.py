"""Reports wait for others, but not long; of several states of a task the last one is sent, when there is room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rp_agent.reporting import reporter as module
from rp_agent.reporting.reporter import DELAY_PER_TASK, MAX_DELAY, MAX_STATE_DELAY, MAX_WAITING_DELAY, Reporter
from rp_agent.reporting.result_spool import ResultSpool
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination import spool_file
from rp_api.coordination.contract import AgentConnection, Update, packed_info
from rp_api.wire import codec
from rp_profiling.levels import DEFAULT, FULL
from rp_profiling.read.profile import read_profile
from rp_profiling.write.detail import Detail
from rp_profiling.write.host_clock import Moment
from rp_profiling.write.tracer import Tracer


class Clock:
    """A loop of which only the timers are needed; time passes when the test says so."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        self.timers.append((delay, callback))

    def pass_time(self) -> None:
        timers, self.timers = self.timers, []
        for _, callback in timers:
            callback()


class Wire(AgentConnection):
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[Update]] = []
        self.has_room = True
        self.pending: list[Update] = []
        self.awaited: list[Callable[[], object]] = []

    @property
    def room(self) -> bool:
        return self.has_room

    @property
    def settled(self) -> bool:
        return not self.pending

    def when_settled(self, callback: Callable[[], object]) -> None:
        self.awaited.append(callback)

    def settle(self) -> None:
        """Accept everything."""
        awaited, self.awaited = self.awaited, []
        for callback in awaited:
            callback()

    def tell_moment(self, moment: Moment) -> None:
        raise AssertionError('a reporter knows nothing of clocks')

    def update_pilots(self, updates: Sequence[Update]) -> None:
        raise AssertionError('a reporter knows nothing of pilots')

    def update_tasks(self, updates: Sequence[Update]) -> None:
        assert updates, 'an empty message'
        self.sent.append(list(updates))

    def follow_tasks(self, uids: Sequence[str]) -> None:
        raise NotImplementedError

    def hold(self, on: bool) -> None:
        raise AssertionError('a reporter takes nothing in')

    def unsettled(self) -> list[Update]:
        return self.pending

    def uids(self) -> list[str]:
        """Of all updates that were sent, in order."""
        return [update.uid for bulk in self.sent for update in bulk]

    def close(self) -> None:
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where results go that cannot be sent."""
    return tmp_path / 'agent_0.updates'


@pytest.fixture
def reporter(clock: Clock, wire: Wire, path: Path) -> Reporter:
    loop: Any = clock
    return Reporter(loop, wire, ResultSpool(str(path)))


def tasks(*uids: str) -> list[AgentTask]:
    return [AgentTask(uid, {}, 'pilot.0000', '/') for uid in uids]


def finished(*uids: str) -> list[AgentTask]:
    """Tasks that have left the agent."""
    found = tasks(*uids)
    for task in found:
        task.stdout = 'a line'
        task.target_state = states.DONE
        task.state = states.TMGR_STAGING_OUTPUT_PENDING
    return found


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two results are more than what may wait in memory."""
    monkeypatch.setattr(module, 'MOST_BYTES', 1000)


def test_states_are_sent_together_a_little_later(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    reporter.changed(tasks('a', 'b'), states.AGENT_SCHEDULING)
    reporter.changed(tasks('c'), states.AGENT_EXECUTING)
    assert wire.sent == []
    assert len(clock.timers) == 1
    clock.pass_time()
    assert wire.sent == [[Update('a', states.AGENT_SCHEDULING), Update('b', states.AGENT_SCHEDULING),
                          Update('c', states.AGENT_EXECUTING)]]
    clock.pass_time()
    assert len(wire.sent) == 1


def test_only_the_last_state_of_a_task_is_sent(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    for state in (states.AGENT_STAGING_INPUT, states.AGENT_SCHEDULING, states.AGENT_EXECUTING):
        reporter.changed(tasks('a'), state)
    clock.pass_time()
    assert wire.sent == [[Update('a', states.AGENT_EXECUTING)]]


@pytest.mark.parametrize('level', [DEFAULT, FULL])
def test_messages_are_traced(clock: Clock, wire: Wire, path: Path, tmp_path: Path, level: str) -> None:
    """With all detail also each request, and each update that was sent."""
    tracer, loop = Tracer(tmp_path / 'agent_0.prof', 'agent_0', detail=Detail(level)), clock
    reporter = Reporter(loop, wire, ResultSpool(str(path)), tracer)   # type: ignore[arg-type]
    reporter.changed(tasks('a'), states.AGENT_SCHEDULING)
    reporter.changed(tasks('a', 'b'), states.AGENT_EXECUTING)
    clock.pass_time()
    tracer.close()
    rows = [(row.event, row.uid, row.msg) for row in read_profile(tmp_path / 'agent_0.prof')[1:-1]]
    bulk = ('update_pushed', '', 'bulk size: 2')
    assert rows == ([bulk] if level == DEFAULT else [
        ('update_request', 'a', states.AGENT_SCHEDULING), ('update_request', 'a', states.AGENT_EXECUTING),
        ('update_request', 'b', states.AGENT_EXECUTING), bulk, ('update_pushed', 'a', states.AGENT_EXECUTING),
        ('update_pushed', 'b', states.AGENT_EXECUTING)])


@pytest.mark.parametrize(('number', 'delay'), [(0, 0), (1, 0), (100, 100 * DELAY_PER_TASK),
                                               (100_000, MAX_STATE_DELAY)])
def test_reports_wait_longer_when_there_are_many_tasks(
        reporter: Reporter, clock: Clock, number: int, delay: float) -> None:
    reporter.tasks = number
    reporter.changed(tasks('a'), states.AGENT_EXECUTING)
    assert clock.timers[0][0] == pytest.approx(delay)
    reporter.finished(finished('b'))
    assert clock.timers[1][0] == pytest.approx(min(delay, MAX_DELAY))


def test_results_do_not_wait_for_states_when_there_are_many_tasks(
        reporter: Reporter, clock: Clock, wire: Wire) -> None:
    """Most tasks have gone on by the time when their state would be told."""
    reporter.tasks = 100_000
    reporter.changed(tasks('a', 'b'), states.AGENT_EXECUTING)
    reporter.finished(finished('a'))
    (states_due, results_due) = (callback for _, callback in clock.timers)
    clock.timers.clear()
    results_due()
    assert wire.uids() == ['a']
    states_due()
    clock.pass_time()
    assert wire.sent[1:] == [[Update('b', states.AGENT_EXECUTING)]]


def test_states_that_do_not_last_are_not_told_when_there_are_many_tasks(
        reporter: Reporter, clock: Clock, wire: Wire) -> None:
    reporter.tasks = 100_000
    reporter.changed(tasks('a', 'b', 'c'), states.AGENT_EXECUTING_PENDING)
    clock.pass_time()
    reporter.changed(tasks('a', 'b'), states.AGENT_EXECUTING)
    reporter.finished(finished('a'))
    clock.pass_time()
    assert wire.sent == [[Update('c', states.AGENT_EXECUTING_PENDING), Update('a', states.DONE, {'stdout': 'a line'})]]
    clock.pass_time()
    assert wire.sent[1:] == [[Update('b', states.AGENT_EXECUTING)]]
    clock.pass_time()
    assert not clock.timers   # nothing is left to be told


def test_that_tasks_wait_is_told_last(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    """Of many tasks nearly all do, and most have gone on by then."""
    reporter.tasks = 100_000
    reporter.changed(tasks('a', 'b'), states.AGENT_SCHEDULING)
    reporter.changed(tasks('c'), states.AGENT_EXECUTING)
    clock.pass_time()
    clock.pass_time()
    assert wire.uids() == ['c']
    reporter.changed(tasks('a'), states.AGENT_EXECUTING)
    clock.pass_time()
    clock.pass_time()
    assert wire.uids() == ['c', 'a']
    for _ in range(round(MAX_WAITING_DELAY / MAX_STATE_DELAY) - 4):
        clock.pass_time()
    assert wire.sent[2:] == [[Update('b', states.AGENT_SCHEDULING)]]
    clock.pass_time()
    assert not clock.timers   # nothing is left to be told


def test_what_somebody_waits_for_is_told_soon(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    reporter.tasks = 100_000
    reporter.changed(tasks('a'), states.AGENT_EXECUTING, {'raptor': {}})
    assert clock.timers[0][0] == pytest.approx(MAX_DELAY)
    clock.timers.pop(0)[1]()
    assert wire.sent == [[Update('a', states.AGENT_EXECUTING, {'raptor': {}})]]


@pytest.mark.parametrize('staging', [[], [{'action': 'Transfer'}]])
def test_a_task_takes_its_result_along(reporter: Reporter, clock: Clock, wire: Wire, staging: list[Any]) -> None:
    """One that the client has to stage output of is not done before."""
    task = AgentTask('a', {'output_staging': staging}, 'pilot.0000', '/')
    task.exit_code = 0
    task.stdout = 'hello'
    task.target_state = states.DONE
    task.state = states.TMGR_STAGING_OUTPUT_PENDING
    reporter.changed([task], states.TMGR_STAGING_OUTPUT_PENDING)
    reporter.finished([task])
    clock.pass_time()
    info = {'exit_code': 0, 'stdout': 'hello'}
    assert wire.sent == [[Update('a', states.TMGR_STAGING_OUTPUT_PENDING, info | {'target_state': states.DONE})
                          if staging else Update('a', states.DONE, info)]]


def test_a_packed_result_stays_packed(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    """Unless there is something to add."""
    closed, opened = finished('a', 'b')
    closed.packed = opened.packed = codec.pack({'exit_code': 0})
    opened.output_files = ['file']
    reporter.finished([closed, opened])
    clock.pass_time()
    (first, second), = wire.sent
    assert packed_info(first.info) is closed.packed
    assert second == Update('b', states.DONE, {'exit_code': 0, 'stdout': 'a line', 'output_files': ['file']})


def test_packed_results_of_calls_that_share_a_description(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    done = finished('a', 'b', 'c', 'd')
    for task, code in zip(done, (0, 0, 1, 0), strict=True):
        task.description, task.packed = done[0].description, codec.pack({'exit_code': code})
    done[3].target_state = states.FAILED
    reporter.finished(done)
    clock.pass_time()
    first, second, third, last = wire.sent[0]
    assert [(update.uid, packed_info(update.info)) for update in (first, second, third)] == [
        (task.uid, task.packed) for task in done[:3]]
    assert last == Update('d', states.TMGR_STAGING_OUTPUT_PENDING, {
        'exit_code': 0, 'stdout': 'a line', 'target_state': states.FAILED})


def test_a_task_that_ended_early_says_how_far_it_got(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    task, = tasks('a')
    task.state = states.AGENT_SCHEDULING
    task.fail('it can never run', 'too large', 'description')
    reporter.changed([task], states.AGENT_SCHEDULING)
    reporter.finished([task])
    clock.pass_time()
    assert wire.sent == [[Update('a', states.FAILED, {
        'exception': 'it can never run', 'exception_detail': 'too large', 'error': {'kind': 'description'},
        'reached': states.AGENT_SCHEDULING})]]


def test_without_room_nothing_is_sent_until_there_is(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    wire.has_room = False
    reporter.changed(tasks('a'), states.AGENT_SCHEDULING)
    clock.pass_time()
    assert wire.sent == []
    reporter.changed(tasks('a', 'b'), states.AGENT_EXECUTING)
    clock.pass_time()
    wire.has_room = True
    reporter.on_room()
    assert wire.sent == [[Update('a', states.AGENT_EXECUTING), Update('b', states.AGENT_EXECUTING)]]


def test_room_does_not_send_before_the_time(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    reporter.changed(tasks('a'), states.AGENT_SCHEDULING)
    reporter.on_room()
    assert wire.sent == []
    clock.pass_time()
    assert len(wire.sent) == 1


def test_room_without_news_sends_nothing(reporter: Reporter, wire: Wire) -> None:
    reporter.on_room()
    reporter.flush()
    assert wire.sent == []


def test_flush_sends_at_once_whether_there_is_room_or_not(reporter: Reporter, clock: Clock, wire: Wire) -> None:
    wire.has_room = False
    reporter.changed(tasks('a'), states.AGENT_SCHEDULING)
    reporter.flush()
    assert wire.sent == [[Update('a', states.AGENT_SCHEDULING)]]
    wire.has_room = True
    clock.pass_time()
    assert len(wire.sent) == 1


@pytest.mark.usefixtures('little_memory')
def test_results_go_to_disk_when_they_are_too_many(clock: Clock, wire: Wire, path: Path) -> None:
    """They are sent from there in order, before what came later, and the file goes when all of it has arrived."""
    loop: Any = clock
    reporter = Reporter(loop, wire, ResultSpool(str(path)))
    wire.has_room = False
    reporter.finished(finished('a'))
    assert not path.exists()
    reporter.finished(finished('b'))
    reporter.finished(finished('c', 'd', 'e'))
    reporter.changed(tasks('x'), states.AGENT_EXECUTING)
    reporter.finished(finished('f'))
    assert [update.uid for update in spool_file.read(path).tasks] == ['a', 'b', 'c', 'd', 'e']
    clock.pass_time()
    assert wire.sent == []
    wire.has_room = True
    reporter.on_room()
    assert wire.uids() == ['a', 'b', 'c', 'd', 'e', 'x', 'f']
    assert wire.sent[0][0] == Update('a', states.DONE, {'stdout': 'a line'})
    assert path.exists()
    wire.settle()
    assert not path.exists()
    assert len(wire.sent) == 2


@pytest.mark.usefixtures('little_memory')
def test_results_stay_in_order_while_there_is_little_room(clock: Clock, wire: Wire, path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that there is room, there is room for one message."""
    monkeypatch.setattr(module, 'BULK', 2)
    loop: Any = clock
    reporter = Reporter(loop, wire, ResultSpool(str(path)))

    class Narrow(list[list[Update]]):
        def append(self, bulk: list[Update]) -> None:
            wire.has_room = False
            super().append(bulk)

    wire.sent = Narrow()
    wire.has_room = False
    for uid in 'abcd':
        reporter.finished(finished(uid))
    clock.pass_time()
    for count in (2, 4):
        wire.has_room = True
        reporter.on_room()
        assert len(wire.uids()) == count
    reporter.finished(finished('e', 'f'))   # they go to the file, after the last of it was taken
    clock.pass_time()
    wire.has_room = True
    reporter.on_room()
    assert wire.uids() == list('abcdef')
    assert path.exists()
    wire.settle()
    assert not path.exists()


@pytest.mark.usefixtures('little_memory')
def test_file_does_not_go_before_all_of_it_has_arrived(clock: Clock, wire: Wire, path: Path) -> None:
    """Something was added, and sent, after what has arrived now."""
    loop: Any = clock
    reporter = Reporter(loop, wire, ResultSpool(str(path)))
    for uids in (('a', 'b'), ('c', 'd')):
        wire.has_room = False
        reporter.finished(finished(*uids))
        clock.pass_time()
        wire.has_room = True
        reporter.on_room()
    *earlier, last = wire.awaited
    for callback in earlier:
        callback()
    assert {update.uid for update in spool_file.read(path).tasks} == {*'abcd'}
    last()
    assert not path.exists()


@pytest.mark.usefixtures('little_memory')
def test_disk_that_is_full(clock: Clock, wire: Wire, path: Path, monkeypatch: pytest.MonkeyPatch,
                           caplog: pytest.LogCaptureFixture) -> None:
    """Results stay in memory, which is said once."""
    loop: Any = clock
    reporter = Reporter(loop, wire, ResultSpool(str(path)))
    wire.has_room = False
    with monkeypatch.context() as patch:
        def pwrite(*_: Any) -> int:
            raise OSError(28, 'No space left on device')

        patch.setattr('os.pwrite', pwrite)
        for number in range(40):
            reporter.finished(finished(f't{number}'))
    message, = caplog.messages
    assert str(path) in message
    assert 'No space left on device' in message
    clock.pass_time()
    wire.has_room = True
    reporter.on_room()
    assert wire.uids() == [f't{number}' for number in range(40)]


@pytest.mark.usefixtures('little_memory')
def test_file_that_cannot_be_read_stays(clock: Clock, wire: Wire, path: Path,
                                        caplog: pytest.LogCaptureFixture) -> None:
    """Somebody has changed it: what comes later is sent, and the file is left for people to look at."""
    loop: Any = clock
    reporter = Reporter(loop, wire, ResultSpool(str(path)))
    wire.has_room = False
    reporter.finished(finished('a', 'b'))
    reporter.finished(finished('c'))
    path.write_bytes(b'x' * path.stat().st_size)
    clock.pass_time()
    wire.has_room = True
    reporter.on_room()
    assert wire.uids() == ['c']
    assert f'{path} cannot be sent' in caplog.text
    reporter.forget()
    assert path.exists()


def test_results_that_did_not_arrive_are_kept(reporter: Reporter, wire: Wire, path: Path) -> None:
    """Those that were sent in vain, those that were not sent yet, and the last state of the pilot."""
    wire.has_room = False
    wire.pending = [Update('a', states.AGENT_EXECUTING), Update('b', states.FAILED, {'exception': 'x'}),
                    Update('c', states.TMGR_STAGING_OUTPUT_PENDING, {'exit_code': 0})]
    reporter.changed(tasks('d'), states.AGENT_EXECUTING)
    reporter.finished(finished('e'))
    end = Update('pilot.0000', states.DONE, {'reason': 'over'})
    reporter.keep(end)
    reporter.close()
    kept = spool_file.read(path)
    assert [update.uid for update in kept.tasks] == ['b', 'c', 'e']
    assert kept.tasks[:2] == wire.pending[1:]
    assert kept.pilots == [end]


def test_what_was_kept_goes_when_it_has_arrived_after_all(reporter: Reporter, path: Path) -> None:
    reporter.finished(finished('a'))
    reporter.keep(Update('pilot.0000', states.DONE))
    assert path.exists()
    reporter.forget()
    reporter.close()
    assert not path.exists()


def test_a_reporter_that_is_closed_early_leaves_what_it_has(reporter: Reporter, path: Path) -> None:
    """As when the agent fails."""
    reporter.finished(finished('a'))
    reporter.close()
    assert [update.uid for update in spool_file.read(path).tasks] == ['a']


def test_without_results_there_is_no_file(reporter: Reporter, path: Path) -> None:
    reporter.close()
    assert not path.exists()


def test_results_that_can_neither_be_sent_nor_written(reporter: Reporter, path: Path,
                                                      caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir()
    reporter.finished(finished('a', 'b'))
    reporter.keep(None)
    assert f'2 updates of tasks are lost, as {path} cannot be written' in caplog.text


def test_file_of_another_life_is_set_aside(path: Path) -> None:
    path.write_text('old')
    ResultSpool(str(path)).close()
    assert not path.exists()
    assert path.with_name('agent_0.updates.old').read_text() == 'old'


# what outlives the agent

def test_results_that_the_agent_acts_upon_are_on_disk_first(clock: Clock, wire: Wire, reporter: Reporter,
                                                            path: Path) -> None:
    reporter.finished(finished('a', 'b'), ['a'])
    reporter.note([Update('c', states.AGENT_EXECUTING, {'history': []})])
    assert [update.uid for update in spool_file.read(path).tasks] == ['a', 'c']
    clock.pass_time()
    assert wire.uids() == ['a', 'b']   # once: the reporter gets the attempts of `c` otherwise
    wire.settle()
    assert not path.exists()


def test_results_are_on_disk_while_the_coordinator_does_not_answer(clock: Clock, wire: Wire, reporter: Reporter,
                                                                   path: Path) -> None:
    reporter.finished(finished('a'))
    clock.pass_time()
    wire.pending = wire.sent[0]
    assert not path.exists()
    clock.pass_time()
    reporter.finished(finished('b'))
    assert [update.uid for update in spool_file.read(path).tasks] == ['a', 'b']
    clock.pass_time()
    wire.pending = []
    wire.settle()
    assert (wire.uids(), path.exists()) == (['a', 'b'], False)
    reporter.finished(finished('c'))
    assert not path.exists()

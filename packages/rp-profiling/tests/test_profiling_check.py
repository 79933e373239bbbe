"""The checker: it finds nothing in a session that is as it should be, and each of many faults planted in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traced_session import AGENT, CLIENT, SESSION, Event, events_of, uid_of, where, write_session

from rp_profiling.catalogue import events_of as events_of_component
from rp_profiling.check import Findings, check_session
from rp_profiling.check.findings import LIMIT

EXECUTING = {event.name for event in events_of_component('AgentExecutingComponent')}
TASK = uid_of(3)
OTHER = uid_of(2)

Fault = Callable[[list[Event]], list[Event]]


def check(directory: Path, events: list[Event]) -> Findings:
    return check_session(write_session(directory, events))


def of_task(name: str, state: str = '', uid: str = TASK) -> Callable[[Event], bool]:
    return lambda event: (event.uid, event.event, event.state) == (uid, name, state)


def without(wanted: Callable[[Event], bool]) -> Fault:
    """The fault that events of that kind were not recorded."""
    return lambda events: [event for event in events if not wanted(event)]


def at(wanted: Callable[[Event], bool], move: int) -> Fault:
    """The fault that an event was recorded so many milliseconds later, or earlier."""
    def plant(events: list[Event]) -> list[Event]:
        index = where(wanted, events)
        moved = events[index]._replace(time=events[index].time + move)
        return [*events[:index], moved, *events[index + 1:]]
    return plant


def again(wanted: Callable[[Event], bool], move: int = 1, **changes: Any) -> Fault:
    """The fault that an event was recorded twice, the second time with something different."""
    def plant(events: list[Event]) -> list[Event]:
        event = events[where(wanted, events)]
        return [*events, event._replace(time=event.time + move)._replace(**changes)]
    return plant


def of_file(file: str, name: str) -> Callable[[Event], bool]:
    return lambda event: (event.file, event.event) == (file, name)


FAULTS: dict[str, tuple[Fault, str]] = {
    'a task has no final state': (without(of_task('advance', 'DONE')), 'no final state'),
    'a state is left out': (without(of_task('advance', 'AGENT_EXECUTING_PENDING')), 'never in AGENT_EXECUTING_PENDING'),
    'a state of the client is left out': (without(of_task('advance', 'TMGR_SCHEDULING')), 'never in TMGR_SCHEDULING'),
    'a task runs without any event': (
        without(lambda event: event.uid == TASK and event.event in EXECUTING),
        'is DONE and was AGENT_EXECUTING, but has no event of that'),
    'a task is placed without any event': (
        without(lambda event: event.uid == TASK and 'schedule_' in event.event),
        'is DONE and was AGENT_SCHEDULING, but has no event of that'),
    'states come in the wrong order': (
        at(of_task('advance', 'AGENT_STAGING_OUTPUT'), -50), 'after AGENT_STAGING_OUTPUT'),
    'a state is announced twice': (again(of_task('advance', 'AGENT_EXECUTING'), 0), 'announced twice'),
    'a final state changes': (
        again(of_task('advance', 'DONE'), 1, state='FAILED'), 'FAILED after DONE, which is final'),
    'a final task goes on': (again(of_task('advance', 'DONE'), 5, state='TMGR_STAGING_OUTPUT'), 'which is final'),
    'a pilot becomes active before it is launched': (
        at(lambda event: event.state == 'PMGR_ACTIVE', -199), 'after PMGR_ACTIVE'),
    'slots are not given back': (
        without(lambda event: event.uid == TASK and event.event.startswith('unschedule')),
        'does not release its slots'),
    'slots are given back twice': (again(of_task('unschedule_stop')), 'releases slots that it does not have'),
    'a core is given to two tasks': (
        lambda events: [event._replace(msg='0:2:') if of_task('schedule_ok')(event) else event for event in events],
        f'the core 2 of node 0 of pilot.0000, which {OTHER} has'),
    'more cores are given than there are': (
        lambda events: [event._replace(msg='0:8-11:') if of_task('schedule_ok')(event) else event for event in events],
        'cores beyond the 4 of pilot.0000'),
    'a task runs before it has slots': (at(of_task('schedule_ok'), 7), 'runs before it has its slots'),
    'a task runs after it has given its slots back': (
        at(of_task('task_run_stop'), 20), 'after it has released its slots'),
    'a task is never scheduled': (without(of_task('schedule_ok')), 'comes where'),
    'an event of the execution is missing': (without(of_task('rank_start')), 'rank_stop comes where'),
    'the last event of the execution is missing': (
        without(of_task('task_run_stop')), 'nothing comes after launch_stop'),
    'events of the execution are in the wrong order': (
        at(of_task('launch_collect'), -40), 'launch_collect comes where'),
    'an output is read to its end before that begins': (at(of_task('staging_stderr_stop'), -1), 'staging_stderr_stop'),
    'a directive is finished that was not begun': (
        lambda events: [*events, Event('agent_staging_input.0000', 312, 'staging_in_stop', TASK, msg='sd.0')],
        'staging_in_stop comes where staging_in_skip or staging_in_start is expected'),
    'a directive is never finished': (
        lambda events: [*events, Event('agent_staging_input.0000', 312, 'staging_in_start', TASK, msg='sd.0')],
        'nothing comes after staging_in_start'),
    'a component works after its end': (
        at(of_file('agent_executing.0000', 'component_final'), -4650), 'nothing more is expected'),
    'a component does not end': (
        without(of_file('agent_scheduling.0000', 'component_final')), 'component_final is expected'),
    'a profile goes on after its end': (
        lambda events: [*events, Event('tmgr.0000', 6000, 'setup_done', 'tmgr.0000')], 'nothing more is expected'),
    'a profile tells no time': (
        without(of_file('tmgr.0000', 'sync_abs')), 'comes where sync_abs is expected'),
    'a session stops without being closed': (without(of_file(SESSION, 'session_close')), 'session_stop comes where'),
    'a pilot is submitted twice': (
        again(of_file('pmgr_launching.0000', 'submission_stop'), 5), 'submission_stop comes where nothing more'),
    'an agent gets tasks before it says where it is': (
        at(of_file('agent_0', 'hostname'), 400), 'hostname comes where cmd or get is expected'),
}


def test_a_session_that_is_as_it_should_be_has_no_violations(tmp_path: Path) -> None:
    findings = check(tmp_path, events_of(20))
    assert not findings, str(findings)
    assert str(findings) == ''


@pytest.mark.parametrize('fault', FAULTS)
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    plant, sentence = FAULTS[fault]
    findings = check(tmp_path, plant(events_of()))
    assert findings
    assert sentence in str(findings)


def test_a_violation_names_the_task_the_time_and_the_file(tmp_path: Path) -> None:
    findings = check(tmp_path, FAULTS['an event of the execution is missing'][0](events_of()))
    violation, = findings.violations
    assert violation.uid == TASK
    assert violation.file.endswith('pilot.0000/agent_executing.0000.prof')
    assert violation.time == pytest.approx(1_700_000_000.395)
    assert violation.rule == 'order of AgentExecutingComponent, per task'


def test_many_violations_are_counted_and_some_described(tmp_path: Path) -> None:
    findings = check(tmp_path, without(lambda event: event.event == 'rank_start')(events_of(LIMIT + 30)))
    assert len(findings.violations) == LIMIT
    assert findings.counts.total() == LIMIT + 30
    assert str(findings).endswith('and 30 more')


def test_what_a_killed_agent_leaves_is_no_violation(tmp_path: Path) -> None:
    """Its profiles have no end, and its tasks what they had until then; the application says that they failed."""
    cut = [event for event in events_of() if event.file in CLIENT or event.time < 350]
    lost = {event.uid for event in cut if event.uid.startswith('task.')}
    cut = [event._replace(state='FAILED') if event.state == 'DONE' and event.uid in lost else event for event in cut
           if event.state != 'TMGR_STAGING_OUTPUT']
    findings = check(tmp_path, cut)
    assert not findings, str(findings)


def test_a_session_that_still_runs_may_be_unfinished(tmp_path: Path) -> None:
    findings = check(tmp_path, [event for event in events_of() if event.time < 350])
    assert not findings, str(findings)


def test_a_task_may_begin_again_on_the_same_pilot(tmp_path: Path) -> None:
    """Where it could not be started, it goes back to the scheduler, and all of its way from there comes again."""
    events = events_of()
    mine = [event for event in events if event.uid == uid_of(7)]
    begin = next(event.time for event in mine if event.state == 'AGENT_SCHEDULING')
    again = [event._replace(time=event.time + 500) for event in mine if event.time >= begin]
    failed = [event for event in mine if event.file in AGENT and event.time >= begin
              and not event.event.startswith('rank')
              and event.state not in ('AGENT_STAGING_OUTPUT', 'TMGR_STAGING_OUTPUT_PENDING')]
    before = [event for event in mine if event.time < begin]
    others = [event for event in events if event.uid != uid_of(7)]
    findings = check(tmp_path, [*others, *before, *failed, *again])
    assert not findings, str(findings)


def test_a_launch_that_was_given_up_may_be_followed_by_another_one(tmp_path: Path) -> None:
    """So it is with tasks whose virtual machine has failed: the rest of their way is as that of others."""
    events = events_of()
    mine = [event for event in events if event.uid == uid_of(7)]
    launch = next(event.time for event in mine if event.event == 'launch_start')
    runs = next(event.time for event in mine if event.event == 'rank_start')
    before = [event for event in mine if event.time <= runs]
    again = [event._replace(time=event.time + 40) for event in mine if event.time >= launch
             and event.event != 'task_run_ok']
    killed = Event('agent_executing.0000', runs + 1, 'task_run_cancel_start', uid_of(7))
    others = [event for event in events if event.uid != uid_of(7)]
    findings = check(tmp_path / 'given up', [*others, *before, killed, *again])
    assert not findings, str(findings)
    assert 'launch_start comes where' in str(check(tmp_path / 'twice', [*others, *before, *again]))


def test_ranks_record_their_events_side_by_side(tmp_path: Path) -> None:
    ranks = ('exec_start', 'exec_pre', 'rank_start', 'rank_stop', 'exec_post', 'exec_stop')
    events = events_of()
    findings = check(tmp_path, [*events, *(event for event in events if event.uid == TASK and event.event in ranks)])
    assert not findings, str(findings)


def test_shares_of_a_gpu_can_be_given_to_several_tasks(tmp_path: Path) -> None:
    def with_gpu(amount: str) -> Findings:
        events = [event._replace(msg=f'{event.msg}0={amount}') if event.event == 'schedule_ok' else
                  event._replace(msg=event.msg.replace('gpus=0', 'gpus=1')) for event in events_of(4)]
        return check(tmp_path / amount, events)
    assert not with_gpu('0.25')
    assert 'the GPU 0 of node 0 of pilot.0000' in str(with_gpu('0.3'))


def test_slots_of_older_versions_are_not_known(tmp_path: Path) -> None:
    findings = check(tmp_path, [event._replace(msg='') if event.event == 'schedule_ok' else event
                                for event in events_of()])
    assert not findings
    assert findings.remarks == ['the trace names no cores of tasks: their assignment is not checked']


RANK, RAPTOR = 'raptor_worker.raptor.0000.0000.0', 'agent_raptor.0000'
CALL = ('task_start', 'task_run_start', 'task_run_ok', 'exec_start', 'rank_start', 'rank_stop', 'exec_stop',
        'task_run_stop')


def of_raptor(events: list[Event], *, ranks: bool = True, ended: bool = True) -> list[Event]:
    """The events if the task was for RAPTOR, which has not recorded that it has run."""
    events = [event for event in events
              if event.uid != TASK or not (event.event in EXECUTING or 'schedule_' in event.event)]
    by_raptor = [event.uid == TASK and event.state in ('AGENT_SCHEDULING', 'AGENT_EXECUTING') for event in events]
    events = [event._replace(file=RAPTOR) if chosen else event for event, chosen in zip(events, by_raptor, strict=True)]
    mine = [Event(RAPTOR, 100, 'sync_abs', msg=events[0].msg), Event(RAPTOR, 5021, 'END')]
    of_rank = [Event(RANK, 250, 'sync_abs', msg=events[0].msg), Event(RANK, 251, 'trace_detail', msg='states'),
               Event(RANK, 4990, 'END')]
    return events + mine + (of_rank[:None if ended else -1] if ranks else [])


def test_tasks_of_raptor_have_events_unless_they_are_lost(tmp_path: Path) -> None:
    """A killed rank has lost them; ranks without profiles have recorded none, which is a remark."""
    findings = check(tmp_path / 'none', of_raptor(events_of()))
    assert [(each.uid, each.sentence) for each in findings.violations] == [
        (TASK, 'is DONE and was AGENT_EXECUTING, but has no event of that')]
    assert not check(tmp_path / 'killed', of_raptor(events_of(), ended=False))
    findings = check(tmp_path / 'silent', of_raptor(events_of(), ranks=False))
    assert not findings
    assert 'no rank of a RAPTOR worker of pilot.0000 has a profile' in str(findings)
    ran = [Event(RANK, 400 + number // 5, event, TASK) for number, event in enumerate(CALL)]
    assert not check(tmp_path / 'complete', of_raptor(events_of()) + ran)

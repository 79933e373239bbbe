"""Reasons of tasks and pilots: each cause in the table of `reason_causes` has the kind, sentence and remedy wanted."""

from __future__ import annotations

import os
import re
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import hub_pid, pilot_description, wait_until
from reason_causes import PEERS, PROGRAMS, RECORDS, T0, WAITS, Cause

import radical.pilot as rp
from rp_api.reasons.explain import explanation, reason_of, reason_of_pilot
from rp_api.reasons.kinds import KINDS
from rp_api.reasons.reason import Reason

TIMEOUT = 60.0


class Records:
    """A view of records; missing items of tasks have usual values."""

    def __init__(self, cause: Cause) -> None:
        self.now = T0 + 1000
        self._given = cause.injected
        self.subject = self._task('t', self._given.get('task', {'state': rp.NEW}))

    def _task(self, uid: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {'uid': uid, 'tmgr': 'tmgr.0000', 'pilot': '', 'attempts': 1, 'description': {}, **values}

    def task(self, uid: str) -> dict[str, Any] | None:
        others = self._given.get('others', {})
        return self._task(uid, others[uid]) if uid in others else None

    def pilots(self) -> Sequence[Mapping[str, Any]]:
        pilot = self._given.get('pilot')
        return [pilot] if pilot else self._given.get('pilots', [])

    def peers(self, task: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        return self._given.get('peers', [])   # type: ignore[no-any-return]

    def note(self, key: str) -> Any:
        return self._given.get('notes', {}).get(key)


def check(cause: Cause, reason: Reason | None) -> None:
    """Verify a reason."""
    assert reason is not None, cause.name
    wanted = '.*'.join(map(re.escape, cause.sentence.split('...')))
    assert reason.kind == cause.kind, (cause.name, reason)
    assert re.fullmatch(wanted, reason.sentence, re.DOTALL), (cause.name, reason.sentence)
    assert reason.remedy, cause.name
    assert str(reason) == reason.sentence
    assert reason.as_dict()['evidence'] == dict(reason.evidence)


def uid_of(cause: Cause) -> str:
    return cause.name.replace(' ', '_').replace('+', 'p')


def test_the_tables_have_sixty_causes_and_all_kinds_but_those_that_pass_at_once() -> None:
    causes = [*PROGRAMS, *WAITS, *RECORDS]
    assert len(causes) >= 60
    assert len({cause.name for cause in causes}) == len(causes)
    assert set(KINDS) - {cause.kind for cause in causes} == {
        'waiting.workers', 'failed.launch'}   # the first is that of a master, see test_raptor_waits


@pytest.mark.parametrize('cause', RECORDS, ids=lambda cause: cause.name)
def test_records(cause: Cause) -> None:
    view = Records(cause)
    pilot = cause.injected.get('pilot')
    reason = reason_of_pilot(pilot, view) if pilot else reason_of(view.subject, view)
    check(cause, reason)
    assert reason is not None
    text = explanation(pilot or view.subject, view, pilot=pilot is not None)
    assert reason.sentence in text
    assert f'what to do: {reason.remedy}' in text


def test_what_runs_and_what_is_done_has_no_reason() -> None:
    cause = Cause('', '', '', {'task': {'state': rp.DONE, 'pilot': 'pilot.0000', 'times': [T0, T0, T0 + 200]},
                               'peers': PEERS})
    view = Records(cause)
    assert reason_of(view.subject, view) is None
    assert 'has run for 3 min 20 s, 6.7 times as long as the 40 others of its kind' in explanation(view.subject, view)
    running = {**view.subject, 'state': rp.AGENT_EXECUTING, 'times': [T0 + 990, T0 + 990, None]}
    assert reason_of(running, view) is None
    assert explanation(running, view) == 't is AGENT_EXECUTING\nit runs for 10 s'
    assert reason_of_pilot({'uid': 'p', 'state': rp.PMGR_ACTIVE}, view) is None


@pytest.fixture
def session(tmp_path: Path) -> Iterator[rp.Session]:
    with rp.Session(cfg={'base': str(tmp_path / 'sessions')}) as session:
        yield session


def attached(session: rp.Session, tmp_path: Path, scheduler: str = '', **values: Any) -> rp.TaskManager:
    """A task manager with a pilot of its own that is active."""
    pilot = rp.PilotManager(session).submit_pilots(pilot_description(tmp_path, **values))
    tmgr = rp.TaskManager(session, scheduler=scheduler) if scheduler else rp.TaskManager(session)
    tmgr.add_pilots(pilot)
    assert pilot.wait(rp.PMGR_ACTIVE, timeout=TIMEOUT) == rp.PMGR_ACTIVE
    return tmgr


def test_programs(session: rp.Session, tmp_path: Path) -> None:
    files = {'plain': ('#!/bin/sh\n', 0o644), 'alien': ('\x7fELF alien', 0o755),
             'script': ('#!/nosuch/python\n', 0o755)}
    for name, (text, mode) in files.items():
        (tmp_path / name).write_text(text)
        os.chmod(tmp_path / name, mode)

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(each) for each in value]
        return value.replace('{dir}', str(tmp_path)) if isinstance(value, str) else value

    tmgr = attached(session, tmp_path, cores=2)
    tasks = tmgr.submit_tasks([rp.TaskDescription({
        'uid': uid_of(cause), **{name: filled(value) for name, value in cause.injected.items()}})
        for cause in PROGRAMS])
    tmgr.wait_tasks(timeout=TIMEOUT)
    for cause, task in zip(PROGRAMS, tasks, strict=True):
        reason, error = task.reason, task.error
        check(cause, reason)
        assert reason is not None
        assert error is not None
        assert reason.evidence['failure'] == error.kind
        assert task.as_dict()['reason']['kind'] == cause.kind
        assert f'what to do: {reason.remedy}' in task.explain()


def holding(uid: str, **values: Any) -> rp.TaskDescription:
    return rp.TaskDescription({'uid': uid, 'executable': 'sleep', 'arguments': ['600'], **values})


def test_waits(session: rp.Session, tmp_path: Path) -> None:
    wanted = {cause.name: cause for cause in WAITS}
    tmgr, without = attached(session, tmp_path, cores=2), rp.TaskManager(session)
    pilot, = tmgr.get_pilots()
    asked = dict[str, dict[str, Any]]({
        'one core': {}, 'behind': {}, 'cores': {'cores_per_rank': 2}, 'after': {'after': ['holder.0', 'holder.1']},
        'environment': {'named_env': 'nosuch'}, 'service of nobody': {'services': ['nosuch']},
        'master': {'raptor_id': 'nosuch', 'mode': rp.TASK_EVAL, 'code': '1'}, 'other pilot': {'pilot': 'pilot.0009'}})
    tasks = {'retry': tmgr.submit_tasks(rp.TaskDescription({
        'uid': 'retry', 'executable': 'sh', 'arguments': ['-c', 'exit 3'], 'retries': 1, 'retry_delay': 99}))}
    wait_until(lambda: str(tasks['retry'].reason).startswith('waits for attempt'), TIMEOUT)
    holders = tmgr.submit_tasks([holding('holder.0'), holding('holder.1')])
    for holder in holders:
        holder.wait(rp.AGENT_EXECUTING, timeout=TIMEOUT)
        assert holder.reason is None
    tasks['no pilot'] = without.submit_tasks(rp.TaskDescription({'executable': 'true'}))
    tasks['slots'] = tmgr.submit_tasks(rp.TaskDescription({'executable': 'true', 'slots': [
        {'node_index': 0, 'node_name': '', 'cores': [0], 'gpus': []}]}))
    tasks |= zip(asked, tmgr.submit_tasks([rp.TaskDescription({
        'uid': name.replace(' ', '_'), **({} if 'mode' in values else {'executable': 'true'}), **values})
        for name, values in asked.items()]),
        strict=True)
    large = attached(session, tmp_path, cores=4, gpus=2)
    memory = (large.get_pilots()[0].resource_details or {})['mem_per_node']
    large.submit_tasks(holding('gpu.holder', gpus_per_rank=1, mem_per_rank=memory // 2))
    wait_until(lambda: large.get_tasks()[0].state == rp.AGENT_EXECUTING, TIMEOUT)
    tasks['GPUs'], tasks['memory'] = large.submit_tasks([
        rp.TaskDescription({'executable': 'true', 'gpus_per_rank': 2}),
        rp.TaskDescription({'executable': 'true', 'mem_per_rank': memory * 2 // 3})])
    late = attached(session, tmp_path, 'backfilling', cores=1)
    tasks['late binding'] = late.submit_tasks([holding(f'late.{number}') for number in range(9)])[-1]
    served = attached(session, tmp_path, cores=2)
    service = {'mode': rp.TASK_SERVICE, 'startup_timeout': 300}
    served.submit_tasks([holding('other', **service), holding('db', service={'probe': {'file': 'never'}}, **service)])
    wait_until(lambda: all(task.state == rp.AGENT_EXECUTING for task in served.get_tasks()), TIMEOUT)
    tasks['services'], tasks['starting service'] = served.submit_tasks([
        rp.TaskDescription({'executable': 'true'}), rp.TaskDescription({'executable': 'true', 'services': ['db']})])

    def is_told(cause: Cause) -> bool:
        reason = tasks[cause.name].reason
        return reason is not None and re.fullmatch('.*'.join(map(re.escape, cause.sentence.split('...'))),
                                                   reason.sentence) is not None

    for cause in WAITS:
        try:
            wait_until(partial(is_told, cause), 12)
        finally:
            check(cause, tasks[cause.name].reason)
    reason, services = tasks['cores'].reason, tasks['services'].reason
    assert reason is not None
    assert services is not None
    assert (reason.evidence['needs'], reason.evidence['holders']) == ({'cores_per_rank': 2}, ['holder.0', 'holder.1'])
    assert reason.evidence['free']['cores'] == 0
    assert reason.since is not None
    assert services.remedy == 'end one of the services, or add a larger pilot: they hold this until they end'
    assert any('waits for service nosuch, and nothing starts it' in line for line in pilot.log)
    assert 'needs 2 cores on one node, none is free' in pilot.explain()
    assert pilot.reason is None
    with pytest.warns(DeprecationWarning, match='Task.waits_for is deprecated, use Task.reason'):
        assert tasks['environment'].waits_for == 'environment nosuch (nothing builds it)'
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)
        assert holders[0].waits_for == ''
    assert set(wanted) == set(tasks)


def test_the_first_task_of_a_chain_says_why_all_wait() -> None:
    view = Records(Cause('', '', '', {
        'task': {'state': rp.AGENT_STAGING_INPUT_PENDING, 'description': {'after': ['done', 'a']}, 'submitted': T0},
        'others': {'done': {'state': rp.DONE}, 'a': {'state': rp.AGENT_STAGING_INPUT_PENDING,
                                                     'description': {'after': {'b': 'ended'}}},
                   'b': {'state': rp.TMGR_SCHEDULING}}}))
    reason = reason_of(view.subject, view)
    assert reason is not None
    assert (reason.sentence, reason.since) == ('waits for a (AGENT_STAGING_INPUT_PENDING)', T0)
    assert reason.evidence == {'tasks': ['a'], 'count': 1, 'root': 'b: waits for a pilot: tmgr.0000 has none'}


def test_a_coordinator_that_does_not_answer(session: rp.Session) -> None:
    tmgr = rp.TaskManager(session)
    hub = hub_pid(session)
    os.kill(hub, signal.SIGSTOP)
    try:
        task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'}))
        reason = task.reason
        assert reason is not None
        assert (reason.kind, reason.sentence) == (
            'waiting.coordinator', 'the coordinator of the session is away or busy, and has not taken the task yet')
        assert reason.since is not None
    finally:
        os.kill(hub, signal.SIGCONT)
    wait_until(lambda: str(task.reason) == f'waits for a pilot: {tmgr.uid} has none')


def test_a_partition_has_its_own_shortages(session: rp.Session, tmp_path: Path) -> None:
    pilot = rp.PilotManager(session).submit_pilots(pilot_description(tmp_path, partitions=[{'cores': 1}, {'cores': 2}]))
    tmgr = rp.TaskManager(session)
    tmgr.add_pilots(pilot)
    holder = tmgr.submit_tasks(holding('holder', partition=1, cores_per_rank=2))
    holder.wait(rp.AGENT_EXECUTING, timeout=TIMEOUT)
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'true', 'partition': 1}))
    wait_until(lambda: str(task.reason) == 'needs 1 core, none is free', TIMEOUT)
    reason = task.reason
    assert reason is not None
    assert (reason.evidence['holders'], reason.evidence['pilot']) == (['holder'], f'{pilot.uid}.0001')
    assert 'needs 1 core, none is free' in pilot.partitions[1].explain()

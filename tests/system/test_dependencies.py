"""Tasks that run after others: on one pilot, across pilots, and without the application."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until

import radical.pilot as rp


class Site:
    """A session with some pilots."""

    def __init__(self, session: rp.Session, base: Path) -> None:
        self.session, self.base = session, base
        self.pmgr, self.tmgr = rp.PilotManager(session), rp.TaskManager(session)

    def pilots(self, *cores: int) -> list[rp.Pilot]:
        pilots: list[rp.Pilot] = self.pmgr.submit_pilots(
            [pilot_description(self.base, cores=number, exit_on_error=False) for number in cores])
        self.tmgr.add_pilots(pilots)
        return pilots

    def shell(self, command: str, **values: object) -> rp.TaskDescription:
        """A task that writes its uid to a common file, and runs a command."""
        return rp.TaskDescription({'executable': '/bin/sh', **values,
                                   'arguments': ['-c', f'echo $RP_TASK_ID >> {self.base}/ran; {command}']})

    def held(self, **values: object) -> rp.TaskDescription:
        """A task that runs until there is a file `go`."""
        return self.shell(f'until [ -e {self.base}/go ]; do sleep 0.02; done', **values)

    def go(self) -> None:
        (self.base / 'go').touch()

    @property
    def ran(self) -> list[str]:
        path = self.base / 'ran'
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def site(session: rp.Session, base: Path) -> Site:
    return Site(session, base)


def test_a_chain_runs_in_order_and_a_diamond_joins(site: Site) -> None:
    site.pilots(4)
    first = site.tmgr.submit_tasks(site.held())
    chain = [first]
    for _ in range(5):
        chain.append(site.tmgr.submit_tasks(site.shell('true', after=[chain[-1]])))
    left, right = site.tmgr.submit_tasks([site.shell('true', after=[chain[-1].uid]) for _ in range(2)])
    join = site.tmgr.submit_tasks(site.shell('true', after=[left, right, first]))
    wait_until(lambda: first.state == rp.AGENT_EXECUTING)
    assert str(join.reason) == f'waits for {left.uid} ({left.state}) and 2 more tasks'
    assert str(chain[1].reason) == f'waits for {first.uid} (AGENT_EXECUTING)'
    assert join.description.after == [left.uid, right.uid, first.uid]
    site.go()
    assert site.tmgr.wait_tasks(timeout=60) == [rp.DONE] * 9
    uids = [task.uid for task in chain]
    assert site.ran[:6] == uids
    assert set(site.ran[6:8]) == {left.uid, right.uid}
    assert site.ran[8:] == [join.uid]
    assert join.reason is None


def test_tasks_after_a_failed_one_are_cancelled_with_the_chain_or_run_if_they_ask_for_it(site: Site) -> None:
    site.pilots(2)
    fails = site.tmgr.submit_tasks(site.shell('sleep 0.2; exit 3'))
    second = site.tmgr.submit_tasks(site.shell('true', after=[fails]))
    third = site.tmgr.submit_tasks(site.shell('true', after=[second]))
    cleanup = site.tmgr.submit_tasks(site.shell('true', after={third: 'ended'}))
    handler = site.tmgr.submit_tasks(site.shell('true', after={fails: 'failed'}))
    never = site.tmgr.submit_tasks(site.shell('true', after={handler.uid: 'failed'}))
    assert site.tmgr.wait_tasks(timeout=60) == [
        rp.FAILED, rp.CANCELED, rp.CANCELED, rp.DONE, rp.DONE, rp.CANCELED]
    assert sorted(site.ran) == sorted([fails.uid, cleanup.uid, handler.uid])
    assert third.exception == (f'{third.uid} was not run: it is after {second.uid}, which was not run: it is after '
                               f'{fails.uid}, which is FAILED: exit code 3')
    assert never.exception == f'{never.uid} was not run: it is after {handler.uid}, which is DONE'
    assert third.error is not None
    assert third.error.kind == 'dependency'
    # tasks that are final already count
    late = site.tmgr.submit_tasks([site.shell('true', after={third: 'ended', handler: 'done'}),
                                   site.shell('true', after=[third])])
    assert site.tmgr.wait_tasks([task.uid for task in late], timeout=60) == [rp.DONE, rp.CANCELED]
    assert str(late[1].exception).startswith(f'{late[1].uid} was not run: it is after {third.uid}, which was not run:')


def test_dependencies_across_pilots(site: Site) -> None:
    """In both directions, and for tasks that are bound later."""
    one, two = site.pilots(2, 2)
    first = site.tmgr.submit_tasks(site.held(pilot=one.uid))
    there = site.tmgr.submit_tasks(site.shell('exit 1', pilot=two.uid, after=[first]))
    back = site.tmgr.submit_tasks([site.shell('true', pilot=one.uid, after={there: condition})
                                   for condition in ('failed', 'done')])
    twice = site.tmgr.submit_tasks(site.shell('true', pilot=two.uid, after={back[0]: 'done', back[1]: 'ended'}))
    wait_until(lambda: first.state == rp.AGENT_EXECUTING)
    site.go()
    assert site.tmgr.wait_tasks(timeout=60) == [rp.DONE, rp.FAILED, rp.DONE, rp.CANCELED, rp.DONE]
    assert back[1].exception == f'{back[1].uid} was not run: it is after {there.uid}, which is FAILED: exit code 1'
    assert site.ran == [first.uid, there.uid, back[0].uid, twice.uid]


def test_chains_stay_on_a_pilot_and_branches_are_distributed(site: Site) -> None:
    pilots = site.pilots(1, 1)
    chains = [site.tmgr.submit_tasks(
        [site.shell('true', uid=f'{name}0'), *[site.shell('true', uid=f'{name}{number}', after=[f'{name}{number - 1}'])
                                               for number in range(1, 5)]]) for name in 'abcd']
    fan = site.tmgr.submit_tasks([site.shell('true', after=['a4']) for _ in range(10)])
    site.tmgr.wait_tasks(timeout=60)
    assert {task.state for chain in (*chains, fan) for task in chain} == {rp.DONE}
    assert [len({task.pilot for task in chain}) for chain in chains] == [1] * 4
    assert {task.pilot for chain in chains for task in chain} == {task.pilot for task in fan} == {
        pilot.uid for pilot in pilots}


def test_cancelling_a_waiting_task_and_one_that_is_waited_for(site: Site) -> None:
    site.pilots(2)
    first = site.tmgr.submit_tasks(site.held())
    second = site.tmgr.submit_tasks(site.shell('true', after=[first]))
    third = site.tmgr.submit_tasks(site.shell('true', after=[second]))
    other = site.tmgr.submit_tasks(site.shell('true', after={first: 'ended'}))
    wait_until(lambda: first.state == rp.AGENT_EXECUTING)
    second.cancel()
    assert site.tmgr.wait_tasks([second.uid, third.uid], timeout=60) == [rp.CANCELED] * 2
    assert second.exception == 'cancelled while it waited for other tasks'
    assert third.exception == (
        f'{third.uid} was not run: it is after {second.uid}, which is CANCELED: {second.exception}')
    first.cancel()
    assert site.tmgr.wait_tasks([first.uid, other.uid], timeout=60) == [rp.CANCELED, rp.DONE]


def test_tasks_of_a_pilot_that_fails(site: Site) -> None:
    """Waiting tasks that may be restarted wait on another pilot, and go on there."""
    one, two = site.pilots(3, 4)
    first = site.tmgr.submit_tasks(site.held(pilot=two.uid))
    waiting = site.tmgr.submit_tasks([site.shell('true', restartable=True, after=[first]) for _ in range(2)])
    failing = site.tmgr.submit_tasks(site.held(pilot=one.uid))
    after_it = site.tmgr.submit_tasks([site.shell('true', pilot=two.uid, after={failing: condition})
                                       for condition in ('failed', 'done')])
    wait_until(lambda: failing.state == first.state == rp.AGENT_EXECUTING)
    (pid,) = [pid for pid, command in processes_with(one.pilot_sandbox).items() if 'rp_agent.cli' in command]
    os.kill(pid, signal.SIGKILL)
    assert one.wait(timeout=30) == rp.FAILED
    assert site.tmgr.wait_tasks([task.uid for task in (failing, *after_it)], timeout=60) == [
        rp.FAILED, rp.DONE, rp.CANCELED]
    wait_until(lambda: {task.pilot for task in waiting} == {two.uid})
    assert sorted(task.attempts for task in waiting) == [1, 2]
    site.go()
    assert site.tmgr.wait_tasks(timeout=60) == [rp.DONE, rp.DONE, rp.DONE, rp.FAILED, rp.DONE, rp.CANCELED]


def test_files_of_other_tasks(site: Site) -> None:
    one, two = site.pilots(1, 1)
    first = site.tmgr.submit_tasks(site.shell('sleep 0.2; echo one > out.txt; mkdir sub; echo own > sub/x',
                                              pilot=one.uid))
    here, there = site.tmgr.submit_tasks([
        site.shell('cat in.txt', pilot=pilot.uid, input_staging=[f'task://{first.uid}/out.txt > in.txt'])
        for pilot in (one, two)])
    linked = site.tmgr.submit_tasks(site.shell('cat x', after={first.uid: 'ended'}, input_staging=[
        {'source': f'task://{first.uid}/sub/x', 'target': 'task:///x', 'action': rp.LINK}]))
    chosen = site.tmgr.submit_tasks(site.shell('cat all', input_staging=[f'task://{linked.uid}/x > all',
                                                                         f'task://{here.uid}/in.txt']))
    assert here.description.after == [first.uid]
    assert linked.description.after == {first.uid: 'ended'}
    assert chosen.description.after == [linked.uid, here.uid]
    assert site.tmgr.wait_tasks(timeout=60) == [rp.DONE] * 5
    assert [task.stdout for task in (here, there, linked, chosen)] == ['one\n', 'one\n', 'own\n', 'own\n']


def test_what_is_refused(site: Site) -> None:
    first = site.tmgr.submit_tasks(site.shell('true'))
    service = site.tmgr.submit_tasks(site.shell('true', mode=rp.TASK_SERVICE))

    def refused(*descriptions: rp.TaskDescription) -> str:
        with pytest.raises(ValueError, match=r'TaskDescription|staging directive') as error:
            site.tmgr.submit_tasks(list(descriptions))
        return str(error.value)

    assert refused(site.shell('true', uid='x', after=['nowhere'])) == (
        "TaskDescription.after of x names 'nowhere', but 'nowhere' is no task of this session: name tasks that were "
        'submitted before, or uids of tasks in the same call')
    assert refused(site.shell('true', uid='x', after=['x'])) == (
        'TaskDescription.after: x is after x; no task can be after itself')
    assert refused(*[site.shell('true', uid=uid, after=after) for uid, after in (
        ('p', ['q']), ('a', ['c', first]), ('b', ['a']), ('c', ['b']), ('q', ['a']))]) == (
        'TaskDescription.after: a is after c, which is after b, which is after a; no task can be after itself')
    assert f'requires that {service.uid} is done, but that is a service' in refused(site.shell('true', after=[service]))
    assert 'the agent stages files of other tasks' in refused(site.shell('true', input_staging=[
        {'source': f'task://{first.uid}/x', 'target': 'x', 'action': rp.TRANSFER}]))
    placed = site.tmgr.submit_tasks(site.shell('true', sandbox='here'))
    assert "has the sandbox 'here'" in refused(site.shell('true', input_staging=[f'task://{placed.uid}/x > y']))
    assert "'task.000099' is no task of this session" in refused(site.shell('true', input_staging=[
        'task://task.000099/x > y']))
    assert "'done', 'ended', 'failed'" in refused(site.shell('true', after={first: 'finished'}))
    assert site.tmgr.list_tasks() == [first.uid, service.uid, placed.uid]
    # any order within a call
    site.pilots(1)
    tasks = site.tmgr.submit_tasks([site.shell('true', uid='z', after=['y']), site.shell('true', uid='y')])
    assert site.tmgr.wait_tasks(['z', 'y', first.uid], timeout=60) == [rp.DONE] * 3
    assert site.ran.index('y') < site.ran.index('z')
    site.tmgr.cancel_tasks(service.uid)
    # a task that was forgotten is known
    site.tmgr.forget_tasks('y')
    assert site.tmgr.submit_tasks(site.shell('true', after=['y'])).wait(timeout=60) == rp.DONE
    assert len(tasks) == 2


def test_a_waiting_task_is_drained(site: Site) -> None:
    one, two = site.pilots(1, 1)
    first = site.tmgr.submit_tasks(site.held(pilot=one.uid))
    waiting = site.tmgr.submit_tasks([site.shell('echo $RP_PILOT_ID', after=[first]) for _ in range(4)])
    after_those = site.tmgr.submit_tasks(site.shell('true', pilot=one.uid, after=waiting))
    wait_until(lambda: first.state == rp.AGENT_EXECUTING and {task.state for task in waiting} == {
        rp.AGENT_STAGING_INPUT_PENDING})
    assert {task.pilot for task in waiting} == {one.uid, two.uid}
    site.go()
    site.tmgr.remove_pilots(one.uid, drain=True)
    assert site.tmgr.wait_tasks(timeout=60) == [rp.DONE] * 6
    assert after_those.pilot == one.uid


def test_tasks_of_raptor_wait_before_they_go_to_their_master(site: Site) -> None:
    (pilot,) = site.pilots(3)
    first = site.tmgr.submit_tasks(site.held())
    (master,) = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
    master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 1}))
    call, never = site.tmgr.submit_tasks([rp.TaskDescription({
        'mode': rp.TASK_EVAL, 'code': '6 * 7', 'raptor_id': master.uid, 'after': {first: condition}})
        for condition in ('done', 'failed')])
    last = site.tmgr.submit_tasks(site.shell('true', after=[call]))
    wait_until(lambda: master.state == first.state == rp.AGENT_EXECUTING)
    assert call.state == rp.AGENT_STAGING_INPUT_PENDING
    assert str(call.reason) == f'waits for {first.uid} (AGENT_EXECUTING)'
    site.go()
    assert site.tmgr.wait_tasks([task.uid for task in (call, last, never)], timeout=60) == [
        rp.DONE, rp.DONE, rp.CANCELED]
    assert call.return_value == 42
    worker_after = rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 1, 'raptor_id': master.uid,
                                       'after': ['nowhere']})
    with pytest.raises(ValueError, match='nowhere'):
        site.tmgr.submit_workers(worker_after)


def test_dependencies_across_partitions(site: Site) -> None:
    pilot = site.pmgr.submit_pilots(pilot_description(site.base, cores=4, partitions=2))
    site.tmgr.add_pilots(pilot)
    first = site.tmgr.submit_tasks(site.shell('echo x > out', partition=0))
    second = site.tmgr.submit_tasks(site.shell('cat out', partition=1, input_staging=[f'task://{first.uid}/out']))
    third = site.tmgr.submit_tasks(site.shell('true', partition=0, after=[second]))
    assert site.tmgr.wait_tasks(timeout=60) == [rp.DONE] * 3
    assert second.stdout == 'x\n'
    assert site.ran == [first.uid, second.uid, third.uid]


def test_services_wait_and_can_be_waited_for_to_end(site: Site) -> None:
    site.pilots(3)
    first = site.tmgr.submit_tasks(site.held())
    service = site.tmgr.submit_tasks(site.shell('sleep 100', mode=rp.TASK_SERVICE, after=[first]))
    site.tmgr.submit_tasks(site.shell('true', after={service: 'ended'}))
    wait_until(lambda: first.state == rp.AGENT_EXECUTING)
    assert service.state == rp.AGENT_STAGING_INPUT_PENDING
    site.go()
    wait_until(lambda: service.state == rp.AGENT_EXECUTING)
    service.cancel()
    assert site.tmgr.wait_tasks(timeout=60) == [rp.DONE, rp.CANCELED, rp.DONE]


def test_backfilling_binds_waiting_tasks_at_once(session: rp.Session, base: Path) -> None:
    """They take no room from those that they wait for."""
    site = Site(session, base)
    site.tmgr = rp.TaskManager(session, scheduler=rp.SCHEDULER_BACKFILLING)
    site.pilots(1, 1)
    firsts = [rp.TaskDescription({'executable': 'true', 'uid': f'first{number}'}) for number in range(20)]
    waiting = [site.shell('true', after=[f'first{number}' for number in range(20)], priority=5) for _ in range(20)]
    site.tmgr.submit_tasks([*waiting, *firsts])
    assert site.tmgr.wait_tasks(timeout=60) == [rp.DONE] * 40

"""Every backend: updates, from the agents to the client."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.conformance_support import Agent, Client, Site, uids
from rp_api import states
from rp_api.coordination.contract import Update

DONE_SOON = states.TMGR_STAGING_OUTPUT_PENDING


def agent_with(site: Site, client: Client, tasks: list[str], pilot: str = 'p0') -> Agent:
    """An agent that has got these tasks."""
    agent = site.agent(pilot)
    client.submit(pilot, tasks)
    agent.until_tasks(tasks)
    return agent


def test_updates_come_with_what_became_known(site: Site, client: Client) -> None:
    agent = agent_with(site, client, ['a', 'b'])
    agent.report(['a'], states.AGENT_EXECUTING)
    agent.report(['b'], states.FAILED, {'exit_code': 3, 'stderr': 'n\udc80', 'a.b': {'$c': b'\0'}})
    client.until(lambda: len(client.states()) == 2)
    assert client.tasks == [Update('a', states.AGENT_EXECUTING),
                            Update('b', states.FAILED, {'exit_code': 3, 'stderr': 'n\udc80', 'a.b': {'$c': b'\0'}})]


def test_all_tasks_of_many_bulks_come_back(site: Site, client: Client) -> None:
    count = site.some(2500)
    site.agent('p0', react=lambda agent, got: agent.connection.update_tasks(
        [Update(uid, DONE_SOON, {'exit_code': 0}) for uid in got]))
    client.submit('p0', uids(count))
    client.until(lambda: len(client.states()) == count)
    assert sorted(client.order) == uids(count)
    assert set(client.states().values()) == {DONE_SOON}


def test_old_news_change_nothing(site: Site, client: Client) -> None:
    agent = agent_with(site, client, ['a', 'end'])
    for state in (states.AGENT_EXECUTING, states.AGENT_SCHEDULING, states.AGENT_EXECUTING, states.AGENT_STAGING_OUTPUT):
        agent.report(['a'], state)
    agent.report(['end'], DONE_SOON)
    client.until_states({'end': DONE_SOON})
    mine = [update.state for update in client.tasks if update.uid == 'a']
    # the client may be told of the last of several states only
    assert mine in ([states.AGENT_EXECUTING, states.AGENT_STAGING_OUTPUT], [states.AGENT_STAGING_OUTPUT])


@pytest.mark.parametrize('real', [states.DONE, states.FAILED])
def test_a_cancellation_can_be_corrected_once(site: Site, client: Client, real: str) -> None:
    agent = agent_with(site, client, ['a', 'b', 'end'])
    client.update(['a', 'b'], states.CANCELED)
    client.until_settled()
    agent.report(['a'], real, {'exit_code': 7})
    agent.report(['a'], states.FAILED if real == states.DONE else states.DONE)
    agent.report(['a'], states.CANCELED)
    agent.report(['b'], states.AGENT_EXECUTING)
    agent.report(['end'], DONE_SOON)
    client.until_states({'end': DONE_SOON})
    assert client.tasks == [Update('a', real, {'exit_code': 7}), Update('end', DONE_SOON)]


def test_clients_are_not_told_what_they_said_themselves(site: Site, client: Client) -> None:
    agent = agent_with(site, client, ['a', 'b'])
    client.update(['a'], states.CANCELED)
    client.until_settled()
    agent.report(['a', 'b'], states.AGENT_EXECUTING)   # too late for the first one
    client.until(lambda: client.tasks)
    assert client.tasks == [Update('b', states.AGENT_EXECUTING)]


def test_updates_from_another_pilot_do_not_count(site: Site, client: Client) -> None:
    former = agent_with(site, client, ['a', 'b'])
    stranger = site.agent('p1')
    stranger.report(['a'], states.FAILED)
    stranger.report(['nobody knows it'], states.FAILED)
    stranger.until_settled()
    client.do(client.connection.bind_tasks, 'p1', ['b'])
    stranger.until_tasks(['b'])
    former.report(['a', 'b'], DONE_SOON)
    former.until_settled()
    stranger.report(['b'], states.AGENT_EXECUTING)
    client.until(lambda: len(client.tasks) >= 2)
    assert sorted(client.tasks) == [Update('a', DONE_SOON), Update('b', states.AGENT_EXECUTING)]


def test_the_end_of_a_pilot_does_not_come_before_its_results(site: Site, client: Client) -> None:
    agent = agent_with(site, client, uids(20))
    agent.do(lambda: (agent.connection.update_tasks([Update(uid, DONE_SOON) for uid in uids(20)]),
                      agent.connection.update_pilots([Update('p0', states.DONE)])))
    client.until(lambda: client.pilots)
    assert sorted(client.order[:-1]) == uids(20)
    assert client.order[-1] == 'p0'


def test_an_active_pilot_says_again_what_it_has(site: Site, client: Client) -> None:
    agent = agent_with(site, client, ['a'])
    for names in ([], ['n1'], ['n1', 'n2']):
        agent.do(agent.connection.update_pilots, [Update('p0', states.PMGR_ACTIVE, {'notices': names})])
    client.until(lambda: client.pilots and client.pilots[-1].info == {'notices': ['n1', 'n2']})
    agent.report_pilot(states.FAILED)
    client.until(lambda: client.pilots[-1].state == states.FAILED)
    agent.do(agent.connection.update_pilots, [Update('p0', states.PMGR_ACTIVE, {'notices': ['late']})])
    agent.until_settled()
    site.leave(client)
    heir = site.client(recover=True)
    heir.recovered()
    assert heir.known_pilots['p0'].state == states.FAILED


def test_a_running_task_reports_its_state_again_with_new_information(site: Site, client: Client) -> None:
    agent = agent_with(site, client, ['a'])
    for info in ({'info': 'first'}, None, {'info': 'second'}):
        agent.do(agent.connection.update_tasks, [Update('a', states.AGENT_EXECUTING, info)])
        agent.until_settled()
    client.until(lambda: client.tasks and client.tasks[-1].info == {'info': 'second'})
    agent.do(agent.connection.update_tasks, [Update('a', states.AGENT_SCHEDULING, {'waits_for': 'nothing'})])
    agent.until_settled()
    site.leave(client)
    heir = site.client(recover=True)
    heir.recovered()
    known, = [task for task in heir.known_tasks.values() if task.uid == 'a']
    assert (known.state, known.info) == (states.AGENT_EXECUTING, {'info': 'second'})


def test_pilots_move_forward_and_the_last_word_counts(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    for state in (states.PMGR_ACTIVE, states.PMGR_LAUNCHING, states.FAILED):
        agent.report_pilot(state)
        agent.until_settled()
    client.until(lambda: client.pilots and client.pilots[-1].state == states.FAILED)
    client.do(client.connection.update_pilots, [Update('p0', states.DONE)])   # the batch system knows better
    client.until_settled()
    site.leave(client)
    heir = site.client(recover=True)
    heir.recovered()
    assert heir.known_pilots['p0'].state == states.DONE
    assert [update.state for update in client.pilots] in ([states.PMGR_ACTIVE, states.FAILED], [states.FAILED])


TASK_STATES = states.TASK.names[6:]   # those that an agent reports, and the final ones
REPORTS = st.lists(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(TASK_STATES)), min_size=1, max_size=8),
                   min_size=1, max_size=5)
_numbers = itertools.count()


def expected(reports: list[list[tuple[int, str]]]) -> dict[int, str]:
    """The last state of each task: forward only, final states stay, but a cancellation can be corrected."""
    known: dict[int, str] = {}
    for number, state in itertools.chain.from_iterable(reports):
        before = known.get(number)
        corrected = before == states.CANCELED and state in (states.DONE, states.FAILED)
        later = before not in states.FINAL and states.task_value(state) > states.task_value(before)
        if corrected or later:
            known[number] = state
    return known


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(reports=REPORTS)
def test_bulks_of_updates_in_any_order_with_repetitions(site: Site, reports: list[list[tuple[int, str]]]) -> None:
    client, agent = parties(site)
    tasks = uids(6, f'example{next(_numbers)}')
    client.submit('p0', tasks)
    agent.until_tasks(tasks)
    for bulk in reports:
        updates = [Update(tasks[number], state) for number, state in bulk]
        agent.do(agent.connection.update_tasks, updates)
    agent.report(tasks[-1:], DONE_SOON)
    client.until_states({tasks[-1]: DONE_SOON})
    known = {tasks.index(uid): state for uid, state in client.states().items() if uid in tasks[:-1]}
    assert known == expected(reports)


def parties(site: Site) -> tuple[Client, Agent]:
    """The client and the agent of a site, which all examples share."""
    if not site.parties:
        site.client().pilot('p0')
        site.agent('p0')
    client, agent = site.parties
    assert isinstance(client, Client)
    assert isinstance(agent, Agent)
    return client, agent

"""Every backend: what an application was told is known to the next one, by the owner of pilots and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conformance_support import RESTARTABLE, Agent, Client, Site, backend, one_site, uids
from rp_api import states
from rp_api.coordination.contract import UNBOUND, Mark, Update

BOUND = states.AGENT_STAGING_INPUT_PENDING
LEFT = states.TMGR_STAGING_OUTPUT_PENDING
RUNS = states.AGENT_EXECUTING


def with_tasks(site: Site, *tasks: str, owner: str = 'one') -> tuple[Client, Agent]:
    """A client with tasks of an owner on a pilot of that owner, and the agent, which has them."""
    client = site.client()
    client.pilot('p0', owner=owner)
    client.submit('p0', tasks, owner=owner)
    agent = site.agent('p0')
    agent.until_tasks(tasks)
    return client, agent


def heard(client: Client, agent: Agent, uid: str, state: str) -> None:
    """Have an agent report a state, and the client hear of it."""
    agent.report([uid], state)
    client.until_states({uid: state})


def told_to_heir(site: Site, client: Client) -> dict[str, str]:
    """What was told as the next client finds it."""
    client.until_settled()
    site.leave(client)
    return site.client(recover=True).told()


def test_nothing_was_told_that_was_not_acknowledged(site: Site) -> None:
    client, agent = with_tasks(site, 'a', 'b')
    heard(client, agent, 'a', RUNS)
    client.update(['b'], states.CANCELED)
    assert told_to_heir(site, client) == dict.fromkeys(['p0', 'a', 'b'], states.NEW)


def test_what_was_told_is_the_state_at_the_mark(site: Site) -> None:
    """Of reported states, own ones, and what was inserted; what came later was not told, also if it was heard."""
    client, agent = with_tasks(site, *'abcdef')
    client.do(client.connection.update_pilots, [Update('p0', states.PMGR_ACTIVE_PENDING)])
    heard(client, agent, 'a', RUNS)
    heard(client, agent, 'b', RUNS)
    heard(client, agent, 'c', LEFT)
    client.update('cd', states.DONE)
    client.acknowledge('one')
    heard(client, agent, 'b', LEFT)
    heard(client, agent, 'e', RUNS)
    client.update(['f'], states.FAILED)
    client.submit('p0', ['g'], owner='one')
    assert told_to_heir(site, client) == {
        'p0': states.PMGR_ACTIVE_PENDING, 'a': RUNS, 'b': RUNS, 'c': states.DONE, 'd': states.DONE, 'e': BOUND,
        'f': BOUND, 'g': states.NEW}


def test_what_comes_while_an_application_is_told_was_not_told(site: Site) -> None:
    """The mark is taken before callbacks run, and acknowledged afterwards."""
    client, agent = with_tasks(site, 'a', 'b', 'c')
    heard(client, agent, 'a', RUNS)
    client.until_settled()
    mark = client.do(lambda: client.connection.mark)
    heard(client, agent, 'b', RUNS)
    client.update(['c'], states.CANCELED)
    client.until_settled()
    client.do(client.connection.acknowledge, ['one'], mark)
    told = told_to_heir(site, client)
    assert (told['p0'], told['a']) == (states.NEW, RUNS)
    # the marks of earlier states may be lost when a later one comes before the acknowledgement
    assert {told['b'], told['c']} <= {states.NEW, BOUND}


def test_owners_are_told_apart(site: Site) -> None:
    client, agent = with_tasks(site, 'a')
    client.submit('p0', ['b'], owner='tmgr.0000')
    client.pilot('p1', owner='pmgr.0000')
    client.do(client.connection.update_pilots, [Update('p1', states.CANCELED)])
    agent.until_tasks(['b'])
    for uid in 'ab':
        heard(client, agent, uid, RUNS)
    client.acknowledge('tmgr.0000', 'nobody')
    heard(client, agent, 'b', LEFT)
    client.acknowledge('pmgr.0000')
    assert told_to_heir(site, client) == {'p0': states.NEW, 'p1': states.CANCELED, 'a': states.NEW, 'b': RUNS}


def test_an_old_mark_takes_nothing_back(site: Site) -> None:
    client, agent = with_tasks(site, 'a')
    heard(client, agent, 'a', RUNS)
    client.acknowledge('one')
    client.do(client.connection.acknowledge, ['one'], Mark())
    assert told_to_heir(site, client)['a'] == RUNS


def test_several_states_that_were_not_told_follow_the_last_one_that_was(site: Site) -> None:
    client, agent = with_tasks(site, 'a', 'b')
    heard(client, agent, 'a', states.AGENT_SCHEDULING)
    client.acknowledge('one')
    for state in (RUNS, states.AGENT_STAGING_OUTPUT, LEFT):
        heard(client, agent, 'a', state)
        heard(client, agent, 'b', state)
    client.update('ab', states.DONE)
    assert told_to_heir(site, client) == {'p0': states.NEW, 'a': states.AGENT_SCHEDULING, 'b': BOUND}


def test_the_next_client_acknowledges_what_it_found(site: Site) -> None:
    """Also what the former one has done itself, and what happened while nobody was there."""
    client, agent = with_tasks(site, 'a', 'b', 'c')
    heard(client, agent, 'a', RUNS)
    client.update(['b'], states.CANCELED)
    client.until_settled()
    site.leave(client)
    agent.report(['c'], LEFT)
    agent.until_settled()
    heir = site.client(recover=True)
    assert set(heir.told().values()) == {states.NEW}
    heir.acknowledge('one')
    heard(heir, agent, 'a', LEFT)
    assert told_to_heir(site, heir) == {'p0': states.NEW, 'a': RUNS, 'b': states.CANCELED, 'c': LEFT}


def test_a_late_end_is_no_state_that_was_told(site: Site) -> None:
    client, agent = with_tasks(site, 'a', 'b')
    client.update('ab', states.CANCELED)
    client.acknowledge('one')
    heard(client, agent, 'a', states.DONE)
    heard(client, agent, 'b', states.FAILED)
    site.leave(client)
    heir = site.client(recover=True)
    assert heir.told()['a'] == heir.told()['b'] == states.CANCELED
    assert [heir.known_tasks[uid].state for uid in 'ab'] == [states.DONE, states.FAILED]


def test_what_was_told_of_an_attempt_is_not_forgotten_with_it(site: Site) -> None:
    client, agent = with_tasks(site, 'a', 'b', 'c')
    client.pilot('p1')
    heard(client, agent, 'a', RUNS)
    client.acknowledge('one')
    client.do(client.connection.bind_tasks, 'p1', ['a', 'b', 'c'])
    other = site.agent('p1')
    other.until_tasks('abc')
    heard(client, other, 'a', states.AGENT_SCHEDULING)
    client.acknowledge('one')
    heard(client, other, 'a', RUNS)
    heard(client, other, 'c', RUNS)
    assert told_to_heir(site, client) == {'p0': states.NEW, 'p1': states.NEW, 'a': RUNS, 'b': BOUND, 'c': BOUND}


def test_tasks_that_wait_for_a_pilot(site: Site) -> None:
    client = site.client()
    client.pilot('p0', owner='one')
    client.submit(UNBOUND, uids(2), owner='one')
    client.acknowledge('one')
    client.submit(UNBOUND, ['later'], owner='one')
    client.do(client.connection.bind_tasks, 'p0', uids(1))
    assert told_to_heir(site, client) == {
        'p0': states.NEW, 'later': states.NEW, **dict.fromkeys(uids(2), states.TMGR_SCHEDULING_PENDING)}


@pytest.fixture(params=RESTARTABLE)
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A session with a server of its own."""
    with backend(request.param, tmp_path) as running, one_site(running, tmp_path) as site:
        yield site


def test_what_was_told_survives_the_backend(mortal: Site) -> None:
    client, agent = with_tasks(mortal, 'a', 'b')
    heard(client, agent, 'a', RUNS)
    client.acknowledge('one')
    mortal.kill()
    heard(client, agent, 'b', RUNS)
    client.acknowledge('one')
    heard(client, agent, 'a', LEFT)
    mortal.kill()
    client.submit('p0', ['c'], owner='one')
    assert told_to_heir(mortal, client) == {'p0': states.NEW, 'a': RUNS, 'b': RUNS, 'c': states.NEW}

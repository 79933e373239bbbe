"""Every backend: agents are told how tasks of other pilots end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conformance_support import RESTARTABLE, Client, Site, backend, one_site, uids
from rp_api import states
from rp_api.coordination.contract import BULK, UNBOUND
from rp_api.coordination.outcome import NEVER_SUBMITTED

LEFT = states.TMGR_STAGING_OUTPUT_PENDING


@pytest.fixture(params=RESTARTABLE)
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A session with a server of its own."""
    with backend(request.param, tmp_path) as running, one_site(running, tmp_path) as site:
        yield site


def test_ends_before_and_after_the_question(site: Site, client: Client) -> None:
    one, two = site.agent('p0'), site.agent('p1')
    client.submit('p0', ['done', 'staged', 'failed', 'runs', 'later'])
    one.until_tasks(['later'])
    one.report(['done'], states.DONE, {'stdout': 'much'})
    one.report(['staged'], LEFT, {'target_state': states.FAILED, 'exit_code': 2, 'stderr': 'much'})
    one.report(['failed'], states.FAILED, {'exception': 'so', 'error': {'kind': 'exit'}, 'stdout': 'much'})
    one.report(['runs'], states.AGENT_EXECUTING)
    one.until_settled()
    two.follow('done', 'staged', 'failed', 'runs', 'later')
    told = two.until_outcomes(done=states.DONE, staged=states.FAILED, failed=states.FAILED)
    assert told == {'done': {'pilot': 'p0'}, 'staged': {'pilot': 'p0', 'exit_code': 2},
                    'failed': {'pilot': 'p0', 'exception': 'so', 'error': {'kind': 'exit'}}}
    two.outcomes.clear()
    one.report(['later'], LEFT, {'target_state': states.DONE})
    two.until_outcomes(later=states.DONE)
    two.outcomes.clear()
    client.update(['runs'], states.CANCELED, {'exception': 'by the client'})
    assert two.until_outcomes(runs=states.CANCELED)['runs']['exception'] == 'by the client'
    assert one.outcomes == []


def test_a_task_that_comes_later_or_is_bound_to_another_pilot(site: Site, client: Client) -> None:
    one, two = site.agent('p0'), site.agent('p1')
    two.follow('unbound', 'moves', 'comes')
    client.submit(UNBOUND, ['unbound'])
    client.submit('p0', ['moves', 'first'])
    one.until_tasks(['first'])
    client.do(client.connection.bind_tasks, 'p1', ['moves'])
    two.until_tasks(['moves'])
    one.report(['moves'], states.FAILED)   # it is not its task any more
    one.until_settled()
    client.submit('p0', ['comes'])
    one.until_tasks(['comes'])
    one.report(['comes'], states.DONE)
    two.until_outcomes(comes=states.DONE)
    client.update(['unbound'], states.CANCELED)
    two.report(['moves'], states.DONE)
    told = two.until_outcomes(comes=states.DONE, unbound=states.CANCELED, moves=states.DONE)
    assert told['moves'] == {'pilot': 'p1'}


def test_many_tasks_and_several_followers(site: Site, client: Client) -> None:
    client.pilot('p2')
    one, two, three = site.agent('p0'), site.agent('p1'), site.agent('p2')
    many = uids(site.some(3 * BULK))
    for agent in (two, three):
        agent.follow(*many)
    client.submit('p0', many)
    one.until_tasks(many)
    one.report(many[::2], states.DONE)
    one.report(many[1::2], states.FAILED)
    for agent in (two, three):
        agent.until_outcome_count(len(many))
        assert {update.uid: update.state for update in agent.outcomes} == {
            uid: (states.DONE, states.FAILED)[number % 2] for number, uid in enumerate(many)}


def test_without_a_client(site: Site, client: Client) -> None:
    """Agents tell each other by the coordinator; tasks that were never submitted will not be."""
    one, two = site.agent('p0'), site.agent('p1')
    client.submit('p0', ['early', 'late'])
    one.until_tasks(['early', 'late'])
    client.until_settled()
    two.follow('early', 'unknown')
    site.leave(client)
    one.report(['early'], states.DONE)
    told = two.until_outcomes(early=states.DONE, unknown=states.CANCELED)
    assert told['unknown'] == {'exception': NEVER_SUBMITTED}
    two.outcomes.clear()
    two.follow('late')
    one.report(['late'], states.FAILED, {'exit_code': 1})
    assert two.until_outcomes(late=states.FAILED)['late']['exit_code'] == 1


def test_hub_or_server_are_killed(mortal: Site) -> None:
    client = mortal.client()
    client.pilot('p0', 'p1')
    one, two = mortal.agent('p0'), mortal.agent('p1')
    client.submit('p0', ['a', 'b'])
    one.until_tasks(['a', 'b'])
    two.follow('a', 'b')
    two.until_settled()
    mortal.kill()
    one.report(['a'], states.DONE)
    two.until_outcomes(a=states.DONE)
    mortal.kill()
    one.report(['b'], states.DONE)
    two.until_outcomes(a=states.DONE, b=states.DONE)

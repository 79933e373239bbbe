"""Any message between a hub and its peers may get lost, once or several times; what it brought comes all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hub_support import Client, MakeSite, Site, sites, uids
from parties import Party

from rp_api import states
from rp_api.coordination import sessions
from rp_api.coordination.connections import hub_connection
from rp_api.coordination.contract import Page
from rp_api.wire import codec

pytestmark = pytest.mark.fault


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A hub whose peers say more often than usual how far they are."""
    monkeypatch.setattr(hub_connection, 'PING_INTERVAL_S', 0.1)
    with sites(tmp_path) as make:
        yield started(make)


def started(make: MakeSite) -> Site:
    return make().start()


def losing(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """What is called instead of `function` and loses the first calls."""
    lost = iter(range(count))
    return lambda *arguments: next(lost, None) is None and function(*arguments)


def lose_what_comes(party: Party, kind: str, count: int = 1) -> None:
    """Lose the next messages of one kind that the hub sends to a peer."""
    handlers = party.connection._handlers
    party.do(lambda: handlers.update({kind: losing(count, handlers[kind])}))


def lose_what_goes(party: Party, operation: str, count: int = 1) -> None:
    """Lose the next messages with one operation that a peer sends to the hub."""
    connection = party.connection
    send, lose = connection._post_raw, losing(count, connection._post_raw)
    party.do(lambda: setattr(connection, '_post_raw', lambda data: (
        lose if codec.unpack(data)[1] == operation else send)(data)))


@pytest.mark.parametrize('count', [1, 3, 20])
@pytest.mark.parametrize('kind', ['feed', 'ack', 'pong'])
def test_messages_of_the_hub(site: Site, kind: str, count: int) -> None:
    client, agent = site.client(), site.agent('p')
    client.do(client.connection.insert_pilots, {'p': {}})
    for party in (client, agent):
        lose_what_comes(party, kind, count)
    wanted = uids(30)
    for uid in wanted:   # each in a message of its own
        client.submit('p', [uid])
    agent.until(lambda: len(agent.tasks) == len(wanted))
    for uid in wanted:
        agent.report([uid], states.TMGR_STAGING_OUTPUT_PENDING)
    client.until(lambda: client.states() == dict.fromkeys(wanted, states.TMGR_STAGING_OUTPUT_PENDING))
    assert [task['uid'] for task in agent.tasks] == wanted
    for party in (client, agent):
        party.until_settled()


@pytest.mark.parametrize('operation', ['tasks', 'pilots', 'command', 'seen', 'ping', 'hello'])
def test_messages_of_the_client(site: Site, operation: str) -> None:
    client, agent = site.client(), site.agent('p')
    lose_what_goes(client, operation, 2)
    client.do(client.connection._say_hello)
    client.do(client.connection.insert_pilots, {'p': {}})
    client.submit('p', uids(3))
    client.do(client.connection.command, 'p', {'cmd': 'stop'})
    agent.until(lambda: 'stop' in agent.order)
    assert agent.order == [*uids(3), 'stop']
    for number, uid in enumerate(uids(3)):
        agent.report([uid], states.AGENT_EXECUTING)
        client.until(partial(lambda known: len(client.states()) == known, number + 1))
    client.until_settled()


@pytest.mark.parametrize('kind', ['welcome', 'who'])
def test_what_belongs_to_a_greeting(site: Site, kind: str) -> None:
    client, agent = site.client(), site.agent('p')
    lose_what_comes(agent, kind, 2)
    agent.do(agent.connection._say_hello)
    lose_what_goes(agent, 'update_tasks')
    client.do(client.connection.insert_pilots, {'p': {}})
    client.submit('p', uids(1))
    agent.until(lambda: agent.tasks)
    agent.report(uids(1), states.AGENT_EXECUTING)
    client.until(lambda: client.states() == dict.fromkeys(uids(1), states.AGENT_EXECUTING))


def test_who_has_enough_may_say_so_while_a_hello_is_on_its_way(site: Site) -> None:
    client, agent = site.client(), site.agent('p')

    def say() -> None:
        agent.connection._say_hello()
        agent.connection.hold(True)

    client.do(client.connection.insert_pilots, {'p': {}})
    agent.report_pilot(states.PMGR_LAUNCHING)
    agent.until_settled()
    agent.do(say)
    agent.report_pilot(states.PMGR_ACTIVE)
    agent.until_settled()
    client.submit('p', uids(1))
    client.do(client.connection.command, 'p', {'cmd': 'last'})
    agent.until(lambda: agent.order)
    assert agent.order == ['last']


def test_the_word_that_more_tasks_may_come(site: Site) -> None:
    client, agent = site.client(), site.agent('p')
    client.do(client.connection.insert_pilots, {'p': {}})
    client.submit('p', uids(1))
    agent.until(lambda: agent.tasks)
    agent.hold()
    client.do(client.connection.command, 'p', {'cmd': 'first'})
    agent.until(lambda: 'first' in agent.order)
    lose_what_goes(agent, 'hold')
    agent.do(agent.connection.hold, False)
    client.submit('p', uids(2))
    agent.until(lambda: len(agent.tasks) == 2)


@pytest.mark.parametrize('kind', ['page', 'recover'])
def test_what_a_new_client_asks_for(site: Site, kind: str) -> None:
    first = site.client()
    first.do(first.connection.insert_pilots, {'p': {}})
    first.submit('p', uids(2000))
    first.until_settled()
    first.do(first.connection.detach)
    second = site.client()
    if kind == 'page':
        lose_what_comes(second, kind)
    else:
        lose_what_goes(second, kind)
    assert known_to(second) == uids(2000)


@pytest.mark.parametrize('operation', ['bye', 'ping', 'hello'])
def test_the_goodbye_of_the_client(site: Site, operation: str) -> None:
    client = site.client()
    client.do(client.connection.insert_pilots, {'p': {}})
    lose_what_goes(client, operation, 2)
    client.do(client.connection.finish, lambda: client.note('finished'))
    client.until_news('finished')
    client.close()
    assert site.until_ended() == 0
    assert sessions.summary(site.directory).state == sessions.CLOSED


def known_to(client: Client) -> list[str]:
    """The uids of all tasks that a client recovers."""
    pages: list[Page] = []

    def take(page: Page) -> None:
        pages.append(page)
        client.note('page')

    client.do(client.connection.recover, take)
    client.until(lambda: pages and pages[-1].last)
    return [task.uid for page in pages for task in page.tasks]

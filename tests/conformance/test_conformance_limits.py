"""Every backend: how much can be on its way, who is lost and when, and who is turned away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from conformance.conformance_support import Backend, Client, Process, Site, one_site, uids
from rp_api import states
from rp_api.coordination.contract import PROTOCOL, Update

DONE_SOON = states.TMGR_STAGING_OUTPUT_PENDING
LEASE = 1.5

# an agent that says which commands and tasks it gets; `elsewhere` makes it look as if it were on another host
AGENT = '''
import json, sys
from rp_api.system import host
orders = json.loads(sys.stdin.readline())
if orders['elsewhere']:
    host.host_id = lambda: 'another host'
from rp_api.coordination import connect
from rp_api.coordination.contract import AgentHandler, Update
from rp_api.loop.event_loop import Loop

def say(what):
    print(json.dumps(what), flush=True)

loop = Loop()
connection = connect.agent_connection(loop, orders['access'], orders['pilot'], 'agent_0')

class Handler(AgentHandler):
    def on_command(self, command):
        say(command)

    def on_tasks(self, tasks):
        say([uid for uid, _ in tasks])

connection.open(Handler())
connection.update_pilots([Update(orders['pilot'], 'PMGR_ACTIVE')])
connection.when_settled(lambda: say('active'))
loop.run()
'''


@pytest.fixture
def site(server: Backend, tmp_path: Path) -> Iterator[Site]:
    with one_site(server, tmp_path, lease=LEASE) as site:
        yield site


def start_agent(site: Site, pilot: str = 'p0', *, elsewhere: bool = False) -> Process:
    agent = Process(AGENT, access=site.coordinator.agent_access, pilot=pilot, elsewhere=elsewhere)
    try:
        assert agent.answer() == 'active'
    except BaseException:
        agent.kill()
        raise
    return agent


# how much can be on its way


def test_there_is_no_room_while_much_is_on_its_way(client: Client) -> None:
    client.news.clear()

    def send() -> list[bool]:
        room = []
        for number in range(12):
            client.connection.command('p0', {'cmd': str(number)})
            room.append(client.connection.room)
        return room

    room = client.do(send)
    assert room == [True] * room.index(False) + [False] * (12 - room.index(False))
    client.until(lambda: 'room' in client.news)
    client.until_settled()
    assert client.do(lambda: client.connection.room)


def test_settled_comes_after_all_that_was_sent(site: Site, client: Client) -> None:
    order: list[str] = []

    def settled(number: int) -> None:
        order.append(str(number))
        client.note('settled')

    def send() -> None:
        for number in range(3):
            client.connection.command('p0', {'cmd': str(number)})
            client.connection.when_settled(partial(settled, number))

    client.do(send)
    client.until(lambda: len(order) == 3)
    assert order == ['0', '1', '2']
    client.until(lambda: client.connection.settled)
    client.do(client.connection.when_settled, lambda: client.note('at once'))
    assert 'at once' in client.news


def test_what_a_slow_client_has_not_taken_waits_in_the_backend(site: Site, client: Client) -> None:
    """Its process takes in no more than a few bulks, so that what comes then does not fill its memory."""
    agent = site.agent('p0')
    count, size = 60, 500_000
    client.submit('p0', uids(count))
    agent.until_tasks(uids(count))
    release = client.block()
    before = resident()
    for uid in uids(count):
        agent.report([uid], DONE_SOON, {'stdout': 'x' * size})
        agent.until_settled()
    grown = resident() - before
    release()
    client.until(lambda: len(client.states()) == count)
    assert grown < count * size * 0.7, f'{grown} bytes more for {count * size} bytes of results'


def resident() -> int:
    """Memory of this process, in bytes."""
    pages = int(Path('/proc/self/statm').read_text().split()[1])
    return pages * os.sysconf('SC_PAGE_SIZE')


# who is lost


def test_an_agent_that_dies_takes_its_pilot_with_it(site: Site, client: Client) -> None:
    agent, other = start_agent(site), start_agent(site, 'p1')
    try:
        client.until(lambda: len(client.pilots) == 2)
        agent.kill()
        client.until(lambda: client.pilots[-1].state == states.FAILED)
        end = client.pilots[-1]
        assert end.uid == 'p0'
        assert end.info is not None
        assert end.info['exception'] == 'the agent of p0 died'
        client.do(client.connection.command, 'p1', {'cmd': 'still there?'})
        assert other.answer() == {'cmd': 'still there?'}
    finally:
        agent.kill()
        other.kill()


def test_who_knows_better_how_an_agent_ended_has_the_last_word(site: Site, client: Client) -> None:
    agent = start_agent(site)
    client.until(lambda: client.pilots)
    agent.kill()
    client.do(client.connection.update_pilots, [Update('p0', states.FAILED, {'exception': 'exit code 3'})])
    client.until_settled()
    other = start_agent(site, 'p1')
    try:
        other.signal(signal.SIGKILL)   # when this is told, the other has been dealt with
        client.until(lambda: client.pilots[-1][:2] == ('p1', states.FAILED))
    finally:
        other.kill()
    assert [update for update in client.pilots if update.state == states.FAILED] == client.pilots[-1:]


def test_an_agent_elsewhere_that_is_silent_is_lost_and_dismissed_when_it_is_back(site: Site, client: Client) -> None:
    agent = start_agent(site, elsewhere=True)
    try:
        client.submit('p0', ['a'])
        assert agent.answer() == ['a']
        agent.signal(signal.SIGSTOP)
        client.until(lambda: client.pilots and client.pilots[-1].state == states.FAILED)
        assert client.pilots[-1].info is not None
        assert client.pilots[-1].info['exception'] == \
            f'the agent of p0 was silent for longer than its lease of {LEASE:g} s'
        agent.signal(signal.SIGCONT)
        command = agent.answer()
        assert command['cmd'] == 'cancel_pilot'
        assert command['reason'].startswith('is FAILED already')
    finally:
        agent.kill()


def test_an_agent_that_comes_too_late_is_dismissed(site: Site, client: Client) -> None:
    client.do(client.connection.update_pilots, [Update('p0', states.CANCELED)])
    client.until_settled()
    agent = site.agent('p0')
    agent.until(lambda: agent.commands)
    assert agent.commands == [{'cmd': 'cancel_pilot', 'reason': 'is CANCELED already', 'state': 'CANCELED'}]


def test_an_agent_whose_pilot_the_client_has_ended_is_dismissed(site: Site, client: Client) -> None:
    """It is connected all the time, so it is not told on its return."""
    agent, other = site.agent('p0'), site.agent('p1')
    for each in (agent, other):
        each.report_pilot(states.PMGR_ACTIVE)
        each.until_settled()
    client.do(client.connection.update_pilots, [Update('p0', states.FAILED, {'exception': 'taken for dead'})])
    agent.until(lambda: agent.commands)
    assert agent.commands == [
        {'cmd': 'cancel_pilot', 'reason': 'is FAILED already: taken for dead', 'state': 'FAILED'}]
    client.do(client.connection.command, 'p1', {'cmd': 'still there?'})
    other.until(lambda: other.commands)
    assert other.commands == [{'cmd': 'still there?'}]


def test_an_agent_that_is_there_when_the_session_is_closed_is_told(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    agent.report_pilot(states.PMGR_ACTIVE)
    agent.until_settled()
    site.end(client)
    agent.until(lambda: agent.commands)
    assert agent.commands == [{'cmd': 'cancel_pilot', 'reason': 'the session was closed'}]


def test_an_agent_that_leaves_is_not_lost(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    agent.report_pilot(states.DONE)
    agent.until_settled()
    agent.close()
    lost = start_agent(site, 'p1')
    lost.kill()
    client.until(lambda: client.pilots[-1].uid == 'p1' and client.pilots[-1].state == states.FAILED)
    assert [update.state for update in client.pilots if update.uid == 'p0'] == [states.DONE]


# who is turned away


@pytest.mark.parametrize('version', [PROTOCOL - 1, PROTOCOL + 1])
def test_agents_of_another_version_are_refused(site: Site, client: Client, monkeypatch: pytest.MonkeyPatch,
                                               version: int) -> None:
    for module in ('connections.hub_connection', 'mongodb.agent'):
        monkeypatch.setattr(f'rp_api.coordination.{module}.PROTOCOL', version)
    client.submit('p0', ['a'])
    agent = site.agent('p0')
    reason = agent.until_refused()
    assert f'agent uses protocol {version}' in reason
    assert 'pip install' in reason
    assert agent.order == []

"""What a session relies on beyond the way of a task: binding, taking over, leaving, lost agents, a full disk."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hub_support import Agent, Client, MakeSite, Site, sites, uids
from test_hub_faults import Victim, restart

from rp_api import states
from rp_api.coordination.connections import hub_connection
from rp_api.coordination.contract import BULK, UNBOUND, ClientHandler, KnownTask, Page, Update
from rp_api.wire import codec
from rp_profiling.catalogue import event
from rp_profiling.read.profile import read_profile

pytestmark = pytest.mark.fault

LEFT = states.TMGR_STAGING_OUTPUT_PENDING


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    with sites(tmp_path) as make:
        yield make


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    return make_site().start()


@pytest.fixture
def client(site: Site) -> Client:
    client = site.client()
    client.do(client.connection.insert_pilots, {'p0': {'cores': 4}, 'p1': {}})
    client.until_settled()
    return client


@pytest.fixture
def victims() -> Iterator[list[Victim]]:
    victims: list[Victim] = []
    yield victims
    for victim in victims:
        victim.kill()


def rows(site: Site, query: str) -> list[Any]:
    """What the file of a hub holds."""
    database = sqlite3.connect(f'file:{site.directory}/hub.db?mode=ro', uri=True)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def pages_of(client: Client) -> Callable[[], list[Page]]:
    """Ask for everything that the session holds; gives a function that waits for it."""
    pages: list[Page] = []

    def on_page(page: Page) -> None:
        pages.append(page)
        client.note('page')

    client.do(client.connection.recover, on_page)

    def wait() -> list[Page]:
        client.until(lambda: pages and pages[-1].last)
        return pages

    return wait


def known(client: Client) -> dict[str, KnownTask]:
    """The tasks that a session holds."""
    return {task.uid: task for page in pages_of(client)() for task in page.tasks}


# binding


def test_tasks_that_are_not_bound_are_kept_until_they_are(site: Site, client: Client) -> None:
    agent = site.agent('p1')
    client.submit(UNBOUND, ['a', 'b', 'c'])
    client.submit('p1', ['d'])
    agent.until(lambda: agent.order == ['d'])
    client.do(client.connection.bind_tasks, 'p1', ['c', 'a', 'nobody', 'd'])
    agent.until(lambda: agent.order == ['d', 'c', 'a'])
    assert agent.tasks[1] == {'uid': 'c', 'executable': '/bin/c'}
    assert rows(site, 'SELECT uid, pilot, attempts, state FROM tasks ORDER BY id') == [
        ('a', 'p1', 1, states.AGENT_STAGING_INPUT_PENDING), ('b', '', 0, states.TMGR_SCHEDULING_PENDING),
        ('c', 'p1', 1, states.AGENT_STAGING_INPUT_PENDING), ('d', 'p1', 1, states.AGENT_STAGING_INPUT_PENDING)]


def test_a_task_that_is_bound_anew_begins_anew(site: Site, client: Client) -> None:
    first, second = site.agent('p0'), site.agent('p1')
    client.submit('p0', ['runs', 'left', 'failed', 'canceled'])
    first.until(lambda: len(first.order) == 4)
    first.report(['runs'], states.AGENT_EXECUTING, {'nodes': 1})
    first.report(['left'], LEFT, {'exit_code': 0})
    first.report(['failed'], states.FAILED)
    first.until_settled()
    client.do(client.connection.update_tasks, [Update('canceled', states.CANCELED)])
    client.do(client.connection.bind_tasks, 'p1', ['runs', 'left', 'failed', 'canceled'])
    second.until(lambda: second.order == ['runs'])
    second.report(['runs'], states.AGENT_SCHEDULING)
    client.until(lambda: client.tasks[-1:] == [Update('runs', states.AGENT_SCHEDULING)])
    assert rows(site, 'SELECT uid, pilot, attempts FROM tasks ORDER BY id') == [
        ('runs', 'p1', 2), ('left', 'p0', 1), ('failed', 'p0', 1), ('canceled', 'p0', 1)]


def test_what_a_pilot_tells_about_tasks_that_it_gave_up_is_refused_with_a_trace(site: Site, client: Client) -> None:
    late, agent = site.agent('p0'), site.agent('p1')
    client.submit('p0', ['a', 'b'])
    late.until(lambda: len(late.order) == 2)
    client.do(client.connection.bind_tasks, 'p1', ['a'])
    agent.until(lambda: agent.order == ['a'])
    late.report(['a', 'b'], LEFT, {'exit_code': 1})
    late.until_settled()
    agent.report(['a'], LEFT, {'exit_code': 0})
    client.until(lambda: len(client.states()) == 2)
    assert sorted(client.tasks) == [Update('a', LEFT, {'exit_code': 0}), Update('b', LEFT, {'exit_code': 1})]
    profile = read_profile(site.directory / 'hub.prof')
    assert [(row.uid, row.msg) for row in profile if row.event == 'update_refused'] == [('a', 'p0')]
    assert event('Coordination', 'update_refused').profiles[0] == 'hub.prof'


def test_an_agent_speaks_for_its_own_pilot_only(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    agent.do(agent.connection.update_pilots, [Update('p1', states.FAILED), Update('p0', states.PMGR_ACTIVE)])
    client.until(lambda: client.pilots)
    assert client.pilots == [Update('p0', states.PMGR_ACTIVE)]


# several agents of one pilot


def test_agents_of_one_pilot_share_its_tasks_and_get_all_its_commands(site: Site, client: Client) -> None:
    agents = [site.agent('p0', agent=f'agent_{number}') for number in range(3)]
    for agent in agents:   # so that all of them are there
        agent.report_pilot(states.PMGR_ACTIVE)
        agent.until_settled()
    client.submit('p0', uids(3000))
    client.do(client.connection.command, 'p0', {'cmd': 'stop'})
    for agent in agents:
        agent.until(partial(agent.order.__contains__, 'stop'))
    shares = [agent.order[:-1] for agent in agents]
    assert sorted(uid for share in shares for uid in share) == uids(3000)
    assert all(share and share == sorted(share) for share in shares)


def test_each_agent_gets_its_own_tasks_again_from_a_new_hub(site: Site, client: Client) -> None:
    agents = [site.agent('p0', agent=f'agent_{number}') for number in range(2)]
    for agent in agents:   # so that all of them are there
        agent.report_pilot(states.PMGR_ACTIVE)
        agent.until_settled()
    client.submit('p0', uids(2000))
    for agent in agents:
        agent.until(partial(bool, agent.order))
    restart(site)
    client.submit('p0', uids(10, 'late'))
    expected = sorted(uids(2000) + uids(10, 'late'))
    for agent in agents:
        agent.until(lambda: sorted({uid for agent in agents for uid in agent.order}) == expected)
    assert not set(agents[0].order) & set(agents[1].order)


def test_who_has_enough_gets_no_more_tasks_but_commands(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    agent.hold()
    client.submit('p0', ['a'])
    client.do(client.connection.command, 'p0', {'cmd': 'ping'})
    agent.until(lambda: agent.order == ['ping'])
    restart(site)
    client.do(client.connection.command, 'p0', {'cmd': 'pong'})
    agent.until(lambda: agent.order == ['ping', 'pong'])
    agent.do(agent.connection.hold, False)
    agent.until(lambda: agent.order == ['ping', 'pong', 'a'])


# what is accepted has its effect once


def test_commands_are_not_given_twice_by_a_hub_that_was_started_again(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    sent = [str(number) for number in range(60)]
    for command in sent:
        client.do(client.connection.command, 'p0', {'cmd': command})
        if command in ('20', '40'):
            agent.until(lambda: agent.order)
            restart(site)
    agent.until(lambda: '59' in agent.order)
    assert agent.order == sent


def test_an_agent_that_has_to_end_without_hub_knows_what_was_not_accepted(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    client.submit('p0', ['a', 'b'])
    agent.until(lambda: len(agent.order) == 2)
    agent.report(['a'], states.AGENT_EXECUTING)
    agent.until_settled()
    os.kill(site.hub.pid, signal.SIGKILL)
    agent.until_news('lost')
    agent.report(['a'], LEFT, {'exit_code': 0})
    agent.report(['b'], states.FAILED)
    assert agent.do(agent.connection.unsettled) == [Update('a', LEFT, {'exit_code': 0}), Update('b', states.FAILED)]


# taking over


def test_a_new_client_gets_everything_that_the_session_holds(make_site: MakeSite, victims: list[Victim]) -> None:
    site = make_site().start()
    victims.append(Victim(site.hub.address, role='client', tasks={'p0': uids(3), 'p1': []}))
    agent = site.agent('p0')
    agent.until(lambda: len(agent.order) == 3)
    agent.report(uids(2), LEFT, {'exit_code': 0})
    agent.report_pilot(states.PMGR_ACTIVE, {'nodes': 1})
    agent.until_settled()
    victims[0].kill()
    client = site.client()
    wait = pages_of(client)
    page, = wait()
    assert page.notes == {'tmgr.0000': {'scheduler': 'x'}}
    assert {pilot.uid: (pilot.state, pilot.info) for pilot in page.pilots} == {
        'p0': (states.PMGR_ACTIVE, {'nodes': 1}), 'p1': (states.NEW, None)}
    assert [(task.uid, task.owner, task.pilot, task.attempts, task.state, task.info) for task in page.tasks] == [
        *((uid, 'tmgr.0000', 'p0', 1, LEFT, {'exit_code': 0}) for uid in uids(2)),
        (uids(3)[2], 'tmgr.0000', 'p0', 1, states.AGENT_STAGING_INPUT_PENDING, None)]
    assert page.tasks[0].description == {'executable': '/bin/t.00000'}
    agent.report(uids(3)[2:], states.AGENT_EXECUTING)
    client.until(lambda: Update(uids(3)[2], states.AGENT_EXECUTING) in client.tasks)


def test_what_was_told_is_kept_by_the_file(make_site: MakeSite) -> None:
    site = make_site().start()
    client, agent = site.client(), site.agent('p0')
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.submit('p0', ['told', 'untold', 'waits'])
    agent.until(lambda: len(agent.order) == 3)
    agent.report(['told'], LEFT)
    client.until(lambda: client.tasks)
    client.until_settled()
    client.do(lambda: client.connection.acknowledge([''], client.connection.mark))
    client.submit('p0', ['later'])
    client.until_settled()
    client.do(client.connection.detach)
    restart(site)
    agent.report(['untold'], LEFT)
    agent.until_settled()
    sent = states.AGENT_STAGING_INPUT_PENDING
    assert {uid: task.told for uid, task in known(site.client()).items()} == {
        'told': LEFT, 'untold': sent, 'waits': sent, 'later': states.NEW}


def test_many_tasks_come_in_pages_also_from_a_hub_that_dies_meanwhile(site: Site, client: Client) -> None:
    client.submit('p0', uids(3 * BULK + 5))
    client.until_settled()
    client.do(client.connection.detach)
    other = site.client()
    pages: list[Page] = []

    def on_page(page: Page) -> None:
        pages.append(page)
        if len(pages) == 2:
            os.kill(site.hub.pid, signal.SIGKILL)
        other.note('page')

    other.do(other.connection.recover, on_page)
    other.until(lambda: len(pages) >= 2)
    site.until_ended()
    site.start()
    other.until(lambda: pages[-1].last)
    assert [task.uid for page in pages for task in page.tasks] == uids(3 * BULK + 5)
    assert [len(page.pilots) for page in pages] == [2, 0, 0, 0]


def test_updates_wait_for_the_end_of_the_recovery(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    client.submit('p0', uids(2 * BULK))
    agent.until(lambda: len(agent.order) == 2 * BULK)
    client.do(client.connection.detach)
    agent.report(uids(2 * BULK), states.AGENT_EXECUTING)
    order: list[str] = []
    other = site.client()

    def noted(what: str, news: str) -> None:
        order.append(what)
        other.note(news)

    class Updates(ClientHandler):
        def on_tasks(self, updates: list[Update]) -> None:
            noted('update', 'tasks')

    other.connection.open(Updates())
    other.do(other.connection.recover, lambda page: noted('page', 'page'))
    other.until(lambda: 'page' in order)
    order.clear()   # with it, updates that came before it was asked for
    agent.report(uids(2 * BULK), LEFT)
    other.until(lambda: 'update' in order)
    assert 'page' not in order[order.index('update'):]


def test_notes_replace_each_other_and_survive_the_hub(site: Site, client: Client) -> None:
    for number in range(3):
        client.do(client.connection.note, 'key', {'number': number})
        client.do(client.connection.note, f'key.{number}', None)
    restart(site)
    assert pages_of(client)()[0].notes == {'key': {'number': 2}, 'key.0': None, 'key.1': None, 'key.2': None}


def test_a_session_in_use_is_refused_to_another_client(site: Site, client: Client) -> None:
    client.until_settled()
    other = site.client()
    other.until(lambda: any(news.startswith('refused') for news in other.news))
    assert f'in use by process {os.getpid()} on {os.uname().nodename}' in other.news[0]
    agent = site.agent('p0')
    client.submit('p0', ['a'])
    agent.until(lambda: agent.order == ['a'])


def test_the_file_tells_whether_the_session_was_closed(site: Site, client: Client, make_site: MakeSite) -> None:
    client.until_settled()
    closed = "SELECT count(*) FROM meta WHERE key = 'closed'"
    assert rows(site, closed) == [(0,)]
    assert rows(site, "SELECT key FROM meta WHERE key IN ('client', 'hub') AND value != ''") == [('client',), ('hub',)]
    client.close()
    assert site.until_ended() == 0
    assert rows(site, closed) == [(1,)]
    assert rows(site, "SELECT key FROM meta WHERE key IN ('client', 'hub') AND value != ''") == []


def test_a_client_that_leaves_on_purpose_leaves_the_pilots_as_they_are(make_site: MakeSite) -> None:
    site = make_site(orphan_timeout=0.0).start()
    client = site.client()
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.until_settled()
    agent = site.agent('p0')
    agent.report_pilot(states.PMGR_ACTIVE)
    client.do(client.connection.detach)
    other = site.client()
    other.until(lambda: other.pilots == [Update('p0', states.PMGR_ACTIVE)])
    other.do(other.connection.detach)
    assert agent.commands == []
    agent.report_pilot(states.DONE)
    assert site.until_ended() == 0
    assert agent.commands == []
    assert rows(site, "SELECT count(*) FROM meta WHERE key = 'closed'") == [(0,)]


# agents that are lost


def test_the_pilot_of_an_agent_that_dies_has_failed(site: Site, client: Client, victims: list[Victim]) -> None:
    victims.append(Victim(site.hub.agent_address, role='agent', pilot='p0'))
    client.until(lambda: client.pilots)
    victims[0].kill()
    client.until(lambda: len(client.pilots) == 2)
    assert client.pilots[1] == Update('p0', states.FAILED, {'exception': 'the agent of p0 died'})


def test_the_word_of_the_client_on_how_an_agent_ended_wins(site: Site, client: Client, victims: list[Victim]) -> None:
    victims.append(Victim(site.hub.agent_address, role='agent', pilot='p0'))
    client.until(lambda: client.pilots)
    victims[0].kill()
    client.do(client.connection.update_pilots, [Update('p0', states.FAILED, {'exception': 'exit code 3'})])
    agent = site.agent('p1')
    agent.report_pilot(states.PMGR_ACTIVE)
    client.until(lambda: len(client.pilots) == 2)
    assert client.pilots[1].uid == 'p1'
    (state, info), = rows(site, "SELECT state, info FROM pilots WHERE uid = 'p0'")
    assert (state, codec.unpack(info)) == (states.FAILED, {'exception': 'exit code 3'})


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers are on another host than the hub, and tell often that they live."""
    monkeypatch.setattr(hub_connection, 'host_id', lambda: 'elsewhere')
    monkeypatch.setattr(hub_connection, 'PING_INTERVAL_S', 0.05)


@pytest.mark.usefixtures('elsewhere')
def test_an_agent_that_is_silent_for_longer_than_its_lease_is_lost_and_dismissed_when_it_comes_back(
        make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(lease=3.0).start()
    client, agent = site.client(), site.agent('p0')
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.submit('p0', ['a'])
    agent.until(lambda: agent.order)
    monkeypatch.setattr(hub_connection, 'SILENCE_TIMEOUT_S', 1000)
    agent.do(lambda: agent.connection._timer.cancel())   # the one that there is by then
    client.until(lambda: client.pilots)
    reason = 'the agent of p0 was silent for longer than its lease of 3 s'
    assert client.pilots == [Update('p0', states.FAILED, {'exception': reason})]
    agent.report(['a'], LEFT)   # its task was not given to anybody else
    agent.until(lambda: agent.commands)
    assert agent.commands == [{'cmd': 'cancel_pilot', 'reason': f'is FAILED already: {reason}', 'state': 'FAILED'}]
    client.until(lambda: client.tasks == [Update('a', LEFT)])


def test_a_pilot_whose_agent_does_not_come_back_to_a_new_hub_is_lost(
        make_site: MakeSite, victims: list[Victim]) -> None:
    site = make_site(lease=3.0).start()
    client = site.client()
    client.do(client.connection.insert_pilots, {'p0': {}, 'p1': {}})
    client.until_settled()
    agent = site.agent('p1')
    victims.append(Victim(site.hub.agent_address, role='agent', pilot='p0'))
    agent.report_pilot(states.PMGR_ACTIVE)
    client.until(lambda: len(client.pilots) == 2)
    os.kill(site.hub.pid, signal.SIGKILL)
    victims[0].kill()
    site.until_ended()
    site.start()
    client.until(lambda: len(client.pilots) == 3)
    assert client.pilots[2].uid == 'p0'
    assert client.pilots[2].info == {'exception': 'the agent of p0 was silent for longer than its lease of 3 s'}


def test_a_new_process_takes_the_place_of_an_agent(site: Site, client: Client) -> None:
    former = site.agent('p0')
    client.submit('p0', ['a'])
    former.until(lambda: former.order == ['a'])
    agent = site.agent('p0')
    agent.until(lambda: agent.order == ['a'])
    former.until(lambda: any(news.startswith('refused: another process') for news in former.news))
    former.report(['a'], states.AGENT_EXECUTING)
    client.submit('p0', ['b'])
    agent.until(lambda: agent.order == ['a', 'b'])
    assert former.order == ['a']


# keys


def test_agents_can_come_through_the_network(make_site: MakeSite) -> None:
    site = make_site(listen='tcp://127.0.0.1:*').start()
    address = site.hub.agent_address
    assert address.address.startswith('tcp://127.0.0.1:')
    client, agent = site.client(), site.agent('p0', address)
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.submit('p0', ['a'])
    agent.until(lambda: agent.order == ['a'])
    restart(site)
    client.submit('p0', ['b'])
    agent.until(lambda: agent.order == ['a', 'b'])


def test_a_key_makes_the_role(site: Site) -> None:
    """Who has the agents' key cannot act as a client, nor the other way round."""
    false_client, false_agent = site.client(site.hub.agent_address), site.agent('p0', site.hub.address)
    false_client.do(false_client.connection.insert_pilots, {'stolen': {}})
    false_agent.report_pilot(states.FAILED)
    client, agent = site.client(), site.agent('p0')
    client.do(client.connection.insert_pilots, {'p0': {}})
    client.submit('p0', ['a'])
    agent.until(lambda: agent.order == ['a'])
    assert rows(site, 'SELECT uid, state FROM pilots') == [('p0', states.NEW)]
    assert not false_agent.tasks
    assert not false_client.connection.settled


def test_nobody_else_can_read_the_file(site: Site, client: Client) -> None:
    client.until_settled()
    for path in site.directory.glob('hub.*'):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert not mode & 0o022, path


# a full disk


def limit_files_of(site: Site, size: int) -> None:
    """Let no file of the hub grow beyond that size, as on a disk that is full."""
    resource.prlimit(site.hub.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def log(site: Site) -> str:
    return (site.directory / 'hub.log').read_text()


def submit_much(client: Client, agents: list[Agent]) -> list[str]:
    """Send more than there is room for, with updates of what there is; gives the uids."""
    expected = uids(24, 'big')
    for uid in expected:
        client.submit('p0', [uid], code='x' * (1 << 20))
        client.do(client.connection.command, 'p0', {'cmd': f'after {uid}'})
    for agent in agents:
        agent.report(['first'], LEFT, {'stdout': 'x' * 100})
    return expected


def test_a_full_disk_holds_everybody_up_and_loses_nothing(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    client.submit('p0', ['first'])
    agent.until(lambda: agent.order == ['first'])
    limit_files_of(site, 4 << 20)
    expected = submit_much(client, [agent])
    client.until(lambda: not client.connection.room and 'cannot be written' in log(site))
    assert not client.do(lambda: client.connection.settled)
    limit_files_of(site, resource.RLIM_INFINITY)
    client.until_settled()
    agent.until(lambda: f'after {expected[-1]}' in agent.order)
    assert agent.order == ['first', *(each for uid in expected for each in (uid, f'after {uid}'))]
    client.until(lambda: client.tasks)
    agent.until_settled()
    assert client.tasks == [Update('first', LEFT, {'stdout': 'x' * 100})]
    # a small write may fit in between, and does not mean that there is room for the others
    assert log(site).count('cannot be written') == log(site).count('can be written again') >= 1


@pytest.mark.parametrize(('megabytes', 'waits'), [(6, False), (3, True)])
def test_a_disk_with_little_room_is_room_enough(site: Site, client: Client, megabytes: int, waits: bool) -> None:
    """The log of many small commits is far larger than what they hold: its room is used again, in time or when it has
    to be.
    """
    agent = site.agent('p0')
    expected = uids(100, 'small')
    limit_files_of(site, megabytes << 20)
    for uid in expected:
        client.submit('p0', [uid])
        client.until_settled()
    agent.until(lambda: agent.order == expected)
    assert (site.directory / 'hub.db-wal').stat().st_size <= megabytes << 20
    assert log(site).count('cannot be written') == log(site).count('can be written again')
    assert ('cannot be written' in log(site)) == waits


def test_a_hub_that_is_killed_with_a_full_disk_loses_nothing(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    client.submit('p0', ['first'])
    agent.until(lambda: agent.order == ['first'])
    limit_files_of(site, 4 << 20)
    expected = submit_much(client, [agent])
    client.until(lambda: 'cannot be written' in log(site))
    restart(site)
    agent.until(lambda: f'after {expected[-1]}' in agent.order)
    assert agent.order == ['first', *(each for uid in expected for each in (uid, f'after {uid}'))]
    client.until(lambda: client.tasks == [Update('first', LEFT, {'stdout': 'x' * 100})])

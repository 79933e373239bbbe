"""What client and agents can rely on, held against real hub processes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hub_support import Client, MakeSite, Site, sites, uids

from rp_api import states
from rp_api.coordination.contract import BULK, ClientHandler, Update
from rp_api.errors import CoordinationError


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
    return client


# tasks and commands, from the client to the agents


def test_each_agent_gets_its_tasks_once_and_in_order(site: Site, client: Client) -> None:
    for number in range(20):
        client.submit('p0', uids(3, f'a{number:02d}'))
        client.submit('p1', uids(3, f'b{number:02d}'))
    agents = [site.agent(pilot) for pilot in ('p0', 'p1')]
    for agent, prefix in zip(agents, 'ab', strict=True):
        agent.until(partial(lambda agent: len(agent.order) >= 60, agent))
        assert agent.order == [uid for number in range(20) for uid in uids(3, f'{prefix}{number:02d}')]


def test_descriptions_arrive_whole(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    client.submit('p0', ['one'], ranks=4, environment={'A': 'b'}, arguments=['x', 'ü'])
    agent.until(lambda: agent.tasks)
    assert agent.tasks == [{'uid': 'one', 'executable': '/bin/one', 'ranks': 4, 'environment': {'A': 'b'},
                            'arguments': ['x', 'ü']}]


def test_commands_keep_their_place_among_the_tasks(site: Site, client: Client) -> None:
    client.submit('p0', ['a'])
    client.do(client.connection.command, 'p0', {'cmd': 'first', 'uids': ['a']})
    client.do(client.connection.command, 'p1', {'cmd': 'for another pilot'})
    client.submit('p0', ['b', 'c'])
    client.do(client.connection.command, 'p0', {'cmd': 'second'})
    client.do(client.connection.command, 'p0', {'cmd': 'third'})
    client.submit('p0', ['d'])
    agent = site.agent('p0')
    agent.until(lambda: 'd' in agent.order)
    assert agent.order == ['a', 'first', 'b', 'c', 'second', 'third', 'd']
    assert agent.commands[0] == {'cmd': 'first', 'uids': ['a']}


def test_any_number_of_commands_waits_for_the_agent(site: Site, client: Client) -> None:
    count = BULK + 300
    for number in range(count):
        client.do(client.connection.command, 'p0', {'cmd': str(number)})
    client.until_settled()
    agent = site.agent('p0')
    agent.until(lambda: len(agent.order) >= count)
    assert agent.order == [str(number) for number in range(count)]


def test_large_descriptions_travel_in_several_messages(site: Site, client: Client) -> None:
    """Together they are larger than any message may be."""
    for number in range(5):
        client.submit('p0', uids(8, f'big{number}'), code='x' * (8 << 20))
        client.until_settled()
    agent = site.agent('p0')
    agent.until(lambda: len(agent.order) >= 40)
    assert agent.order == [uid for number in range(5) for uid in uids(8, f'big{number}')]


def test_a_task_that_ended_before_the_agent_came_is_not_given_to_it(site: Site, client: Client) -> None:
    client.submit('p0', ['a', 'b', 'c'])
    client.do(client.connection.update_tasks, [Update('b', states.CANCELED)])
    agent = site.agent('p0')
    agent.until(lambda: 'c' in agent.order)
    assert agent.order == ['a', 'c']


# updates, from the agents to the client


def test_updates_come_back_with_what_became_known(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    client.submit('p0', ['a', 'b'])
    agent.until(lambda: len(agent.order) == 2)
    agent.report(['a'], states.AGENT_EXECUTING)
    agent.report(['b'], states.FAILED, {'exit_code': 3, 'stderr': 'no'})
    client.until(lambda: len(client.states()) == 2)
    assert client.tasks == [Update('a', states.AGENT_EXECUTING), Update('b', states.FAILED,
                                                                        {'exit_code': 3, 'stderr': 'no'})]
    agent.report_pilot(states.PMGR_ACTIVE, {'resource_details': {'cores': 4}})
    client.until(lambda: client.pilots)
    assert client.pilots == [Update('p0', states.PMGR_ACTIVE, {'resource_details': {'cores': 4}})]


def test_the_end_of_a_pilot_does_not_come_before_its_results(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    order: list[str] = []

    class Order(ClientHandler):
        def on_tasks(self, updates: list[Update]) -> None:
            order.extend(update.uid for update in updates)

        def on_pilots(self, updates: list[Update]) -> None:
            order.extend(update.uid for update in updates)
            client.note('end')

    client.do(client.connection.open, Order())
    client.submit('p0', ['a'])
    agent.until(lambda: agent.order)
    agent.do(lambda: (agent.connection.update_tasks([Update('a', states.TMGR_STAGING_OUTPUT_PENDING)]),
                      agent.connection.update_pilots([Update('p0', states.DONE)])))
    client.until_news('end')
    assert order == ['a', 'p0']


def test_clients_are_not_told_what_they_said_themselves(site: Site, client: Client) -> None:
    client.submit('p0', ['a', 'b'])
    client.do(client.connection.update_tasks, [Update('a', states.CANCELED)])
    client.until_settled()
    agent = site.agent('p0')
    agent.until(lambda: agent.order)
    agent.report(['a', 'b'], states.AGENT_EXECUTING)   # too late for the first one
    client.until(lambda: client.tasks)
    assert client.tasks == [Update('b', states.AGENT_EXECUTING)]


def test_thousands_of_tasks_go_there_and_back(site: Site, client: Client) -> None:
    expected = uids(5000)
    agent = site.agent('p0')
    agent.react = lambda got: agent.connection.update_tasks(
        [Update(uid, states.TMGR_STAGING_OUTPUT_PENDING, {'exit_code': 0}) for uid in got])
    client.submit('p0', expected)
    client.until(lambda: len(client.states()) == 5000)
    assert agent.order == expected
    assert [update.uid for update in client.tasks] == expected


# what was accepted, and how much can be on its way


def test_what_is_settled_is_in_the_file(site: Site, client: Client) -> None:
    assert not client.do(lambda: (client.connection.insert_pilots({'p2': {}}), client.connection.settled)[1])
    client.submit('p0', ['a'])
    client.until_settled()
    database = sqlite3.connect(site.directory / 'hub.db')
    try:
        assert database.execute('SELECT uid FROM pilots ORDER BY rev').fetchall() == [('p0',), ('p1',), ('p2',)]
        assert database.execute('SELECT uid, pilot FROM tasks').fetchall() == [('a', 'p0')]
    finally:
        database.close()


def test_there_is_no_room_while_much_is_on_its_way(site: Site, client: Client) -> None:
    client.until_settled()
    client.news.clear()

    def send() -> list[bool]:
        room = []
        for number in range(12):
            client.connection.command('p0', {'cmd': str(number)})
            room.append(client.connection.room)
        return room

    room = client.do(send)
    assert room == [True] * room.index(False) + [False] * (12 - room.index(False))
    client.until_news('room')
    client.until_settled()
    assert client.do(lambda: client.connection.room)


# how it begins and ends


def test_the_hub_ends_when_its_client_says_goodbye(site: Site, client: Client) -> None:
    assert stat.S_IMODE(site.runtime_dir.stat().st_mode) == 0o700
    client.close()
    assert site.until_ended() == 0
    assert not site.runtime_dir.exists()


def test_agents_get_what_a_leaving_client_has_said_last(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    client.submit('p0', ['a'])
    agent.until(lambda: agent.order)
    client.do(lambda: (client.connection.command('p0', {'cmd': 'go home'}), client.connection.close()))
    agent.until(lambda: agent.commands)
    assert site.until_ended() == 0


def test_an_agent_that_says_goodbye_does_not_end_the_hub(site: Site, client: Client) -> None:
    site.agent('p0').close()
    agent = site.agent('p1')
    client.submit('p1', ['a'])
    agent.until(lambda: agent.order)


def test_the_session_directory_can_be_deleted_while_the_hub_runs(site: Site, client: Client) -> None:
    client.until_settled()
    shutil.rmtree(site.directory)
    agent = site.agent('p0')
    client.submit('p0', uids(2000))
    agent.until(lambda: len(agent.order) == 2000)
    agent.report(uids(2000), states.AGENT_EXECUTING)
    client.until(lambda: len(client.states()) == 2000)
    client.close()
    assert site.until_ended() == 0
    site.directory.mkdir()


@pytest.mark.parametrize(('content', 'reason'), [(None, 'unable to open database file'),
                                                 (b'no database' * 1000, 'not a database')])
def test_a_hub_that_cannot_start_says_why(make_site: MakeSite, content: bytes | None, reason: str) -> None:
    site = make_site().start()
    site.hub.stop(0)
    for path in site.directory.glob('hub.db*'):
        path.unlink()
    path = site.directory / 'hub.db'
    path.write_bytes(content) if content else path.mkdir()
    with pytest.raises(CoordinationError, match=reason) as failure:
        site.start()
    assert str(site.directory / 'hub.log') in str(failure.value)
    assert site.hub.ended() == 1
    assert not site.runtime_dir.exists()


def test_a_hub_that_dies_without_a_word_is_an_error(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('sys.executable', '/bin/false')
    with pytest.raises(CoordinationError, match='did not start'):
        make_site().start()


@pytest.mark.parametrize('level', ['', 'debug', 'REPORT', 'DEBUG_9', 'off', 'nonsense', '17'])
def test_any_log_level_will_do(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv('RADICAL_PILOT_LOG_LVL', level)
    site = make_site().start()
    client = site.client()
    client.until_settled()
    assert client.news.count('lost') == 0


def test_a_hub_can_be_stopped(site: Site, client: Client) -> None:
    client.until_settled()
    site.hub.stop(0)
    assert site.hub.ended() == -9
    client.until_news('lost')


def test_last_words_are_the_end_of_the_log(site: Site) -> None:
    site.hub.stop(0)
    (site.directory / 'hub.log').write_text('one\ntwo\nthree\n')
    assert site.hub.last_words(2) == 'two\nthree'
    (site.directory / 'hub.log').unlink()
    assert site.hub.last_words() == ''


def test_a_long_path_for_temporary_files_is_no_problem(tmp_path: Path, make_site: MakeSite,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ('x' * 100)
    deep.mkdir()
    monkeypatch.setenv('TMPDIR', str(deep))
    site = make_site().start()
    assert len(os.fsencode(site.runtime_dir)) < 100
    site.client().until_settled()

"""Every backend: tasks, commands and notes from the client to the agents."""

from __future__ import annotations

from collections import Counter

from conformance.conformance_support import Client, Site, uids
from rp_api import states
from rp_api.coordination.contract import BULK, UNBOUND, Update


def test_a_bulk_arrives_whole_and_in_order(site: Site, client: Client) -> None:
    count = site.some(3 * BULK)
    agent = site.agent('p0')
    client.submit('p0', uids(count), environment={'a.b': '$c'}, arguments=['ü', b'\0', None, 1.5, {'1': [2]}])
    agent.until(lambda: len(agent.order) >= count)
    assert agent.order == uids(count)
    assert agent.tasks[-1] == {'uid': uids(count)[-1], 'executable': f'/bin/{uids(count)[-1]}',
                               'environment': {'a.b': '$c'}, 'arguments': ['ü', b'\0', None, 1.5, {'1': [2]}]}


def test_tasks_that_wait_are_there_for_an_agent_that_comes_later(site: Site, client: Client) -> None:
    for number in range(10):
        client.submit('p0', uids(3, f'a{number}'))
        client.submit('p1', uids(3, f'b{number}'))
    client.until_settled()
    for pilot, prefix in ('p0', 'a'), ('p1', 'b'):
        agent = site.agent(pilot)
        agent.until_order(30)
        assert agent.order == [uid for number in range(10) for uid in uids(3, f'{prefix}{number}')]


def test_what_is_inserted_twice_is_there_once(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    for _ in range(2):
        client.submit('p0', uids(10))
    client.submit('p0', [*uids(12), 'end'])
    client.pilot('p0')
    agent.until_tasks(['end'])
    assert agent.order == [*uids(12), 'end']


def test_agents_of_one_pilot_race_and_each_task_goes_to_one(site: Site, client: Client) -> None:
    count = site.some(2000)
    got: list[str] = []

    def react(_: object, arrived: list[str]) -> None:
        got.extend(arrived)
        client.note('got')

    for number in range(4):
        site.agent('p0', f'agent_{number}', react)
    for first in range(0, count, 20):
        client.submit('p0', uids(count)[first:first + 20])
    client.until(lambda: len(got) >= count)
    assert Counter(got) == Counter(uids(count))


def test_several_agents_of_several_pilots(site: Site, client: Client) -> None:
    count = site.some(500)
    done: list[tuple[object, str]] = []

    def react(agent: object, got: list[str]) -> None:
        done.extend((agent, uid) for uid in got)
        client.note('got')

    agents = {pilot: [site.agent(pilot, f'agent_{number}', react) for number in range(2)] for pilot in ('p0', 'p1')}
    for first in range(0, count, 10):
        for pilot in agents:
            client.submit(pilot, uids(count, pilot)[first:first + 10])
    client.until(lambda: len(done) >= 2 * count)
    for pilot, members in agents.items():
        assert sorted(uid for agent, uid in done if agent in members) == uids(count, pilot)


def test_unbound_tasks_wait_until_they_are_bound(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    client.submit(UNBOUND, uids(20))
    client.submit('p0', ['bound'])
    agent.until_tasks(['bound'])
    client.do(client.connection.bind_tasks, 'p0', uids(20)[10:])
    agent.until_tasks(uids(20)[10:])
    client.do(client.connection.bind_tasks, 'p0', uids(20))
    agent.until_tasks(uids(20))
    assert agent.order == ['bound', *uids(20)[10:], *uids(20)[:10]]


def test_a_task_that_is_bound_anew_starts_again_elsewhere(site: Site, client: Client) -> None:
    first = site.agent('p0')
    client.submit('p0', uids(3))
    first.until_tasks(uids(3))
    first.report(uids(3)[:1], states.AGENT_EXECUTING)
    first.report(uids(3)[1:2], states.TMGR_STAGING_OUTPUT_PENDING, {'exit_code': 0})
    client.until(lambda: len(client.states()) == 2)
    client.do(client.connection.bind_tasks, 'p1', uids(3))
    second = site.agent('p1')
    second.until_tasks([uids(3)[0], uids(3)[2]])
    client.submit('p1', ['end'])
    second.until_tasks(['end'])
    assert second.order == [uids(3)[0], uids(3)[2], 'end']   # the one that has left its agent stays where it was
    second.report(uids(3)[:1], states.AGENT_STAGING_INPUT)
    client.until_states({uids(3)[0]: states.AGENT_STAGING_INPUT})


def test_attempts_count_how_often_a_task_was_bound(site: Site, client: Client) -> None:
    client.submit('p0', ['a'])
    client.submit(UNBOUND, ['b'], owner='tmgr.0007')
    for pilot in ('p0', 'p1', 'p1', 'p0'):
        client.do(client.connection.bind_tasks, pilot, ['a'])
    client.do(client.connection.bind_tasks, 'p1', ['b'])
    client.submit(UNBOUND, ['c'])
    client.until_settled()
    site.leave(client)
    heir = site.client(recover=True)
    heir.recovered()
    assert {uid: (task.pilot, task.attempts, task.owner) for uid, task in heir.known_tasks.items()} == {
        'a': ('p0', 3, ''), 'b': ('p1', 1, 'tmgr.0007'), 'c': (UNBOUND, 0, '')}


def test_a_task_that_ended_before_the_agent_came_is_not_given_to_it(site: Site, client: Client) -> None:
    client.submit('p0', ['a', 'b', 'c'])
    client.update(['b'], states.CANCELED)
    client.until_settled()
    agent = site.agent('p0')
    agent.until_tasks(['c'])
    assert agent.order == ['a', 'c']


def test_commands_keep_their_place_among_the_tasks(site: Site, client: Client) -> None:
    client.submit('p0', ['a'])
    client.do(client.connection.command, 'p0', {'cmd': 'first', 'uids': ['a']})
    client.do(client.connection.command, 'p1', {'cmd': 'for another pilot'})
    client.submit('p0', ['b', 'c'])
    client.do(client.connection.command, 'p0', {'cmd': 'second'})
    client.do(client.connection.command, 'p0', {'cmd': 'third'})
    client.submit('p0', ['d'])
    agent = site.agent('p0')
    agent.until_tasks(['d'])
    assert agent.order == ['a', 'first', 'b', 'c', 'second', 'third', 'd']
    assert agent.commands[0] == {'cmd': 'first', 'uids': ['a']}


def test_commands_keep_their_place_while_the_agent_is_there(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    expected = []
    for number in range(site.some(100)):
        client.submit('p0', [f'{number}'])
        client.do(client.connection.command, 'p0', {'cmd': f'after {number}'})
        expected += [f'{number}', f'after {number}']
    agent.until(lambda: len(agent.order) >= len(expected))
    assert agent.order == expected


def test_all_agents_of_a_pilot_get_each_command_once(site: Site, client: Client) -> None:
    agents = [site.agent('p0', f'agent_{number}') for number in range(3)]
    names = [f'{number}' for number in range(50)]
    for name in names:
        client.do(client.connection.command, 'p0', {'cmd': name})
    for agent in agents:
        agent.until_order(50)
        assert agent.order == names


def test_an_agent_that_holds_gets_commands_but_no_tasks(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    client.submit('p0', ['a'])
    agent.until_tasks(['a'])
    agent.hold()
    client.do(client.connection.command, 'p0', {'cmd': 'sync'})
    agent.until_tasks(['sync'])   # so it holds by now, wherever that is decided
    for number in range(20):
        client.submit('p0', uids(5, f'b{number:02d}'))
    client.do(client.connection.command, 'p0', {'cmd': 'stop'})
    agent.until_tasks(['stop'])
    client.do(client.connection.command, 'p0', {'cmd': 'again'})
    agent.until_tasks(['again'])
    assert agent.order == ['a', 'sync', 'stop', 'again']
    agent.do(agent.connection.hold, False)
    agent.until(lambda: len(agent.order) >= 104)
    assert agent.order[4:] == [uid for number in range(20) for uid in uids(5, f'b{number:02d}')]


def test_another_agent_gets_what_one_that_holds_has_not_taken(site: Site, client: Client) -> None:
    full, free = site.agent('p0', 'agent_0'), site.agent('p0', 'agent_1')
    full.hold()
    client.do(client.connection.command, 'p0', {'cmd': 'sync'})
    full.until_tasks(['sync'])
    for number in range(20):
        client.submit('p0', [f'{number}'])
    free.until(lambda: len(free.order) >= 21)
    assert full.order == ['sync']


def test_updates_of_pilots_are_for_their_client(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    agent.report_pilot(states.PMGR_ACTIVE, {'resource_details': {'cores': 4}})
    client.until(lambda: client.pilots)
    assert client.pilots == [Update('p0', states.PMGR_ACTIVE, {'resource_details': {'cores': 4}})]


def test_tasks_come_back_from_a_pilot_whose_agent_has_not_taken_them(site: Site, client: Client) -> None:
    """Its agent does not get them later; those that it has stay there."""
    client.submit('p0', ['taken'])
    agent = site.agent('p0')
    agent.until_tasks(['taken'])
    client.submit('p1', ['free', 'stays'])
    client.do(client.connection.withdraw, ['taken', 'free', 'unknown'])
    client.until_settled()
    client.until(lambda: bool(client.tasks))
    assert [(update.uid, update.state, update.info) for update in client.tasks] == [
        ('free', states.AGENT_SCHEDULING, {'returned': 'p1'})]
    late = site.agent('p1')
    late.until_tasks(['stays'])
    assert late.order == ['stays']
    client.do(client.connection.bind_tasks, 'p0', ['free'])
    agent.until_tasks(['free'])
    assert agent.order == ['taken', 'free']

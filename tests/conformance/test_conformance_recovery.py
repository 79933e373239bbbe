"""Every backend: nothing is lost when clients come and go, and when hub or server are killed."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conformance_support import RESTARTABLE, Agent, Process, Site, backend, one_site, uids
from rp_api import states
from rp_api.coordination.contract import BULK, UNBOUND, Update
from rp_api.errors import CoordinationError

DONE_SOON = states.TMGR_STAGING_OUTPUT_PENDING

# attaches to a session, says each task of which it hears, and never gets to acknowledge that
CLIENT = '''
import json, sys, time
from pathlib import Path
from rp_api.coordination import connect
from rp_api.batch import Batch
from rp_api.coordination.contract import ClientHandler
from rp_api.loop.event_loop import Loop

orders = json.loads(sys.stdin.readline())
coordinator = connect.coordinator(orders['uid'], Path(orders['directory']), connect.Settings(**orders['settings']))
coordinator.start()
loop = Loop()
connection = coordinator.connect(loop)

class Handler(ClientHandler):
    def on_tasks(self, updates):
        print(json.dumps([update.uid for update in updates]), flush=True)
        time.sleep(1000)

connection.open(Handler())
connection.insert_pilots({'p0': {'cores': 4}})
if orders['tasks']:
    connection.insert_batch('p0', Batch.of([(uid, {}) for uid in orders['tasks']]))
connection.when_settled(lambda: print(json.dumps(coordinator.agent_access), flush=True))
loop.run()
'''


@pytest.fixture(params=RESTARTABLE)
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A session with a server of its own."""
    with backend(request.param, tmp_path) as running, one_site(running, tmp_path) as site:
        yield site


def test_a_session_is_new_attached_or_new_again(site: Site) -> None:
    client = site.client()
    assert not site.attached()
    client.pilot('p0')
    client.until_settled()
    site.leave(client)
    heir = site.client()
    assert site.attached()
    heir.pilot('p1')
    heir.until_settled()
    site.end(heir)
    later = site.client(recover=True)
    assert not site.attached()
    later.recovered()
    assert later.known_pilots == {}


def test_all_is_there_for_the_client_that_takes_over(site: Site) -> None:
    client = site.client()
    count = site.some(3000)
    client.pilot('p0', 'p1')
    client.submit(UNBOUND, uids(3, 'unbound'), owner='tmgr.0001')
    client.submit('p0', uids(count), owner='tmgr.0000', environment={'A': 'b'})
    for value in ({'old': 1}, {'sandbox': '/x', 'pilots': ['p0', 'p1']}):
        client.do(client.connection.note, 'pmgr.0000', value)
    client.do(client.connection.note, 'a.b $c', None)
    client.do(client.connection.update_pilots, [Update('p1', states.PMGR_LAUNCHING, {'jobid': '17'})])
    client.update(uids(2), states.CANCELED, {'exception': 'because'})
    client.until_settled()
    site.leave(client)

    heir = site.client(recover=True)
    heir.recovered()
    assert heir.pages[0].notes == {'pmgr.0000': {'sandbox': '/x', 'pilots': ['p0', 'p1']}, 'a.b $c': None}
    assert [(pilot.uid, pilot.record, pilot.state, pilot.info) for pilot in heir.pages[0].pilots] == [
        ('p0', {'cores': 4}, states.NEW, None), ('p1', {'cores': 4}, states.PMGR_LAUNCHING, {'jobid': '17'})]
    assert list(heir.known_tasks) == [*uids(3, 'unbound'), *uids(count)]
    assert max(len(page.tasks) for page in heir.pages) <= BULK
    first, last = (heir.known_tasks[uid] for uid in (uids(count)[0], uids(count)[-1]))
    assert first.description == {'executable': f'/bin/{first.uid}', 'environment': {'A': 'b'}}
    assert (first.state, first.info, first.owner) == (states.CANCELED, {'exception': 'because'}, 'tmgr.0000')
    assert (last.state, last.pilot) == (states.AGENT_STAGING_INPUT_PENDING, 'p0')
    assert {heir.known_tasks[uid].state for uid in uids(3, 'unbound')} == {states.TMGR_SCHEDULING_PENDING}


def test_what_happened_meanwhile_is_on_the_pages_and_does_not_come_again(site: Site) -> None:
    client = site.client()
    client.pilot('p0')
    client.submit('p0', uids(4))
    agent = site.agent('p0')
    agent.until_tasks(uids(4))
    agent.report(uids(1), states.AGENT_EXECUTING)
    client.until_states({uids(1)[0]: states.AGENT_EXECUTING})
    site.leave(client)
    agent.report(uids(4)[1:3], DONE_SOON, {'exit_code': 0})
    agent.report_pilot(states.PMGR_ACTIVE)
    agent.until_settled()

    heir = site.client(recover=True)
    heir.recovered()
    assert heir.known_tasks[uids(4)[1]].info == {'exit_code': 0}
    assert heir.known_pilots['p0'].state == states.PMGR_ACTIVE
    agent.report(uids(4)[3:], DONE_SOON)
    heir.until_states({uids(4)[3]: DONE_SOON})
    assert heir.tasks == [Update(uids(4)[3], DONE_SOON)]


def test_forgotten_tasks_have_no_owner_any_more(site: Site) -> None:
    client = site.client()
    client.pilot('p0')
    client.submit('p0', uids(4), owner='tmgr.0000', environment={'A': 'b'})
    client.submit(UNBOUND, ['never sent'], owner='tmgr.0000')
    agent = site.agent('p0')
    agent.until_tasks(uids(4))
    agent.report(uids(4)[:3], states.DONE, {'stdout': 'x'})
    client.until_states(dict.fromkeys(uids(4)[:3], states.DONE))
    client.update(['never sent'], states.CANCELED, {'exception': 'because'})
    client.do(client.connection.forget_tasks, [*uids(4)[1:], 'never sent', 'unknown'])
    client.until_settled()
    agent.report(uids(4)[1:2], states.FAILED, {'stdout': 'y'})   # too late
    agent.until_settled()
    site.leave(client)

    heir = site.client(recover=True)
    heir.recovered()
    kept, last = (heir.known_tasks[uid] for uid in (uids(4)[0], uids(4)[3]))
    assert (kept.owner, kept.state, kept.info) == ('tmgr.0000', states.DONE, {'stdout': 'x'})
    assert (last.owner, last.description['environment']) == ('tmgr.0000', {'A': 'b'})   # it is not final
    forgotten = [heir.known_tasks[uid] for uid in (*uids(4)[1:3], 'never sent')]
    assert [(task.owner, task.info, task.state) for task in forgotten] == [
        ('', None, states.DONE), ('', None, states.DONE), ('', None, states.CANCELED)]


def test_a_client_that_takes_over_is_given_nothing_before_it_asks(site: Site) -> None:
    """Nothing is confirmed of which it does not know the tasks yet."""
    client = site.client()
    client.pilot('p0')
    client.submit('p0', uids(3))
    agent = site.agent('p0')
    agent.until_tasks(uids(3))
    agent.report(uids(1), DONE_SOON)
    client.until_states({uids(1)[0]: DONE_SOON})
    site.leave(client)
    agent.report(uids(2), DONE_SOON)
    agent.until_settled()

    heir = site.client()
    heir.do(heir.connection.note, 'key', 'value')   # it is there, and is served
    heir.until_settled()
    agent.report(uids(3), DONE_SOON)
    agent.until_settled()
    for number in range(3):
        heir.do(heir.connection.note, 'key', number)
        heir.until_settled()
    assert heir.tasks + heir.pilots == []
    heir.do(heir.connection.recover, heir._on_page)
    heir.recovered()
    assert {task.state for task in heir.known_tasks.values()} == {DONE_SOON}


def test_a_client_that_was_killed_has_not_told(site: Site) -> None:
    before = time.time()
    victim = Process(CLIENT, **site.orders(tasks=['a', 'b']))
    try:
        agent = site.agent('p0', access=victim.answer())
        agent.until_tasks(['a', 'b'])
        agent.report(['a'], DONE_SOON, {'exit_code': 3})
        assert victim.answer() == ['a']
    finally:
        victim.kill()
    heir = site.client(recover=True)
    assert site.attached()
    heir.recovered()
    found = heir.known_tasks['a']
    assert (found.state, found.info, found.told) == (DONE_SOON, {'exit_code': 3}, states.NEW)
    assert found.submitted is not None
    assert before <= found.submitted <= time.time()
    agent.report(['b'], states.AGENT_EXECUTING)
    heir.until_states({'b': states.AGENT_EXECUTING})


def test_a_session_has_one_client_at_a_time(site: Site) -> None:
    victim = Process(CLIENT, **site.orders(tasks=[]))
    try:
        victim.answer()
        assert re.search(f'process {victim.pid} on {os.uname().nodename}', refusal(site))
    finally:
        victim.kill()
    site.client(recover=True).recovered()


def refusal(site: Site) -> str:
    """Why a second client cannot have the session: told at the start, or when it is connected."""
    try:
        return site.client().until_refused()
    except CoordinationError as error:
        return str(error)


def test_nothing_is_lost_when_the_backend_is_killed(mortal: Site) -> None:
    """Clients and agents send on while it is away, and all of it arrives once."""
    site = mortal
    client = site.client()
    client.pilot('p0', 'p1')
    count = site.some(200)
    agents = {pilot: [site.agent(pilot, f'agent_{number}', done_at_once) for number in range(2)]
              for pilot in ('p0', 'p1')}
    for kill in range(3):
        for first in range(0, count, 50):
            for pilot in agents:
                client.submit(pilot, uids(count, f'{pilot}.{kill}')[first:first + 50])
            if first == count // 2 // 50 * 50:
                site.kill()
    wanted = {pilot: [uid for kill in range(3) for uid in uids(count, f'{pilot}.{kill}')] for pilot in agents}
    client.until(lambda: len(client.states()) == 6 * count)
    assert set(client.states()) == {uid for uids in wanted.values() for uid in uids}
    for pilot, members in agents.items():
        assert Counter(uid for agent in members for uid in agent.order) == Counter(wanted[pilot])


def done_at_once(agent: Agent, got: list[str]) -> None:
    """What an agent does that reports the end of each task at once."""
    agent.connection.update_tasks([Update(uid, DONE_SOON, {'exit_code': 0}) for uid in got])


def test_what_was_settled_survives_the_backend(mortal: Site) -> None:
    site = mortal
    client = site.client()
    client.pilot('p0')
    client.submit('p0', uids(100))
    client.do(client.connection.command, 'p0', {'cmd': 'stay'})
    client.do(client.connection.note, 'key', 'value')
    client.until_settled()
    site.kill()
    agent = site.agent('p0')
    agent.until_tasks([*uids(100), 'stay'])
    agent.report(uids(50), DONE_SOON)
    agent.until_settled()
    site.kill()
    client.until(lambda: len(client.states()) == 50)
    site.leave(client)
    heir = site.client(recover=True)
    heir.recovered()
    assert heir.pages[0].notes == {'key': 'value'}
    assert [task.state == DONE_SOON for task in heir.known_tasks.values()] == [True] * 50 + [False] * 50


def test_a_loss_is_told_and_so_is_the_end_of_it(mortal: Site) -> None:
    client = mortal.client()
    client.pilot('p0')
    client.until_settled()
    mortal.kill(restart=False)
    client.until(lambda: 'lost' in client.news)
    client.submit('p0', uids(10))
    assert not client.do(lambda: client.connection.settled)
    mortal.revive()
    client.until(lambda: 'found' in client.news)
    client.until_settled()
    agent = mortal.agent('p0')
    agent.until_tasks(uids(10))


def test_an_agent_knows_what_is_not_settled(mortal: Site) -> None:
    client = mortal.client()
    client.pilot('p0')
    client.submit('p0', uids(10))
    agent = mortal.agent('p0')
    agent.until_tasks(uids(10))
    agent.report(uids(10)[:5], DONE_SOON)
    agent.until_settled()
    assert agent.do(agent.connection.unsettled) == []
    mortal.kill(restart=False)
    agent.report(uids(10)[5:], DONE_SOON, {'exit_code': 1})
    assert agent.do(agent.connection.unsettled) == [Update(uid, DONE_SOON, {'exit_code': 1}) for uid in uids(10)[5:]]
    mortal.revive()
    agent.until_settled()
    assert agent.do(agent.connection.unsettled) == []
    client.until(lambda: len(client.states()) == 10)


def test_connections_end_while_the_backend_is_away(mortal: Site) -> None:
    client = mortal.client()
    client.pilot('p0')
    agent = mortal.agent('p0')
    client.until_settled()
    mortal.kill(restart=False)
    client.submit('p0', uids(10))
    agent.report(['x'], DONE_SOON)
    agent.close()
    client.close()

"""What only the MongoDB backend has: sessions that are listed, exported and removed, and a server that is not there."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mongo_servers
import pytest
from pymongo.errors import AutoReconnect

from conformance.conformance_support import Backend, Site, backend, one_site, uids
from rp_api import states
from rp_api.coordination import connect, mongodb
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.mongodb.records import DatabaseRecords
from rp_api.errors import CoordinationError


@pytest.fixture(scope='module', params=mongo_servers.KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with backend(request.param, tmp_path_factory.mktemp('server')) as running:
        yield running


def url_of(site: Site) -> str:
    assert site.server is not None
    return site.server.url


def test_sessions_are_listed_exported_and_removed_one_by_one(site: Site, tmp_path: Path, server: Backend) -> None:
    url = url_of(site)
    client = site.client()
    client.pilot('p0')
    client.submit('p0', uids(3), environment={'a.b': '$c'})
    agent = site.agent('p0')
    agent.until_tasks(uids(3))
    agent.report(uids(1), states.DONE, {'exit_code': 0})
    client.until_states({uids(1)[0]: states.DONE})
    with one_site(server, tmp_path / 'other') as other:
        other.client().until_settled()
        listed = {one['uid']: one for one in mongodb.sessions(url)}
        assert {site.uid, other.uid} <= listed.keys()
        mine = listed[site.uid]
        assert (mine['state'], mine['pilots']) == ('open', {states.NEW: 1})
        assert mine['tasks'] == {states.DONE: 1, states.AGENT_STAGING_INPUT_PENDING: 2}
        with pytest.raises(CoordinationError, match='in use'):
            mongodb.purge(url, site.uid)
        with DatabaseRecords(url, mine['collection']) as records:
            found = list(records.export())
            first = records.task(uids(1)[0])
        assert [one['type'] for one in found] == ['pilot', 'task', 'task', 'task']
        assert first is not None
        assert found[1] == {'type': 'task', **first}
        assert (first['state'], first['exit_code']) == (states.DONE, 0)
        assert first['description'] == {'executable': f'/bin/{first["uid"]}', 'environment': {'a.b': '$c'}}
        assert abs(first['submitted'] - time.time()) < 100
        agent.close()
        site.end(client)
        mongodb.purge(url, site.uid)
        left = {one['uid'] for one in mongodb.sessions(url)}
        assert site.uid not in left
        assert other.uid in left
    with pytest.raises(CoordinationError, match=f'no session {site.uid}'):
        mongodb.purge(url, site.uid)
    mongodb.purge(url, other.uid)


def test_a_session_that_was_removed_turns_its_agents_away(site: Site) -> None:
    client = site.client()
    client.pilot('p0')
    client.until_settled()
    site.leave(client)
    mongodb.purge(url_of(site), site.uid)
    agent = site.agent('p0')
    assert 'removed from the database' in agent.until_refused()


def test_a_server_that_is_not_there_is_named_soon(tmp_path: Path) -> None:
    with socket.socket() as closed:   # bound, but nobody listens
        closed.bind(('127.0.0.1', 0))
        url = f'mongodb://user:s3cret@127.0.0.1:{closed.getsockname()[1]}/db'
        coordinator = connect.coordinator('s', tmp_path, Settings(dburl=url))
        begin = time.monotonic()
        with pytest.raises(CoordinationError, match=r'127\.0\.0\.1:\d+/db cannot be used.*refused') as raised:
            coordinator.start()
        coordinator.stop(1.0)
    assert time.monotonic() - begin < 30
    assert 's3cret' not in str(raised.value)


class Forgetful:
    """A collection that loses the first answer of one of its methods, if it is about one parcel."""

    def __init__(self, collection: Any, method: str) -> None:
        self._collection = collection
        self._method = method
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name == self._method else getattr(self._collection, name)

    def _call(self, name: str, query: dict[str, Any], *args: Any, **options: Any) -> Any:
        answer = getattr(self._collection, name)(query, *args, **options)
        if not self.lost and ('parcel' in query or str(query.get('_id')).startswith('@parcel')):
            self.lost += 1
            raise AutoReconnect('connection closed')
        return answer


@pytest.mark.parametrize('method', ['update_one', 'find'])
def test_a_parcel_is_not_lost_with_the_answer_of_the_server(site: Site, method: str) -> None:
    client = site.client()
    client.pilot('p0')
    client.until_settled()
    agent = site.agent('p0')
    collection = Forgetful(agent.connection._collection, method)
    agent.do(partial(setattr, agent.connection, '_collection', collection))
    client.submit('p0', uids(3))
    client.submit('p0', ['last'])
    agent.until_tasks(['last'])
    assert agent.order == [*uids(3), 'last']
    assert collection.lost == 1

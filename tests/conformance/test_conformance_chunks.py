"""Every backend: chunks of sweeps become tasks, whatever happens to client, agents and coordinator before."""

from __future__ import annotations

from conformance.conformance_support import Client, Site
from rp_api import states
from rp_api.batch import ROWS, Batch, Chunk, unpacked
from rp_api.coordination.contract import UNBOUND, Update
from rp_api.wire import codec

COMMON = codec.pack({'executable': '/bin/sim', 'priority': 3})
DONE_SOON = states.TMGR_STAGING_OUTPUT_PENDING


def chunk(first: int = 0, size: int = 100, sweep: str = 'sweep.0000') -> Chunk:
    return Chunk(sweep, first, size, {'arguments': ['--seed', '{0}', '{1}']}, [[f's{row}' for row in range(size)]])


def insert(client: Client, pilot: str, *chunks: Chunk) -> None:
    for each in chunks:
        client.do(client.connection.insert_batch, pilot, Batch(COMMON, each), 'tmgr.0000')
    client.until_settled()


def handles(client: Client, *chunks: Chunk) -> list[str]:
    """The uids by which the coordinator knows chunks whose tasks no agent has taken."""
    if client.connection.keeps_chunks:
        return [each.uid for each in chunks]
    return [uid for each in chunks for uid in each.uids]


def test_an_agent_gets_the_tasks_in_order(site: Site, client: Client) -> None:
    client.submit('p0', ['before'])
    insert(client, 'p0', chunk(), chunk(100))
    client.submit('p0', ['after'])
    agent = site.agent('p0')
    agent.until_order(202)
    assert agent.order == ['before', *chunk().uids, *chunk(100).uids, 'after']
    assert agent.tasks[150] == {'uid': 'sweep.0000.000149', 'executable': '/bin/sim', 'priority': 3,
                                'arguments': ['--seed', 's49', '149']}
    agent.report(chunk(100).uids, DONE_SOON, {'exit_code': 0})
    client.until_states(dict.fromkeys(chunk(100).uids, DONE_SOON))


def test_chunks_are_inserted_once(site: Site, client: Client) -> None:
    insert(client, 'p0', chunk(), chunk(), chunk(100))
    agent = site.agent('p0')
    agent.until_order(200)
    insert(client, 'p0', chunk())
    client.submit('p0', ['last'])
    agent.until_tasks(['last'])
    assert len(agent.order) == 201


def test_chunks_are_bound_later_and_again(site: Site, client: Client) -> None:
    insert(client, UNBOUND, chunk(), chunk(100))
    for pilot in ('p0', 'p1'):
        client.do(client.connection.bind_tasks, pilot, handles(client, chunk()))
    client.until_settled()
    agent = site.agent('p1')
    agent.until_order(100)
    assert agent.order == chunk().uids
    other = site.agent('p0')
    client.do(client.connection.bind_tasks, 'p0', ['sweep.0000.000150'])   # a single task of a chunk
    other.until_order(1)
    assert other.order == ['sweep.0000.000150']


def test_chunks_end_as_a_whole_or_by_task(site: Site, client: Client) -> None:
    insert(client, UNBOUND, chunk(), chunk(100))
    client.update(handles(client, chunk()), states.CANCELED, {'exception': 'why'})
    client.update(['sweep.0000.000107'], states.FAILED, {'exception': 'because'})
    client.do(client.connection.forget_tasks, ['sweep.0000.000003'])
    client.until_settled()
    site.leave(client)
    heir = site.client(recover=True)
    heir.recovered()
    known = heir.known_tasks
    tasks = {uid: known[uid] for uid in [*chunk().uids, *chunk(100).uids]}
    assert {tasks[uid].state for uid in chunk().uids} == {states.CANCELED}
    assert (tasks['sweep.0000.000003'].owner, tasks['sweep.0000.000004'].info) == ('', {'exception': 'why'})
    assert (tasks['sweep.0000.000107'].state, tasks['sweep.0000.000108'].state) == (
        states.FAILED, states.TMGR_SCHEDULING_PENDING)


def test_the_states_of_a_chunk_were_not_told_of_its_tasks(site: Site, client: Client) -> None:
    """An application is notified of tasks only, which begin when an agent takes them."""
    insert(client, 'p0', chunk(size=3))
    client.acknowledge('tmgr.0000')
    agent = site.agent('p0')
    agent.until_order(3)
    first, second, third = chunk(size=3).uids
    for uid in (first, second):
        agent.report([uid], states.AGENT_EXECUTING)
        client.until_states({uid: states.AGENT_EXECUTING})
        if uid == first:
            client.acknowledge('tmgr.0000')
    client.until_settled()
    site.leave(client)
    told = site.client(recover=True).told()
    before = states.NEW if client.connection.keeps_chunks else states.AGENT_STAGING_INPUT_PENDING
    assert [told[uid] for uid in (first, second, third)] == [states.AGENT_EXECUTING, before, before]


def test_agents_are_told_of_tasks_that_end_with_their_chunk(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    insert(client, UNBOUND, chunk(), chunk(100))
    agent.follow('sweep.0000.000002', 'sweep.0000.000100')
    agent.until_settled()
    client.update(handles(client, chunk()), states.CANCELED, {'exception': 'why'})
    told = agent.until_outcomes(**{'sweep.0000.000002': states.CANCELED})
    assert told['sweep.0000.000002']['exception'] == 'why'
    assert len(agent.outcomes) == 1


def test_a_number_at_the_end_of_a_uid_may_have_any_size(site: Site, client: Client) -> None:
    agent = site.agent('p0')
    insert(client, UNBOUND, chunk())
    large = f'sweep.0000.{1 << 63}'
    agent.follow(large)
    agent.until_settled()
    client.submit('p0', [large])
    client.update([large], states.CANCELED)
    agent.until_outcomes(**{large: states.CANCELED})


def test_next_client_gets_chunks_or_their_tasks(site: Site, client: Client) -> None:
    insert(client, 'p0', chunk(size=1024))
    agent = site.agent('p0')
    agent.until_order(1024)
    agent.hold()
    insert(client, 'p0', chunk(1024))
    site.leave(client)
    heir = site.client(recover=True)
    heir.recovered()
    records = [task for page in heir.pages for task in page.tasks]
    uids = [task.uid for task in records]
    whole = [unpacked(task.description) for task in records if ROWS in task.description]
    assert set(chunk(size=1024).uids) <= set(uids)
    if heir.connection.keeps_chunks:
        assert whole == [chunk(size=1024), chunk(1024)]
        assert uids.index('sweep.0000/0') < uids.index('sweep.0000.000000')
        assert records[-1].description['executable'] == '/bin/sim'
    else:
        assert set(chunk(1024).uids) <= set(uids)


def test_chunks_come_back_unless_an_agent_has_them(site: Site, client: Client) -> None:
    if not client.connection.keeps_chunks:
        return
    insert(client, 'p0', chunk())
    agent = site.agent('p0')
    agent.until_order(100)
    agent.hold()
    insert(client, 'p0', chunk(100))
    agent.report(['sweep.0000.000001'], states.AGENT_EXECUTING)
    agent.until_settled()
    client.do(client.connection.withdraw, [chunk().uid, chunk(100).uid, 'unknown'])
    client.until(lambda: len(client.tasks) == 3)
    assert client.tasks[0].uid == 'sweep.0000.000001'
    assert {update.uid: (update.info or {})['returned'] for update in client.tasks[1:]} == {
        chunk().uid: '', chunk(100).uid: 'p0'}
    other = site.agent('p1')
    client.do(client.connection.bind_tasks, 'p1', [chunk(100).uid])
    other.until_order(100)
    assert other.order == chunk(100).uids
    other.report([chunk(100).uids[0]], DONE_SOON)
    client.until_states({chunk(100).uids[0]: DONE_SOON})


def test_chunks_survive_a_restart(site: Site, client: Client) -> None:
    if not client.connection.keeps_chunks:
        return
    insert(client, 'p0', chunk(), chunk(100))
    site.kill()
    agent = site.agent('p0')
    agent.until_order(200)
    assert agent.order == [*chunk().uids, *chunk(100).uids]
    client.do(client.connection.update_tasks, [Update(agent.order[5], states.CANCELED)])
    client.until_settled()


def test_chunk_with_rows_that_do_not_fit_harms_nothing(site: Site, client: Client) -> None:
    if not client.connection.keeps_chunks:
        return
    bad = chunk()._replace(columns=[[None]], varying={'arguments': ['{7}']})
    insert(client, 'p0', bad, chunk(100))
    agent = site.agent('p0')
    agent.until_order(100)
    assert agent.order == chunk(100).uids

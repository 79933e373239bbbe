"""A peer with a good key may be broken or taken over: what it says wrongly has no effect, and harms nobody else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from attacks import HELLO, malformed, pack, speaking
from every_listener import LISTENERS, serving
from flood import flood
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from listeners import GROWTH, BridgeListener, HubListener, Listener

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination.results import read_results
from rp_api.tree import stream
from rp_api.tree.stream import encode
from rp_api.wire import codec
from rp_api.wire.codec import pack_bulk

HUGE = [2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -2**63]

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-2**63, 2**64 - 1) | st.floats() | st.text(max_size=9)
    | st.binary(max_size=9) | st.sampled_from(['hello', 'grant', 'sync', 'update_tasks', 'seen', 'put', 'get']),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=12)


@pytest.fixture(params=LISTENERS)
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with serving(request.param, tmp_path) as made:
        made.works()
        yield made


@pytest.fixture(params=['hub-ipc', 'hub-tcp'])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HubListener]:
    with serving(request.param, tmp_path) as made:
        made.works()
        yield made


def speak(listener: Listener, messages: list[list[bytes]], *, first: bytes = b'', identity: bytes = b'') -> None:
    """Say all of this to each of the listener's sockets, with an admitted key."""
    for address, kind in listener.sockets.items():
        with speaking(address, kind, listener.admitted, listener.server, identity) as speaker:
            for message in ([[first]] if first else []) + messages:
                speaker.insist(*message)
            speaker.finish()


@pytest.mark.timeout(120)
def test_a_flood_has_no_effect(listener: Listener) -> None:
    done = flood(listener, 10_000)   # the full number takes a nox session of its own
    assert done.strangers >= 100   # of 200 connections; of the others ZeroMQ noticed that they had left, at most
    assert done.malformed >= 512


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=st.lists(st.lists(plain, max_size=6), min_size=1, max_size=60), hello=st.booleans())
def test_whatever_can_be_packed_is_no_danger(listener: Listener, messages: list[Any], hello: bool) -> None:
    speak(listener, [[codec.pack(message)] for message in messages], first=pack([0, 'hello', HELLO]) if hello else b'')
    listener.works()


def test_large_and_many_frames_leave_nothing_behind(listener: Listener) -> None:
    rng = random.Random(2)
    speak(listener, [[b'\xc4' * (16 << 20)], [b''] * 20_000, *(malformed(rng) for _ in range(100))])
    listener.works()
    memory = listener.rss()
    for _ in range(4):   # each of them would leave 32 MB; the C library may keep a block or two of 16 MB for once
        speak(listener, [[b'\x91' * (16 << 20)], [b''] * 20_000, [rng.randbytes(4 << 20)] * 4])
        listener.works()
    listener.untouched()
    assert listener.rss() < memory + 3 * GROWTH


@pytest.mark.parametrize('listener', [
    name for name in LISTENERS if not name.startswith(('agent', 'master', 'endpoint'))], indirect=True)
def test_who_does_not_read_gets_no_more(listener: Listener) -> None:
    """Answers wait for a peer, but not without end; RAPTOR sends what was asked for."""
    hello = pack([0, 'hello', HELLO]) if isinstance(listener, HubListener) else encode('hello', 1, 'x')
    if isinstance(listener, BridgeListener):
        (hello,) = letter(encode('hello', stream.VERSION, 0))
    ask = pack([0, 'ping', 0, 0, 0, False]) if isinstance(listener, HubListener) else hello
    assert set(listener.sockets.values()) == {zmq.DEALER}
    memory = listener.rss()
    for address, kind in listener.sockets.items():
        with speaking(address, kind, listener.admitted, listener.server) as speaker:
            speaker.insist(hello)
            for _ in range(60_000):
                speaker.insist(ask)
            listener.works()
    assert listener.rss() < memory + GROWTH


def letter(*messages: bytes) -> list[bytes]:
    """A packet with messages of a leaf."""
    return list(stream.pack_envelopes(('leaf.0', message) for message in messages))


class TestBridges:
    """Messages of the right form to the root of a tree, with numbers and contents that no proper peer sends."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Iterator[Any]:
        with serving('tree-tcp', tmp_path) as made:
            yield made

    def test_numbers_out_of_range(self, root: Listener) -> None:
        shapes: list[list[Any]] = [['hello', 'N', 'N'], ['sync', 'N'], ['items', 'N', 0, b'\x80', [b'x']],
                                   ['items', 0, 'N', b'\x80', [b'x']]]
        speak(root, [letter(pack([number if part == 'N' else part for part in shape]))
                     for shape in shapes for number in HUGE])
        root.works()
        root.until(lambda now: now['malformed'] >= len(shapes) * len(HUGE), 'all of them are counted')
        root.untouched()

    def test_what_was_not_sent_cannot_have_arrived(self, root: Listener) -> None:
        speak(root, [letter(encode('hello', stream.VERSION, 5), encode('items', 7, 0, b'\x80', [b'x']))])
        root.until(lambda now: now['malformed'] >= 2, 'it is counted')
        root.untouched()

    def test_deep_nesting(self, root: Listener) -> None:
        for depth in (400, 600, 900, 1100, 5000):
            shared = b'\x81\xa1a' + b'\x91' * depth + b'\x00'
            speak(root, [letter(encode('items', 0, 0, shared, [b'\x81\xa6number\x00']))])
            assert root.ended() is None
        root.works()

    def test_replayed_items_are_not_taken_twice(self, root: Listener) -> None:
        items = encode('items', 0, 0, *pack_bulk([{'secret': 1}]))
        for _ in range(3):
            speak(root, [letter(encode('hello', stream.VERSION, 0)), letter(items, items), letter(items)])
        assert root.until(lambda now: now['accepted'] != root.initial, 'it is taken once')['accepted'] == 1

    def test_names_of_nobody(self, root: Listener) -> None:
        """Nothing is kept for a leaf that is not expected."""
        memory = root.rss()
        hello = encode('hello', stream.VERSION, 0)
        for number in range(50):
            speak(root, [list(stream.pack_envelopes((f'{number}.{each}', hello) for each in range(2000)))])
        root.works()
        assert root.rss() < memory + GROWTH


# a hub's peers in each other's name


AS_CLIENT: list[list[Any]] = [
    ['pilots', [['p.evil', b'\x80']]], ['tasks', 'p.1', 'tmgr', b'\x80', [['t.evil', b'\x80']]],
    ['bind', 'p.evil', ['t.p.1.1']], ['command', 'p.1', b'\x81\xa3cmd\xaccancel_pilot'], ['note', 'x', b'\x80'],
    ['recover', 0], ['detach'], ['listen', 'tcp://127.0.0.1:*']]


def rows(hub: HubListener) -> list[dict[str, Any]]:
    return list(read_results(hub._directory))


def test_an_agent_key_makes_no_client(hub: HubListener) -> None:
    before = rows(hub)
    as_client = pack([0, 'hello', HELLO | {'role': 'client', 'uid': 'session', 'agent': ''}])
    messages = [[pack([number, *operation])] for number, operation in enumerate(AS_CLIENT, 1)]
    speak(hub, [[as_client], *messages])
    speak(hub, messages, first=pack([0, 'hello', HELLO]))
    hub.until(lambda now: now['malformed'] >= 8, 'they are counted')   # the 1st, 2nd, 4th, 8th are in the log
    hub.works()
    assert [row for row in rows(hub) if row in before] == before
    assert len(rows(hub)) == len(before) + 1
    hub.untouched()


def test_nobody_speaks_for_somebody_else(hub: HubListener) -> None:
    """The name of a connection is a secret of its peer; who knows it all the same may say what its own key allows."""
    peers = hub.peers()
    try:
        peers.exchange()
        name = peers.ends[0]._hello['instance'].encode()
        messages = [pack([2, 'update_tasks', [['t.p.1.1', states.FAILED, None]]]), pack([2, 'detach']),
                    pack([0, 'bye'])]
        for address, kind in hub.sockets.items():
            with speaking(address, kind, hub.client_keys, hub.server, name) as speaker:
                for message in messages:
                    speaker.insist(message)
                speaker.finish()
        hub.until(lambda now: now['malformed'] >= 2, 'they are counted')
        hub.works()
        hub.untouched()
    finally:
        peers.close()


def acknowledged(speaker: Any, number: int) -> None:
    """Wait until the hub acknowledges the message of that number."""
    while [codec.unpack(message)[:2] for message in speaker.hear()] != [['ack', number]]:
        pass


def test_an_agent_changes_nothing_of_other_pilots(hub: HubListener) -> None:
    hub._owner.loop.call_soon(hub.client.insert_pilots, {'p.other': {}})
    hub._owner.loop.call_soon(hub.client.insert_batch, 'p.other', Batch.of([('t.other', {})]))
    hub.until(lambda now: any(row['uid'] == 't.other' for row in now['accepted']), 'it is there')
    updates = [['t.other', states.TMGR_STAGING_OUTPUT_PENDING, pack({'target_state': 'DONE', 'exit_code': 0})],
               ['t.other', states.FAILED, None], ['t.p.1.1', states.FAILED, None], ['t.none', states.DONE, None]]
    pilots = [['p.other', states.FAILED, None], ['p.1', states.DONE, None]]
    for address, kind in hub.sockets.items():
        with speaking(address, kind, hub.admitted, hub.server) as speaker:
            speaker.insist(pack([0, 'hello', HELLO]))
            speaker.insist(pack([1, 'update_tasks', updates]))
            speaker.insist(pack([2, 'update_pilots', pilots]))
            acknowledged(speaker, 2)
    assert [row['state'] for row in rows(hub) if row['uid'] == 't.other'] == [states.AGENT_STAGING_INPUT_PENDING]
    assert 'updates refused so far' in (hub._directory / 'hub.log').read_text()
    hub.works()


def test_replayed_messages_have_no_effect(hub: HubListener) -> None:
    """The same number again, on the same connection or a new one; an old state after a newer one from anybody."""
    heard: list[int] = []
    hub._waiting['p.flood'] = heard.append
    hub._owner.loop.call_soon(hub.client.insert_pilots, {'p.flood': {}})
    hub._owner.loop.call_soon(hub.client.insert_batch, 'p.flood', Batch.of([('t.p.flood.1', {})]))
    hub.until(lambda now: any(row['uid'] == 't.p.flood.1' for row in now['accepted']), 'it is there')
    done = pack({'target_state': states.DONE, 'exit_code': 0})
    said = [pack([1, 'update_tasks', [['t.p.flood.1', states.AGENT_EXECUTING, None]]]),
            pack([2, 'update_tasks', [['t.p.flood.1', states.TMGR_STAGING_OUTPUT_PENDING, done]]])]
    for instance in ('first', 'first', 'second'):
        for address, kind in hub.sockets.items():
            with speaking(address, kind, hub.admitted, hub.server) as speaker:
                speaker.insist(pack([0, 'hello', HELLO | {'instance': instance}]))
                for message in [*said, *said]:
                    speaker.insist(message)
                acknowledged(speaker, 2)
        assert [row['state'] for row in rows(hub) if row['uid'] == 't.p.flood.1'] == [states.DONE]
    hub.works()


@pytest.mark.parametrize('info', [b'\xc1', b'\x05', b'\x91' * 2000, b'\xdd\xff\xff\xff\xff', b'\xa1\xff'])
def test_what_an_agent_tells_of_a_task_cannot_harm_the_client(hub: HubListener, info: bytes) -> None:
    """The hub passes on what it does not look into."""
    heard: list[int] = []
    hub._waiting['p.flood'] = heard.append
    hub._owner.loop.call_soon(hub.client.insert_pilots, {'p.flood': {}})
    hub._owner.loop.call_soon(hub.client.insert_batch, 'p.flood', Batch.of([('t.p.flood.1', {})]))
    hub.until(lambda now: any(row['uid'] == 't.p.flood.1' for row in now['accepted']), 'it is there')
    speak(hub, [[pack([1, 'update_tasks', [['t.p.flood.1', states.TMGR_STAGING_OUTPUT_PENDING, info]]])],
                [pack([2, 'update_pilots', [['p.flood', states.FAILED, info]]])],
                [pack([0, 'hello', HELLO | {'instance': 'again'}])]], first=pack([0, 'hello', HELLO]))
    hub.works()
    assert heard == [1]
    assert next(row for row in rows(hub) if row['uid'] == 't.p.flood.1')['exception']


@pytest.mark.parametrize('protocol', [None, [[]], b'\x91' * 990, 'x' * 10**6, 2**64 - 1])
def test_a_peer_of_another_protocol_is_told(hub: HubListener, protocol: Any) -> None:
    hello = (b'\x93\x00\xa5hello\x81\xa8protocol' + (protocol if isinstance(protocol, bytes) else pack(protocol))
             + (b'\x00' if isinstance(protocol, bytes) else b''))
    for address, kind in hub.sockets.items():
        with speaking(address, kind, hub.admitted, hub.server) as speaker:
            speaker.insist(hello)
            assert b'install the same' in speaker.hear()[0]
    hub.works()

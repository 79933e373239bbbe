"""Whoever does not belong to a session gets nothing into any of its sockets, and stops none of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from attacks import connect, garbage, greeting, half_open, header, shout, speaking
from every_listener import LISTENERS, serving
from listeners import GROWTH, Listener

from rp_api.transport.keys import generate


@pytest.fixture(params=LISTENERS)
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with serving(request.param, tmp_path) as made:
        made.works()
        yield made


def test_peers_without_an_admitted_key_are_refused(listener: Listener) -> None:
    strangers = {'no CURVE': (None, b''), 'a key that is not admitted': (generate(), listener.server),
                 'another key of the server': (listener.admitted, generate().public)}
    for address, kind in listener.sockets.items():
        for what, (own, server) in strangers.items():
            with speaking(address, kind, own, server) as speaker:
                if kind != zmq.SUB:
                    speaker.say(b'topic\0', b'\x92\xc4\x01x\x01', b'\x01')
                assert speaker.judged() != zmq.Event.HANDSHAKE_SUCCEEDED, what
                listener.works()
    count = len(listener.sockets)
    listener.until(lambda now: now['refused'] >= count and now['strangers'] >= 2 * count, 'all of them are counted')
    listener.untouched()
    assert listener.figures()['malformed'] == 0


def test_what_is_no_peer_is_cut_off(listener: Listener) -> None:
    memory = listener.rss()
    rng = random.Random(1)
    tries = [greeting()[:length] for length in range(65)]
    tries += [greeting() + header(flags, size) for flags in range(8) for size in (2**32, 2**63 - 1, 2**64 - 1)]
    tries += [greeting() + header(flags, 255, long=False) for flags in range(256)]
    tries += garbage(rng, 300)
    for address in listener.sockets:
        for data in tries:
            shout(address, data)
        listener.works()
    # those of which ZeroMQ tells nothing but that they have left count less by the proper peers that are there
    listener.until(lambda now: now['strangers'] >= 256, 'they are counted')
    listener.untouched()
    assert listener.rss() < memory + GROWTH


def test_half_open_connections_keep_nobody_out(listener: Listener) -> None:
    memory = listener.rss()
    for address in listener.sockets:
        with half_open(address, 300):
            listener.works()
    listener.works()
    assert listener.rss() < memory + GROWTH


@pytest.mark.parametrize('listener', [name for name in LISTENERS if not name.endswith('-ipc')], indirect=True)
def test_running_out_of_file_descriptors_is_survived(listener: Listener) -> None:
    """Who is connected goes on meanwhile, and new ones are let in when there is room again.

    Only TCP: ZeroMQ ends a process that cannot accept a connection to a Unix socket. Those are in private directories.
    """
    assert all(address.startswith('tcp://') for address in listener.sockets)
    peers = listener.peers()
    try:
        peers.exchange()
        limit = listener.limit_files(60)
        for address in listener.sockets:
            with half_open(address, limit + 20):
                for _ in range(3 if peers.stays else 0):
                    peers.exchange()
            listener.works()
        peers.exchange()
    finally:
        peers.close()


def test_a_frame_that_never_ends_is_bounded(listener: Listener) -> None:
    """Who has not shown a key cannot have more kept than the largest message, and only until the handshake must end."""
    before = listener.rss()
    for address in listener.sockets:
        with connect(address) as connection:
            connection.sendall(greeting() + header(6, 200 << 20) + bytes(1 << 20))
            listener.works()
            assert listener.rss() < before + GROWTH
    listener.works()

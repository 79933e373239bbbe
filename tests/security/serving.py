"""Serves one kind of listening socket of the mesh in a process of its own: `python serving.py KIND`.

The first line of standard input is the configuration, the answer is the addresses; each further line is answered with
the figures. The end of standard input is the end.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import zmq

from rp_api.mesh.bridge import PubSubBridge, QueueBridge
from rp_api.mesh.channel import Subscriber
from rp_api.mesh.keys import Gate, KeyPair, generate
from rp_api.mesh.loop import Loop
from rp_api.mesh.tree import Root

Figures = Callable[[], dict[str, Any]]
Served = tuple[list[str], Figures, Callable[[float], object]]
"""Addresses, what tells the figures, what closes it."""


def queue(loop: Loop, keys: KeyPair, gate: Gate, address: str | None) -> Served:
    """A queue; accepted is what waits in it, and who has said hello."""
    bridge = QueueBridge(loop, keys, gate, address)

    def figures() -> dict[str, Any]:
        return {'accepted': [bridge.pending, len(bridge._putters), len(bridge._getters)],
                'malformed': bridge.malformed, 'strangers': bridge.strangers}

    return [bridge.address], figures, bridge.close


def pubsub(loop: Loop, keys: KeyPair, gate: Gate, address: str | None) -> Served:
    """Publish/subscribe; accepted is what a subscriber hears on a topic that everybody may guess."""
    heard: list[Any] = []
    bridge = PubSubBridge(loop, keys, gate, address, address and address.replace('/s', '/t'))
    own = generate()
    gate.allow(own.public)
    subscriber = Subscriber(loop, bridge.subscribe_address, own, keys.public, ['topic'],
                            lambda topic, message: heard.append(message), live=loop.stop, context=gate.context)
    loop.run()   # until the bridge knows of it: what is published before that is not heard
    loop._stopping = False

    def figures() -> dict[str, Any]:
        return {'accepted': len(heard), 'malformed': bridge.malformed, 'strangers': bridge.strangers}

    def close(linger: float) -> None:
        subscriber.close(linger)
        bridge.close(linger)

    return [bridge.publish_address, bridge.subscribe_address], figures, close


LEAVES = 1000


def tree(loop: Loop, keys: KeyPair, gate: Gate, address: str | None) -> Served:
    """The root of a tree that sends back what it gets; accepted is what it got from others than proper peers."""
    got: list[Any] = []

    def receive(name: str, items: list[Any]) -> None:
        got.extend(item for item in items if 'number' not in item)   # those of proper peers
        root.put(name, items)

    root = Root(loop, keys, gate, address, receive)
    for number in range(LEAVES):
        root.expect(f'leaf.{number}')

    def figures() -> dict[str, Any]:
        return {'accepted': len(got), 'malformed': root.malformed, 'strangers': root.strangers}

    return [root.address], figures, root.close


KINDS = {'queue': queue, 'pubsub': pubsub, 'tree': tree}


def main() -> None:
    """Serve until standard input ends."""
    logging.basicConfig(stream=sys.stderr, format='%(levelname)s %(message)s')
    config = json.loads(os.read(0, 65536))
    context: zmq.Context[Any] = zmq.Context()
    loop = Loop()
    gate = Gate(context, loop)
    gate.allow(config['admitted'].encode())
    keys = KeyPair(config['public'].encode(), config['secret'].encode())
    addresses, figures, close = KINDS[sys.argv[1]](loop, keys, gate, config['address'])

    def answer() -> None:
        if not os.read(0, 65536):
            loop.stop()
            return
        print(json.dumps({**figures(), 'refused': gate.refused}), flush=True)

    loop.add_fd(0, answer)
    print(json.dumps(addresses), flush=True)
    loop.run()
    close(0)
    gate.close()
    context.term()
    loop.close()


if __name__ == '__main__':
    main()

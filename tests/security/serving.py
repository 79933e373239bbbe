"""Serves a bridge, the root of a tree, in a process of its own: `python serving.py`.

The first line of standard input is the configuration, the answer is its address; each further line is answered with
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

from rp_api.loop.event_loop import Loop
from rp_api.transport.keys import Gate, KeyPair
from rp_api.tree.root import Root

Figures = Callable[[], dict[str, Any]]
Served = tuple[str, Figures, Callable[[float], object]]
"""Its address, what tells the figures, what closes it."""


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

    return root.address, figures, root.close


def main() -> None:
    """Serve until standard input ends."""
    logging.basicConfig(stream=sys.stderr, format='%(levelname)s %(message)s')
    config = json.loads(os.read(0, 65536))
    context: zmq.Context[Any] = zmq.Context()
    loop = Loop()
    gate = Gate(context, loop)
    gate.allow(config['admitted'].encode())
    keys = KeyPair(config['public'].encode(), config['secret'].encode())
    address, figures, close = tree(loop, keys, gate, config['address'])

    def answer() -> None:
        if not os.read(0, 65536):
            loop.stop()
            return
        print(json.dumps({**figures(), 'refused': gate.refused}), flush=True)

    loop.add_fd(0, answer)
    print(json.dumps(address), flush=True)
    loop.run()
    close(0)
    gate.close()
    context.term()
    loop.close()


if __name__ == '__main__':
    main()

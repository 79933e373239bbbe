"""Throw random frames at every listening socket of the system: `python tests/security/flood.py --frames 1000000`.

Half of them come from strangers, who connect and send bytes, some of which look like frames of ZeroMQ; the other half
from a peer whose key is admitted, but whose messages are nonsense. Proper peers must be served all the while, nothing
may be accepted, and the memory of the process must stay what it was.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import zmq
from attacks import HELLO, garbage, malformed, pack, shout, speaking
from every_listener import LISTENERS, serving
from listeners import GROWTH, Listener

BURST = 25
"""Frames of a stranger on one connection."""

ROUNDS = 10
"""Parts of a flood, after each of which proper peers try the server."""


class Outcome(NamedTuple):
    """What a flood has done; memory in bytes."""

    frames: int
    refused: int
    strangers: int
    malformed: int
    before: int
    after: int
    seconds: float


def flood(listener: Listener, frames: int, seed: int = 1) -> Outcome:
    """Throw that many frames at a listener; fails if one has an effect, or memory has grown."""
    rng = random.Random(seed)
    listener.works()
    _strangers(listener, rng, BURST * 8)   # so that buffers are there which stay
    _admitted(listener, rng, 1000)
    listener.works()
    before, begin = listener.rss(), time.monotonic()
    for _ in range(ROUNDS):
        _strangers(listener, rng, frames // 2 // ROUNDS)
        _admitted(listener, rng, frames // 2 // ROUNDS)
        listener.works()
    listener.untouched()
    figures, after = listener.figures(), listener.rss()
    assert after < before + GROWTH, f'memory grew from {before} to {after} bytes'
    return Outcome(frames, figures['refused'], figures['strangers'], figures['malformed'], before, after,
                   time.monotonic() - begin)


def _strangers(listener: Listener, rng: random.Random, frames: int) -> None:
    for number, data in enumerate(garbage(rng, -(-frames // BURST))):
        address = list(listener.sockets)[number % len(listener.sockets)]
        more = b''.join(bytes([rng.randrange(8), rng.randrange(30)]) + rng.randbytes(30) for _ in range(BURST - 1))
        shout(address, data + more)


def _admitted(listener: Listener, rng: random.Random, frames: int) -> None:
    for address, kind in listener.sockets.items():
        with speaking(address, kind, listener.admitted, listener.server) as speaker:
            if kind == zmq.DEALER:   # what a hub or a bridge answers is read, or would have to wait there
                speaker.socket.rcvhwm = 100
                speaker.insist(pack([0, 'hello', HELLO]))
            for _ in range(frames // len(listener.sockets)):
                speaker.insist(*malformed(rng))
                while kind == zmq.DEALER and cast(int, speaker.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                    speaker.socket.recv_multipart()
            speaker.finish()


def main() -> int:
    """Flood all listeners, or some, and print a table; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--frames', type=int, default=1_000_000, help='at each listener')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('listeners', nargs='*', choices=[*LISTENERS, []], help='default: all')
    options = parser.parse_args()
    print('| listener | frames without effect | strangers | malformed | memory before / MB | after / MB | s |')
    print('|---|---|---|---|---|---|---|')
    for name in options.listeners or LISTENERS:
        with tempfile.TemporaryDirectory(prefix='rp.flood.') as directory, serving(name, Path(directory)) as listener:
            done = flood(listener, options.frames, options.seed)
            row: list[Any] = [name, done.frames, done.strangers, done.malformed, f'{done.before / 1e6:.1f}',
                              f'{done.after / 1e6:.1f}', f'{done.seconds:.0f}']
            print('| ' + ' | '.join(map(str, row)) + ' |', flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())

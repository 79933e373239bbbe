"""Simulated workers of a RAPTOR master, for `raptor_scale.py`: managers that talk as real ones do, without ranks.

Each worker has a connection of its own, asks for calls by the rule of a real manager, sends the results of its ranks
when they would come, gives calls back, and sends heartbeats. A call ends when its time is over.

    python raptor_workers.py MASTER_FILE WORKERS RANKS SECONDS

prints a line when all workers are welcome and have the functions: process of the master, seconds since the first
connect. Each line that it reads is answered by the number of results that it has sent. It ends with its standard input.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import sys
import time
from array import array
from typing import Any

import zmq

from rp_api.loop.event_loop import Loop
from rp_api.transport.access import Access
from rp_api.transport.connection import PeerConnection, arrivals
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.call_buffer import ResultGatherer
from rp_raptor.wire.payload import encode_value
from rp_raptor.wire.protocol import PING, PROTOCOL, WORKER, parse_from_master
from rp_raptor.worker.estimate import Estimate

TICK = 0.01
"""Seconds between looks for messages, and for ranks whose calls are over: a loop looks at each of its sockets in each
turn, which is too often for hundreds of them."""

RESULT = encode_value(None)


class Site:
    """The workers of this process."""

    def __init__(self, path: str, count: int, ranks: int, seconds: float) -> None:
        self.loop = Loop()
        self.context: zmq.Context[Any] = zmq.Context(1)
        self.context.max_sockets = 8 * count + 64
        self.access = Access.load(path)
        self.sent = 0
        self.master = 0
        self.events: list[tuple[float, int, Worker, array[int]]] = []
        self._made = 0
        self._awaited = count
        self._begin = time.monotonic()
        self.workers = [Worker(self, number, ranks, seconds) for number in range(count)]
        self.loop.add_fd(0, self._command)
        self.loop.call_soon(self._tick)

    def welcome(self, info: dict[str, Any]) -> None:
        """Count a worker that is connected."""
        self.master = info['pid']
        self._awaited -= 1
        if not self._awaited:
            print(json.dumps({'master': self.master, 'seconds': time.monotonic() - self._begin}), flush=True)

    def at(self, deadline: float, worker: Worker, ids: array[int]) -> None:
        """Let a rank end its calls at that time."""
        self._made += 1
        heapq.heappush(self.events, (deadline, self._made, worker, ids))

    def _tick(self) -> None:
        for worker in self.workers:
            worker.receive()
        now = time.monotonic()
        changed: dict[Worker, None] = {}   # a dict keeps the order
        while self.events and self.events[0][0] <= now:
            _, _, worker, ids = heapq.heappop(self.events)
            worker.done(ids)
            changed[worker] = None
        for worker in changed:
            worker.results.flush()
            worker.proceed()
        self.loop.call_later(TICK, self._tick)

    def _command(self) -> None:
        line = os.read(0, 1)
        if line:
            print(self.sent, flush=True)
        else:
            self.loop.stop()


class Worker:
    """A manager without ranks: see `rp_raptor.worker.dispatcher`."""

    def __init__(self, site: Site, number: int, ranks: int, seconds: float) -> None:
        self._site = site
        self._ranks = self._idle = ranks
        self._seconds = seconds
        self._estimate = Estimate(ranks)
        self._uid = f'worker.{os.getpid()}.{number:04d}'
        self._waiting = array('Q')
        self._running = self._asked = 0
        self.results = ResultGatherer(lambda ids, payloads: self._send(['results', ids, payloads]))
        access = site.access
        self._connection = PeerConnection(site.loop, zmq.DEALER, access.address, access.keys, access.server_key,
                                      site.context, self.receive, self._hello, print)
        self._connection.socket.sndhwm = 0
        self._connection.open()
        site.loop.remove_socket(self._connection.socket)
        site.loop.call_later(PING * random.random(), self._ping)

    def done(self, ids: array[int]) -> None:
        """End the calls of a rank."""
        self._idle += 1
        self._running -= len(ids)
        self._site.sent += len(ids)
        self._estimate.learn(len(ids), self._seconds * len(ids))
        self.results.add(ids, Payloads([RESULT] * len(ids)))

    def proceed(self) -> None:
        """Give ranks calls, and ask for more."""
        self._deal()
        self._ask()

    def _hello(self) -> None:
        self._send(['worker', self._uid, 'another host', os.getpid(), self._ranks,
                    {'mpi': False, 'protocol': PROTOCOL, 'host_name': 'simulated'}])
        self._send(['rank_states', dict.fromkeys(range(self._ranks), 'ACTIVE')])
        self._ask()

    def receive(self) -> None:
        """Handle the messages that have arrived."""
        for frames in arrivals(self._connection.socket):
            operation, arguments = parse_from_master(frames[-1], WORKER)
            if operation == 'calls':
                ids = arguments[0]
                self._asked -= len(ids)
                self._waiting.extend(ids)
                self.proceed()
            elif operation == 'give_back':
                back = self._waiting[max(0, len(self._waiting) - arguments[0]):]
                del self._waiting[len(self._waiting) - len(back):]
                self._send(['returned', back])
            elif operation == 'welcome':
                self._site.welcome(arguments[0])

    def _deal(self) -> None:
        """Give idle ranks bulks; calls differ by half of their time."""
        while self._idle and self._waiting:
            size = min(self._estimate.bulk, -(-len(self._waiting) // self._idle))
            ids = self._waiting[:size]
            del self._waiting[:size]
            self._idle -= 1
            self._running += size
            length = size * self._seconds * (0.5 + random.random())
            self._site.at(time.monotonic() + length, self, ids)

    def _ask(self) -> None:
        wanted = self._ranks * self._estimate.stock
        missing = wanted - len(self._waiting) - self._running - self._asked
        if missing > 0 and missing >= wanted // 4:
            self._asked += missing
            self._send(['credit', missing])

    def _ping(self) -> None:
        self._send(['ping'])
        self._site.loop.call_later(PING, self._ping)

    def _send(self, message: list[Any]) -> None:
        self._connection.socket.send(pack_message(message))


def main() -> None:
    path, workers, ranks, seconds = sys.argv[1:]
    Site(path, int(workers), int(ranks), float(seconds)).loop.run()
    os._exit(0)   # thousands of sockets would take long to close


if __name__ == '__main__':
    main()

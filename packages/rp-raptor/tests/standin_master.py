"""A master for tests of the application's side: it talks as one, and runs calls in a thread of this process."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from contextlib import suppress
from typing import Any

import zmq

from rp_api.errors import CoordinationError
from rp_api.functions import deserialize_obj
from rp_api.loop.event_loop import Loop
from rp_api.transport import keys
from rp_api.transport.connection import Listener, arrivals
from rp_raptor.rank.running import arguments
from rp_raptor.wire import payload
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.protocol import APPLICATION, parse

DOMAIN = 'standin'


class StandinMaster:
    """A master's handle and the master itself; `hold` makes it keep calls until `release()`."""

    def __init__(self, uid: str = 'raptor.0000', room: int = 4096, hold: bool = False, up: bool = True,
                 ranks: int = 1) -> None:
        self.uid = uid
        self.state = 'AGENT_EXECUTING'
        self.exception: str | None = None
        self.access: dict[str, str] | None = None
        self.hold = hold
        self.seen: list[str] = []               # operations, in their order
        self.held: deque[tuple[bytes, int, bytes]] = deque()
        self.cancelled: set[int] = set()
        self.attributes: dict[int, Any] = {}
        self.largest = 0                        # calls without a result at any moment
        self._room = room
        self._ranks = ranks
        self._functions: dict[bytes, Any] = {}
        self._context: zmq.Context[Any] = zmq.Context()
        self._loop = Loop()
        self._keys, self._theirs = keys.generate(), keys.generate()
        self._gate = keys.Gate(self._context, self._loop)
        self._gate.allow(self._theirs.public, DOMAIN)
        self._listener = self._listen('tcp://127.0.0.1')
        self._thread = threading.Thread(target=self._loop.run, name='standin')
        self._thread.start()
        if up:
            self.come_up()

    def come_up(self) -> None:
        """Let applications know how to connect."""
        self.access = {'address': self._listener.address, 'server': self._keys.public.decode(),
                       'public': self._theirs.public.decode(), 'secret': self._theirs.secret.decode()}

    def do(self, action: Any) -> None:
        """Run something in the master's thread, and wait for its end."""
        done = threading.Event()

        def run() -> None:
            action()
            done.set()

        self._loop.call_soon(run)
        assert done.wait(10)

    def release(self) -> None:
        """Run what was held, and hold no more."""
        def act() -> None:
            self.hold = False
            self._run_held()
        self.do(act)

    def tell_end(self, reason: str) -> None:
        """Say to the application of the held calls that the master ends."""
        self.do(lambda: self._send(self.held[0][0], ['ended', reason]))

    def tell_ranks(self, ranks: int) -> None:
        """Say to the application of the held calls how many ranks there are."""
        self.do(lambda: self._send(self.held[0][0], ['ranks', ranks]))

    def send_raw(self, data: bytes) -> None:
        """Send the application of the held calls something."""
        self.do(lambda: self._listener.socket.send_multipart([self.held[0][0], data]))

    def break_connections(self) -> None:
        """Lose all connections, and every call that came over them."""
        def act() -> None:
            address = self._listener.address
            self._listener.close(0)
            self.held.clear()
            self._loop.call_later(0.01, self._listen_again, address)
        self.do(act)

    def close(self) -> None:
        """Leave nothing behind."""
        self._loop.stop()
        self._thread.join()
        self._listener.close(0)
        self._gate.close()
        self._context.term()
        self._loop.close()

    def _listen(self, address: str) -> Listener:
        return Listener(self._loop, zmq.ROUTER, self._keys, self._gate, address, DOMAIN, 0, self._receive)

    def _listen_again(self, address: str) -> None:
        try:
            self._listener = self._listen(address)
        except CoordinationError:   # the other socket is not gone yet
            self._loop.call_later(0.01, self._listen_again, address)

    def _send(self, peer: bytes, message: list[Any]) -> None:
        with suppress(zmq.ZMQError):   # the application is gone
            self._listener.socket.send_multipart([peer, pack_message(message)])

    def _receive(self) -> None:
        for peer, data in arrivals(self._listener.socket):
            operation, arguments = parse(data, APPLICATION)
            self.seen.append(operation)
            handler = getattr(self, f'_on_{operation}', None)
            if handler:
                handler(peer, *arguments)

    def _on_open(self, peer: bytes, name: str, info: dict[str, Any]) -> None:
        self._send(peer, ['welcome', {'uid': self.uid}])
        self._send(peer, ['ranks', self._ranks])
        self._send(peer, ['room', self._room])

    def _on_define(self, peer: bytes, fid: bytes, blob: bytes) -> None:
        self._functions[fid] = deserialize_obj(payload.opened_definition(blob)[0])

    def _on_give_back(self, peer: bytes, count: int) -> None:
        back = [self.held.pop()[1] for _ in range(min(count, len(self.held) - self._ranks))]
        self._send(peer, ['returned', array('Q', back)])
        self._send(peer, ['room', len(back)])

    def _on_cancel(self, peer: bytes, ids: bytes) -> None:
        self.cancelled.update(ids)

    def _on_calls(self, peer: bytes, ids: bytes, calls: list[bytes], attributes: dict[int, Any] | None) -> None:
        self.held.extend((peer, number, call) for number, call in zip(ids, calls, strict=True))
        self.attributes.update(attributes or {})
        self.largest = max(self.largest, len(self.held))
        if not self.hold:
            self._run_held()

    def _run_held(self) -> None:
        while self.held:
            peer, number, call = self.held.popleft()
            self._send(peer, ['results', number.to_bytes(8, 'little'), Payloads([self._run(call)])])
            self._send(peer, ['room', 1])

    def _run(self, call: bytes) -> bytes:
        function = self._functions[payload.fid_of(call)]
        if payload.kind_of(call) == b'F':
            return _outcome(function, *arguments(call))
        return payload.encode_outcomes([_outcome(function, *each) for each in payload.decode_chunk(call)])


def _outcome(function: Any, args: Any, kwargs: Any) -> bytes:
    try:
        return payload.encode_value(function(*args, **kwargs or {}))
    except Exception as error:
        return payload.encode_error(error)

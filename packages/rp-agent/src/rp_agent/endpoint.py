"""The endpoint of the pilot: the socket at which processes on its nodes call the agent (`rp_api.endpoint.visitor`).

No message of a visitor ends the agent: malformed ones are dropped and counted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import zmq

from rp_agent import sandbox
from rp_agent.calls import Call, Calls
from rp_agent.nodes.child import address_for_nodes
from rp_agent.resource_manager.base import Allocation
from rp_api.endpoint.visitor import endpoint_file, from_visitor
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.transport.access import AccessPoint
from rp_api.transport.connection import arrivals, send_to
from rp_api.transport.keys import Tally
from rp_api.wire import codec

_log = logging.getLogger('radical.pilot.agent.endpoint')

MOST_MESSAGES = 1000
"""Messages that wait for a visitor that does not read them; with more, it counts as gone."""

PROBES = 0.05, 1.0
"""Seconds after the loss of a connection, and then after the first look, until the endpoint looks which visitors are
gone."""


class Visitor:
    """A process that has said hello: the uid of its task, its open calls, and the names of its procedures."""

    __slots__ = ('asked', 'calls', 'names', 'uid')

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.calls: set[str] = set()
        self.asked: dict[int, Call] = {}
        self.names: set[str] = set()


class Endpoint:
    """The socket, with its key file `file`; calls of visitors are answered by the procedures in `calls`."""

    def __init__(self, loop: Loop, calls: Calls, file: str, address: str | None) -> None:
        self._loop = loop
        self._calls = calls
        self._file = file
        self._visitors: dict[bytes, Visitor] = {}
        self._last_call = 0
        self._probes: list[float] = []   # the delays of those that are to come
        self._malformed = Tally('dropped what a visitor of the endpoint has sent')
        self._handlers: Mapping[str, Callable[..., object]] = {
            'call': self._on_call, 'cancel': self._on_cancel, 'register': self._on_register,
            'result': self._on_result}
        self._point = AccessPoint(loop)
        self._listener = self._point.listen(zmq.ROUTER, address, MOST_MESSAGES, self._arrived,
                                            gone=self._connection_lost)
        self._point.admit(self._listener.address).save(file)
        _log.info('listening at %s', self.address)

    @property
    def address(self) -> str:
        """The address that visitors connect to."""
        return self._listener.address

    @property
    def dropped(self) -> int:
        """The number of dropped messages."""
        return self._malformed.count

    def stop(self, reason: str) -> None:
        """Do nothing: calls of tasks that are ending are still answered."""

    def close(self) -> None:
        """Remove the file, and close the socket; the last answers are sent in the background."""
        with suppress(FileNotFoundError):
            os.unlink(self._file)
        self._listener.close(0.5)
        self._point.close()

    def _arrived(self) -> None:
        for sender, *frames in arrivals(self._listener.socket):
            try:
                self._take(sender, *from_visitor(b''.join(frames)))
            except CoordinationError as error:
                self._malformed.add(error)

    def _take(self, sender: bytes, operation: str, arguments: list[Any]) -> None:
        if operation == 'hello':
            self._visitors.setdefault(sender, Visitor(*arguments))
        elif sender in self._visitors:
            self._handlers[operation](sender, self._visitors[sender], *arguments)
        else:
            self._malformed.add(f'{operation} of a visitor that has not said hello')

    def _send(self, sender: bytes, *message: Any) -> None:
        try:
            send_to(self._listener.socket, sender, codec.pack(message))
        except zmq.ZMQError as error:
            _log.debug('%r cannot be reached: %s', sender, error)
            self._gone(sender)

    # calls of visitors

    def _on_call(self, sender: bytes, visitor: Visitor, number: int, name: str, args: list[Any],
                 kwargs: dict[str, Any], address: str) -> None:
        def answered(call: Call, value: Any, reason: str | None, detail: str) -> None:
            visitor.calls.discard(call.uid)
            if reason is None:
                self._answer(sender, number, value)
            else:
                self._send(sender, 'result', number, False, f'{reason}\n{detail}' if detail else reason)

        uid = _uid(sender, number)
        if uid in visitor.calls:
            self._malformed.add(f'call {number} of {visitor.uid or "a visitor"} again')
            return
        visitor.calls.add(uid)
        self._calls.call(uid, name, args, kwargs, answered, address)

    def _answer(self, sender: bytes, number: int, value: Any) -> None:
        try:
            self._send(sender, 'result', number, True, value)
        except (TypeError, ValueError) as error:   # the value cannot be sent
            self._send(sender, 'result', number, False, str(error))

    def _on_cancel(self, sender: bytes, visitor: Visitor, number: int) -> None:
        self._calls.cancel([_uid(sender, number)], 'the call was cancelled')

    # procedures of visitors

    def _on_register(self, sender: bytes, visitor: Visitor, number: int, name: str) -> None:
        try:
            self._calls.register(name, lambda call: self._ask(sender, visitor, call), _address(sender, visitor))
        except ValueError as error:
            self._send(sender, 'result', number, False, str(error))
        else:
            visitor.names.add(name)
            self._send(sender, 'result', number, True, None)

    def _ask(self, sender: bytes, visitor: Visitor, call: Call) -> None:
        """Pass a call to a visitor, which answers it."""
        self._last_call += 1
        number = self._last_call
        visitor.asked[number] = call
        call.when_cancelled(lambda: visitor.asked.pop(number, None))
        self._send(sender, 'call', number, call.name, list(call.args), dict(call.kwargs))

    def _on_result(self, _: bytes, visitor: Visitor, number: int, good: bool, value: Any) -> None:
        call = visitor.asked.pop(number, None)
        if call is not None and good:
            call.done(value)
        elif call is not None:
            call.fail(str(value))

    # visitors that leave

    def _connection_lost(self) -> None:
        idle = not self._probes
        self._probes = list(PROBES)
        if idle:
            self._loop.call_later(self._probes[0], self._probe)

    def _probe(self) -> None:
        if self._listener.socket.closed:
            return
        for sender in list(self._visitors):
            self._send(sender, 'ping')
        del self._probes[0]
        if self._probes:
            self._loop.call_later(self._probes[0], self._probe)

    def _gone(self, sender: bytes) -> None:
        """Forget a visitor that cannot be reached, and end its calls and those that it had to answer."""
        visitor = self._visitors.pop(sender, None)
        if visitor is None:
            return
        for name in visitor.names:
            self._calls.remove(name, _address(sender, visitor))
        self._calls.cancel(list(visitor.calls), 'the caller has gone')
        for call in list(visitor.asked.values()):
            call.fail(f'{visitor.uid or "the process"} has gone before it answered {call.name}')


def open_endpoint(config: Mapping[str, Any], loop: Loop, allocation: Allocation, calls: Calls) -> Endpoint:
    """Return the endpoint of an agent, which all nodes of the pilot can reach."""
    file = endpoint_file(sandbox.of_pilot(config), str(config.get('partition', '')))
    return Endpoint(loop, calls, file, address_for_nodes(config, allocation))


def _uid(sender: bytes, number: int) -> str:
    return f'endpoint.{sender.hex()}.{number}'


def _address(sender: bytes, visitor: Visitor) -> str:
    """Return the address of a visitor's procedures: the uid of its task, if it is one."""
    return visitor.uid or sender.hex()

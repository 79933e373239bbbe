"""The listening sockets of RAPTOR and of endpoints, each served by a process of its own, and proper peers of each."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import zmq
from listeners import Listener, Peers, ServedListener

from rp_api.system.host import host_id
from rp_api.transport.access import Access
from rp_api.transport.connection import PeerConnection, arrivals
from rp_api.wire import codec
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.payload import encode_value
from rp_raptor.wire.protocol import PROTOCOL

SERVING = Path(__file__).with_name('serving_raptor.py')
RESULT = encode_value(None)


class Peer:
    """A proper peer: says hello when it is connected, and goodbye at the end; `heard` gets what the server says."""

    def __init__(self, peers: Peers, access: Access, hello: list[list[Any]], bye: list[Any],
                 heard: Callable[..., object]) -> None:
        self._first, self._bye, self._heard = hello, bye, heard
        self._met = False
        self._connection = PeerConnection(peers.loop, zmq.DEALER, access.address, access.keys, access.server_key, None,
                                      self._receive, self._connected, self._refused)
        self._connection.open()
        peers.ends.append(self)

    def say(self, *message: Any) -> None:
        if self._met:
            self._connection.socket.send(pack_message(list(message)))
        else:
            self._first.append(list(message))

    def close(self) -> None:
        self.say(*self._bye)
        self._connection.close()

    def _connected(self) -> None:
        self._met = True
        for message in self._first:
            self.say(*message)
        self._first.clear()

    def _refused(self, reason: str) -> None:
        raise AssertionError(reason)

    def _receive(self) -> None:
        for frames in arrivals(self._connection.socket):
            self._heard(*codec.unpack(frames[-1]))


class RaptorListener(ServedListener):
    """The socket of an agent or a master; those who are admitted, and speak nonsense, have the key of that role."""

    def __init__(self, directory: Path, kind: str, role: str, address: str | None) -> None:
        self._role = role
        self._names = count()
        self._serve(SERVING, kind)
        answer = self._ask(json.dumps({'directory': str(directory), 'address': address}))
        self._access = {name: Access.read(access) for name, access in answer.items()}
        mine = self._access[role]
        self.server, self.admitted = mine.server_key, mine.keys
        self.sockets = {mine.address: zmq.DEALER}

    def peers(self) -> Peers:
        connect = {'master': self._as_master, 'visitor': self._as_visitor, 'holder': self._as_receiver}
        return Peers(connect.get(self._role, self._as_application))

    def _as_receiver(self, peers: Peers) -> Callable[[int], object]:
        """A manager that gets pieces of an object."""
        def heard(operation: str, _: bytes, offset: int, data: bytes) -> None:
            assert (operation, data) == ('piece', bytes(8))
            peers.arrived(offset)

        peer = Peer(peers, self._access['holder'], [], ['get', bytes(16), 0, 0], heard)
        return lambda number: peer.say('get', bytes(16), number, 8)

    def _as_visitor(self, peers: Peers) -> Callable[[int], object]:
        """A task that calls its pilot."""
        def heard(operation: str, *arguments: Any) -> None:
            if operation == 'result':
                number, good, value = arguments
                assert (good, value) == (True, [number])
                peers.arrived(number)

        peer = Peer(peers, self._access['visitor'], [['hello', 'task.000000']], ['cancel', 0], heard)
        return lambda number: peer.say('call', number, 'echo', [number], {}, '')

    def _as_master(self, peers: Peers) -> Callable[[int], object]:
        """A master that submits something impossible, and hears that it is."""
        name = f'master.{next(self._names)}'

        def heard(operation: str, *arguments: Any) -> None:
            if operation == 'task_state':
                peers.arrived(int(arguments[0].rpartition('.')[2]))

        peer = Peer(peers, self._access['master'], [['hello', name, os.getpid(), self._access['master'].as_dict()]],
                    ['bye'], heard)
        return lambda number: peer.say('submit', [{'uid': f'{name}.{number}', 'mode': 'impossible'}])

    def _as_application(self, peers: Peers) -> Callable[[int], object]:
        """An application and a worker: the one makes calls, and the other has results for all that it gets."""
        name = os.urandom(8).hex()

        def calls(operation: str, *arguments: Any) -> None:
            if operation == 'calls':
                number = len(arguments[0]) // 8
                worker.say('results', arguments[0], Payloads([RESULT] * number))
                worker.say('credit', number)

        def results(operation: str, *arguments: Any) -> None:
            if operation == 'results':
                for number in array('Q', arguments[0]):
                    peers.arrived(number)

        worker = Peer(peers, self._access['worker'], [
            ['worker', name, host_id(), os.getpid(), 1, {'protocol': PROTOCOL, 'mpi': False}], ['credit', 100]],
            ['bye', ''], calls)
        application = Peer(peers, self._access['application'], [
            ['open', name, {'protocol': PROTOCOL, 'host': host_id(), 'pid': os.getpid()}]], ['close'], results)
        return lambda number: application.say('calls', array('Q', [number]), Payloads([b'Dcall']), None)


RAPTOR_LISTENERS: dict[str, Callable[[Path], Listener]] = {
    'endpoint-ipc': lambda directory: RaptorListener(directory, 'endpoint', 'visitor', None),
    'agent-ipc': lambda directory: RaptorListener(directory, 'agent', 'master', None),
    'agent-tcp': lambda directory: RaptorListener(directory, 'agent', 'master', 'tcp://127.0.0.1'),
    'objects-ipc': lambda directory: RaptorListener(directory, 'objects', 'holder', None),
    'objects-tcp': lambda directory: RaptorListener(directory, 'objects', 'holder', 'tcp://127.0.0.1'),
    'master-ipc': lambda directory: RaptorListener(directory, 'master', 'worker', None),
    'master-tcp': lambda directory: RaptorListener(directory, 'master', 'application', 'tcp://127.0.0.1')}

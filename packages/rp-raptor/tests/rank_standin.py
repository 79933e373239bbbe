"""A rank as the manager sees it, without any of the worker classes: runs what the payload says, for tests.

Payloads are packed lists: an operation and its arguments. With MPI_LIKE set, its number is what the launcher says.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from array import array
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import zmq

from rp_api.system.processes import start_time
from rp_api.transport.keys import KeyPair, make_client
from rp_api.wire.codec import pack, unpack
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.carried_results import carried_result
from rp_raptor.wire.cursor import Cursors
from rp_raptor.wire.payload import encode_error, encode_value
from rp_raptor.wire.rank_protocol import (
    CANCEL,
    RANK_VARIABLE,
    RUN_VARIABLE,
    TO_RANK,
    interrupted,
    load_run,
    parse,
)
from rp_raptor.wire.result_files import ResultFiles


class Rank:
    """One rank, from hello to stop."""

    def __init__(self) -> None:
        self.run = load_run(os.environ[RUN_VARIABLE])
        self.rank = int(os.environ[self.run.rank_variable or RANK_VARIABLE])
        self.place = self.run.numbers.index(self.rank)
        self.cursors = Cursors(self.run.cursors)
        self.position = -1
        self.finished: list[tuple[int, bytes]] = []
        self.busy = 0.0
        self.functions: dict[bytes, bytes] = {}
        self.fetching: dict[bytes, list[int]] = {}   # calls that wait for an object
        self.group: list[int] = []
        self.tag = 0
        if self.run.mpi:
            import mpi4py.MPI  # noqa: F401  as it initializes MPI, what all ranks have to do
        signal.signal(signal.SIGUSR1, self.on_signal)
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        make_client(self.socket, KeyPair(self.run.public.encode(), self.run.secret.encode()), self.run.server.encode())
        self.socket.connect(self.run.address)
        self.send('hello', self.place, os.getpid(), start_time(os.getpid()))

    def send(self, *message: Any) -> None:
        self.socket.send(pack_message(list(message)))

    def on_signal(self, *_: object) -> None:
        position, reason = interrupted(self.cursors.mark(self.place))
        if position == self.position:
            raise (CancelledError if reason == CANCEL else TimeoutError)('interrupted')
        if self.position >= 0:
            self.flush()

    def flush(self) -> None:
        if self.finished:
            ids, payloads = zip(*self.finished, strict=True)
            self.finished = []
            self.send('results', array('Q', ids), Payloads(payloads), self.busy)
            self.busy = 0.0

    def work(self) -> None:
        while True:
            if not self.socket.poll(0):
                self.flush()
            while not self.socket.poll(5000):
                if os.getppid() == 1:
                    return
            kind, arguments = parse(self.socket.recv(), TO_RANK)
            if kind == 'stop':
                self.flush()
                return
            if kind == 'calls':
                first, ids, payloads = arguments
                for number, (id, payload) in enumerate(zip(ids, payloads, strict=True)):
                    if not self.cursors.take(self.place, first + number):
                        break
                    self.finished += self.call(first + number, id, payload)
                self.flush()
            elif kind == 'alone':
                position, id, payload, devices, _ = arguments
                if self.cursors.take(self.place, position):
                    self.send('results', array('Q', [id]), Payloads([pack(['alone', self.rank, devices])]), 0.0)
            elif kind == 'mpi':
                position, id, payload, self.group, self.tag, _ = arguments
                if self.cursors.take(self.place, position):
                    (_, result), = self.call(position, id, payload)
                    self.send('part', id, result, 0.0)
            elif kind == 'define':
                self.functions[arguments[0]] = arguments[1]
            elif kind == 'forget':
                self.functions.pop(arguments[0], None)
            elif kind == 'cancel':
                for id in arguments[0]:
                    self.send('results', array('Q', [id]), Payloads([b'canceled %d' % arguments[1]]), 0.0)
            elif kind == 'object':
                ids = array('Q', self.fetching.pop(arguments[0]))
                self.send('results', ids, Payloads([content_of(*arguments[1:])]), 0.0)
            elif kind == 'ran':
                self.send('results', array('Q', [arguments[0]]), Payloads([arguments[1]]), 0.0)

    def call(self, position: int, id: int, payload: bytes) -> list[tuple[int, bytes]]:
        start = time.monotonic()
        self.position = position
        try:
            result = self.do(id, *unpack(payload))
        except (TimeoutError, CancelledError) as error:
            result = type(error).__name__.encode()
        finally:
            self.position = -1
        self.busy += time.monotonic() - start
        return [] if result is None else [(id, result)]

    def do(self, id: int, operation: str, *arguments: Any) -> bytes | None:
        if operation == 'echo':
            return pack(arguments)
        if operation == 'who':
            return pack([self.rank, os.getpid(), os.environ.get('CUDA_VISIBLE_DEVICES', '')])
        if operation == 'value':
            return encode_value(arguments[0])
        if operation == 'sum':   # over the group, with its own communicator
            from mpi4py import MPI

            world = MPI.COMM_WORLD
            communicator = world.Create_group(world.group.Incl(self.group), self.tag)
            total = communicator.allreduce(self.rank)
            communicator.Free()
            return encode_value([world.size, total])
        if operation == 'value_or_error':
            return encode_error(ValueError(f'rank {self.rank}')) if self.rank == arguments[0] else encode_value(1)
        if operation == 'function':
            return self.functions.get(arguments[0], b'none')
        if operation == 'wait':   # until a file is there
            while not os.path.exists(arguments[0]):
                time.sleep(0.005)
            return b'waited'
        if operation == 'note':   # that it runs, and give a large result of the argument
            with open(arguments[0], 'a') as file:
                file.write(f'{id}\n')
            time.sleep(arguments[1])
            content = bytes(arguments[2])
            return result_for(arguments[3], content, self.run.results) if arguments[3:] else content
        if operation == 'ignore':   # no signal helps
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            threading.Event().wait()
        if operation == 'stay':   # a while after SIGTERM
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            Path(arguments[0]).touch()
            time.sleep(arguments[1])
        if operation == 'fetch':   # an object, and give a digest of it
            self.fetching[arguments[0]] = [id]
            self.send('fetch', arguments[0])
            return None
        if operation == 'park':
            self.send('parked', array('Q', [id]))
            return None
        if operation == 'run':
            self.send('parked', array('Q', [id]))
            self.send('submit', id, pack(arguments))
            return None
        if operation == 'die':
            os.kill(os.getpid(), arguments[0])
        if operation == 'once':   # dies, unless the file is there
            if os.path.exists(arguments[0]):
                return b'again'
            open(arguments[0], 'w').close()
            os._exit(arguments[1])
        raise ValueError(operation)


def result_for(results: str, value: bytes, carried: str) -> bytes:
    """The result for a caller with these `ValueStore.results`, in a file of the manager."""
    path, size, _ = unpack(encode_value(value, ResultFiles('elsewhere\n/', '', carried))[1:])
    return carried_result(path, size, results)


def content_of(path: str, fault: str) -> bytes:
    """The packed path and digest of a file."""
    return pack([path, '' if fault else hashlib.sha256(Path(path).read_bytes()).hexdigest(), fault])


if __name__ == '__main__':
    if os.environ.get('STANDIN_FAILS'):
        sys.exit(int(os.environ['STANDIN_FAILS']))
    Rank().work()

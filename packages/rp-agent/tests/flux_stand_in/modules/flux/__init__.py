"""Stands in for the Python bindings of Flux: the few names that the runner uses, with their documented behaviour."""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from flux import constants
from flux.future import Future

F = TypeVar('F', bound=Future)


class Flux:
    """A handle of the instance that FLUX_URI names, with a reactor."""

    def __init__(self) -> None:
        uri = os.environ['FLUX_URI']
        if not uri.startswith('local://'):
            raise FileNotFoundError(2, f'unable to connect to {uri}')
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(uri[len('local://'):])
        self._unread = b''
        self._futures: dict[str, Future] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ, self.receive)
        self._stopped = False

    def fd_watcher_create(self, fd_int: int, callback: Callable[..., object], events: int | None = None,
                          args: Any = None) -> Watcher:
        assert events == constants.FLUX_POLLIN
        return Watcher(self, fd_int, callback, args)

    def reactor_run(self, reactor: object = None, flags: int = 0) -> None:
        while not self._stopped:
            for key, _ in self._selector.select():
                key.data()

    def reactor_stop(self, reactor: object = None) -> None:
        self._stopped = True

    def rpc(self, topic: str, payload: dict[str, Any] | None = None, nodeid: int | None = None,
            flags: int = 0) -> Future:
        return self.request(Future(), do=topic.partition('.')[2].replace('-', '_'), **(payload or {}))

    def request(self, future: F, **request: Any) -> F:
        key = str(len(self._futures))
        self._futures[key] = future
        future.handle = self
        self._socket.sendall(json.dumps({'key': key, **request}).encode() + b'\n')
        return future

    def receive(self) -> None:
        try:
            data = self._socket.recv(1 << 20)
        except ConnectionResetError:   # the broker was killed before it had read all
            data = b''
        if not data:   # its end is noticed when something is sent
            self._selector.unregister(self._socket)
            return
        *lines, self._unread = (self._unread + data).split(b'\n')
        for line in lines:
            answer = json.loads(line)
            self._futures[answer['key']].fulfil(answer)


class Watcher:
    """Calls back when a descriptor can be read."""

    def __init__(self, handle: Flux, fd: int, callback: Callable[..., object], args: Any) -> None:
        self._handle, self._fd, self._callback, self._args = handle, fd, callback, args

    def start(self) -> Watcher:
        self._handle._selector.register(self._fd, selectors.EVENT_READ, self._ready)
        return self

    def stop(self) -> Watcher:
        self._handle._selector.unregister(self._fd)
        return self

    def _ready(self) -> None:
        self._callback(self._handle, self, self._fd, constants.FLUX_POLLIN, self._args)

"""Stands in for the Python bindings of Flux: the few names that the runner uses, with their documented behaviour."""

import json
import os
import selectors
import socket

from flux import constants
from flux.future import Future


class Flux:
    """A handle of the instance that FLUX_URI names, with a reactor."""

    def __init__(self):
        uri = os.environ['FLUX_URI']
        if not uri.startswith('local://'):
            raise FileNotFoundError(2, f'unable to connect to {uri}')
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(uri[len('local://'):])
        self._unread = b''
        self._futures = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ, self.receive)
        self._stopped = False

    def fd_watcher_create(self, fd_int, callback, events=None, args=None):
        assert events == constants.FLUX_POLLIN
        return Watcher(self, fd_int, callback, args)

    def reactor_run(self, reactor=None, flags=0):
        while not self._stopped:
            for key, _ in self._selector.select():
                key.data()

    def reactor_stop(self, reactor=None):
        self._stopped = True

    def rpc(self, topic, payload=None, nodeid=None, flags=0):
        return self.request(Future(), do=topic.partition('.')[2].replace('-', '_'), **(payload or {}))

    def request(self, future, **request):
        key = str(len(self._futures))
        self._futures[key] = future
        future.handle = self
        self._socket.sendall(json.dumps({'key': key, **request}).encode() + b'\n')
        return future

    def receive(self):
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

    def __init__(self, handle, fd, callback, args):
        self._handle, self._fd, self._callback, self._args = handle, fd, callback, args

    def start(self):
        self._handle._selector.register(self._fd, selectors.EVENT_READ, self._ready)
        return self

    def stop(self):
        self._handle._selector.unregister(self._fd)
        return self

    def _ready(self):
        self._callback(self._handle, self, self._fd, constants.FLUX_POLLIN, self._args)

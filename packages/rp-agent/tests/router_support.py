"""Helpers of the tests of routers: routers on a loop in a thread, instances of a service, and requests."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from rp_agent.services.registry import Registry, ServiceInstance
from rp_agent.services.router import Router, Routers
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Helpers

T = TypeVar('T')

TIMEOUT = 30.0

SERVER = '''
import os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        size = len(self.rfile.read(int(self.headers.get('content-length') or 0)))
        with open(sys.argv[2], 'a') as log:
            log.write(f'{self.command} {self.path} {size} {os.getpid()}\\n')
        if self.path == '/hold':   # until this process is killed
            time.sleep(1000)
        body = str(os.getpid()).encode()
        self.send_response(int(self.path.partition('/status/')[2] or 200))
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_GET

class Server(ThreadingHTTPServer):
    def handle_error(self, *arguments):   # HAProxy has closed a connection
        pass

server = Server(('127.0.0.1', int(sys.argv[1])), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
'''


class Server:
    """An instance of a service; it notes its requests in a file."""

    def __init__(self, log: Path, port: int = 0) -> None:
        self._process = subprocess.Popen([sys.executable, '-c', SERVER, str(port), str(log)], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class RouterHarness:
    """Routers with one service, `web`, in a loop of a thread of its own."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / 'requests'
        self.log.touch()
        self.loop = Loop()
        self.helpers = Helpers(self.loop)
        self.registry = Registry()
        self.failures: list[tuple[str, str]] = []
        self.servers: list[Server] = []
        self._requests: list[threading.Thread] = []
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()
        self.routers = self.do(Routers, self.loop, self.registry, self.helpers.run, '127.0.0.1',
                               lambda name, reason: self.failures.append((name, reason)))
        self.port = 0

    def do(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function in the loop, and return what it returns."""
        result: Future[T] = Future()

        def call() -> None:
            try:
                result.set_result(function(*args, **kwargs))
            except BaseException as error:
                result.set_exception(error)

        self.loop.call_soon(call)
        return result.result(TIMEOUT)

    def open(self, *, retry_unsafe: bool = False) -> None:
        self.port = self.do(self.routers.open, 'web', retry_unsafe=retry_unsafe).port

    def start(self, uid: str, host: str = '127.0.0.1', port: int = 0) -> Server:
        """Start an instance, and register it."""
        server = Server(self.log, port)
        self.servers.append(server)
        self.do(self.registry.put, ServiceInstance(uid, 'web', host, server.port))
        return server

    def request(self, path: str, method: str = 'GET', body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and content of the answer to a request."""
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=TIMEOUT)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def later(self, *args: Any, **kwargs: Any) -> Future[tuple[int, bytes]]:
        """Send a request in a thread of its own."""
        result: Future[tuple[int, bytes]] = Future()

        def call() -> None:
            try:
                result.set_result(self.request(*args, **kwargs))
            except BaseException as error:
                result.set_exception(error)

        thread = threading.Thread(target=call)
        self._requests.append(thread)
        thread.start()
        return result

    def router(self) -> Router:
        return self.routers._routers['web']

    def kill_router(self) -> None:
        pid = self.do(lambda: self.router().pid)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def requests(self) -> list[str]:
        return self.log.read_text().splitlines()

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, f'waited in vain until {what}'
            time.sleep(0.01)

    def close(self) -> None:
        for server in self.servers:
            server.kill()
        self.do(self.routers.close)
        for request in self._requests:   # with its instance and the router gone, each has an answer or an error
            request.join(TIMEOUT)
        self.helpers.close(TIMEOUT)
        self.loop.stop()
        self._thread.join()
        self.loop.close()

"""Probes: single looks at an instance of a service, which tell whether it is ready, or still alive.

A look blocks, at most for the time-out of the probe and for the file system. It runs in a thread of its own.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rp_api.description.service import FILE, STDOUT, parse_pattern
from rp_api.system.readable import open_regular

_MAX_OUTPUT_BYTES = 1 << 20
"""Bytes of an output that one look reads."""

_MAX_LINE_BYTES = 65536


class Seen(NamedTuple):
    """The result of a look."""

    good: bool
    text: str
    """The information that a pattern has matched, or the reason why the result is not good."""


class Target(NamedTuple):
    """The place of an instance: its node, its port, its directory, and the files with its output."""

    host: str
    port: int
    sandbox: str
    stdout: str
    stderr: str


Look = Callable[[], Seen]


def look_of(probe: Mapping[str, Any], target: Target) -> Look:
    """Return the look of a complete probe (see `rp_api.description.service.probe_of`)."""
    if 'http' in probe:
        return lambda: _http(target, probe['http'], probe['status'], probe['timeout'])
    if 'port' in probe:
        return lambda: _port(target, probe['timeout'])
    if 'file' in probe:
        return lambda: _file(os.path.join(target.sandbox, probe['file']))
    if 'pattern' in probe:
        pattern = parse_pattern(probe['pattern'], 'pattern')
        return Lines(pattern_path(probe['pattern'], target), pattern.find).look
    if 'signal' in probe:
        return lambda: Seen(False, 'it has not called radical-pilot-service-signal')
    return lambda: Seen(True, '')


def can_repeat(probe: Mapping[str, Any]) -> bool:
    """Return whether a probe can tell that a service which was ready no longer works."""
    return 'http' in probe or 'port' in probe


def signs(probe: Mapping[str, Any], target: Target) -> list[str]:
    """Return the paths of the files that an earlier run has left, and that a probe would take for those of the next."""
    if 'file' in probe:
        return [os.path.join(target.sandbox, probe['file'])]
    return [pattern_path(probe['pattern'], target)] if 'pattern' in probe else []


def put_aside(paths: list[str]) -> None:
    """Rename files that exist to `<path>.previous`."""
    for path in paths:
        if os.path.lexists(path):
            os.replace(path, f'{path}.previous')


def pattern_path(text: str, target: Target) -> str:
    """Return the path of the file in which a pattern is looked for."""
    pattern = parse_pattern(text, 'pattern')
    if pattern.source == FILE:
        return os.path.join(target.sandbox, pattern.path)
    return target.stdout if pattern.source == STDOUT else target.stderr


class Lines:
    """A look that searches the lines which a file has gained since the look before.

    The last line may be incomplete: it is searched when it has not grown between two looks.
    """

    def __init__(self, path: str, find: Callable[[str], str | None]) -> None:
        self._path = path
        self._find = find
        self._offset = 0
        self._rest = b''

    def look(self) -> Seen:
        """Return the information of the first line that has some."""
        grown = self._read()
        lines = (self._rest + grown).split(b'\n')
        self._rest = lines.pop()[-_MAX_LINE_BYTES:]
        if not grown and self._rest:
            lines.append(self._rest)
        for line in lines:
            found = self._find(line.decode(errors='replace').rstrip('\r'))
            if found is not None:
                return Seen(True, found)
        return Seen(False, f'no line of {self._path} matches')

    def _read(self) -> bytes:
        try:
            with open_regular(self._path) as file:
                if os.fstat(file.fileno()).st_size < self._offset:   # it was written anew
                    self._offset, self._rest = 0, b''
                file.seek(self._offset)
                grown = file.read(_MAX_OUTPUT_BYTES)
        except OSError:   # not there yet
            return b''
        self._offset += len(grown)
        return grown


def _file(path: str) -> Seen:
    return Seen(True, '') if os.path.exists(path) else Seen(False, f'there is no file {path}')


def _port(target: Target, timeout: float) -> Seen:
    try:
        _connect(target, timeout).close()
    except OSError as error:
        return Seen(False, f'port {target.port} of {target.host}: {_why(error)}')
    return Seen(True, '')


def _connect(target: Target, timeout: float) -> socket.socket:
    connection = socket.create_connection((target.host, target.port), timeout)
    if connection.getsockname() == connection.getpeername():   # no server listens, and the kernel has chosen this port
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    return connection


def _http(target: Target, path: str, status: int, timeout: float) -> Seen:
    """Request a path; the deadline holds for the whole look, also if the server sends byte by byte."""
    what = f'GET http://{target.host}:{target.port}{path}'
    deadline = time.monotonic() + timeout
    try:
        with _connect(target, timeout) as connection:
            connection.sendall(f'GET {path} HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nAccept: */*\r\n'
                               'User-Agent: radical-pilot\r\nConnection: close\r\n\r\n'.encode())
            answer = b''
            while b'\n' not in answer and len(answer) < _MAX_LINE_BYTES:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                part = connection.recv(4096)
                if not part:
                    break
                answer += part
    except OSError as error:
        return Seen(False, f'{what}: {_why(error)}')
    line = answer.partition(b'\n')[0].decode(errors='replace').strip()
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith('HTTP/'):
        return Seen(False, f'{what}: the answer is not HTTP: {line:.80}')
    return Seen(words[1] == str(status), f'{what}: the status is {words[1]}, not {status}')


def _why(error: OSError) -> str:
    return 'no answer in time' if isinstance(error, TimeoutError) else (error.strerror or str(error))

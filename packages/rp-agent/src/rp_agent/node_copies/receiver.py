"""The copies of one node: starts the unpackers, feeds them with the pieces of archives, and removes the copies."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from rp_agent.node_copies import place
from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.host import python_program

Item = dict[str, Any]

_READ = 1 << 16

_KILLED = 1.0
"""Seconds to wait for the end of a killed unpacker."""


class Receiver:
    """The copies of a node; `say(item)` sends the events of the unpackers (see `unpacker`) to the distributor.

    Takes items with the keys `copy`, the name of a copy, and `what`: `unpack` (with the `size` of the archive), `piece`
    (with `offset` and `data`), `give_up`. Pieces may be repeated, and may be missing until they are repeated.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, say: Callable[[Item], object]) -> None:
        self._directory = place.directory(config, os.environ)
        self._loop = loop
        self._say = say
        self._lock: int | None = None
        self._unpackers: dict[str, _Unpacker] = {}

    def receive(self, item: Item) -> None:
        """Handle an item of the distributor."""
        name, what = item['copy'], item['what']
        unpacker = self._unpackers.get(name)
        if what == 'unpack':
            self._start(name, item['size'])
        elif unpacker is not None and what == 'piece':
            unpacker.feed(item['offset'], item['data'])
        elif unpacker is not None:
            self._unpackers.pop(name).close()

    def close(self) -> None:
        """End the unpackers, and remove the copies from the node unless another process on it uses them."""
        for unpacker in self._unpackers.values():
            unpacker.close()
        self._unpackers.clear()
        if self._lock is not None:
            place.release(self._directory, self._lock)
            self._lock = None

    def _start(self, name: str, size: int) -> None:
        try:
            if self._lock is None:
                self._lock = place.hold(self._directory)
                place.remove_abandoned(self._directory)
            self._unpackers[name] = _Unpacker(self._loop, self._directory, name, size,
                                                partial(self._tell, name))
        except OSError as error:
            self._tell(name, f'failed {self._directory}: {error.strerror or error}')

    def _tell(self, name: str, line: str) -> None:
        event, _, value = line.partition(' ')
        self._say({'copy': name, 'event': event, 'value': value})
        if event in ('ready', 'failed') and name in self._unpackers:
            self._unpackers.pop(name).close()


class _Unpacker:
    """An unpacker, and the data that it has not read yet: no more than the distributor has in flight to a node."""

    def __init__(self, loop: Loop, directory: str, name: str, size: int, event: Callable[[str], object]) -> None:
        self._loop = loop
        self._tell = event
        self._missing = size
        self._position = 0
        self._unread: deque[bytes] = deque()
        self._line = b''
        self._process = subprocess.Popen([*python_program('rp_agent.node_copies.unpacker'), directory, name,
                                          str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        for file in (self._stdin, self._stdout):
            os.set_blocking(file.fileno(), False)
        loop.add_fd(self._stdout.fileno(), self._read)

    def feed(self, offset: int, data: bytes) -> None:
        """Pass on the part of a piece that was not received before."""
        fresh = data[self._position - offset:] if offset <= self._position else b''   # else a piece before it was lost
        if fresh:
            self._position += len(fresh)
            self._unread.append(fresh)
            self._write()

    def close(self) -> None:
        """Kill the process if it runs, and release all resources."""
        self._loop.remove_fd(self._stdout.fileno())
        for file in (self._stdin, self._stdout):
            file.close()
        if self._process.poll() is not None:
            return
        self._process.kill()
        handle = ProcessHandle.of_child(self._process.pid)
        if handle.wait(_KILLED):   # else it waits for a dead disk, and the loop does not
            self._process.wait()
        handle.close()

    def _write(self) -> None:
        """Write what the process can take; it reports progress when it can take more."""
        with suppress(BlockingIOError, BrokenPipeError):   # the end of its output tells that it has ended
            while self._unread:
                written = os.write(self._stdin.fileno(), self._unread[0])
                self._missing -= written
                rest = self._unread.popleft()[written:]
                if rest:
                    self._unread.appendleft(rest)
        if not self._missing and not self._stdin.closed:
            self._stdin.close()

    def _read(self) -> None:
        data = os.read(self._stdout.fileno(), _READ)
        *lines, self._line = (self._line + data).split(b'\n')
        if not data:
            # closed output: it has ended, or does so at once
            lines = [f'failed the unpacker has ended with exit code {self._process.wait()}'.encode()]
        elif self._unread:
            self._write()
        for line in _without_repeats(lines):
            self._tell(os.fsdecode(line))

def _without_repeats(lines: list[bytes]) -> list[bytes]:
    """Return the lines without all but the last one of those on progress that follow each other."""
    return [line for line, following in zip(lines, [*lines[1:], b''], strict=True)
            if not (line.startswith(b'taken') and following.startswith(b'taken'))]

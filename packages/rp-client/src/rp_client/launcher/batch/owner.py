"""The supervisor of the launcher's process: starts it on first use, sends requests, watches it, and restarts it.

The caller passes the jobs of a process on to its successor (`on_restart`). All methods except `reap`, and all
callbacks, are called in the thread of the event loop.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rp_api.backoff import Restarts
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.system.host import python_program, with_home
from rp_client.launcher.batch.frames import Frames, pack

PING_INTERVAL_S = 5.0
"""Seconds between pings."""

SILENCE_TIMEOUT_S = 30.0
"""Seconds without an answer after which the process counts as hung and is killed."""

MAX_RESTARTS = 3
"""Consecutive restarts within `STEADY_S` seconds of a start at most."""

STEADY_S = 60.0

_SECRET = 'RADICAL_PILOT_DBURL'


class BatchProcess:
    """The launcher's process: sends requests, and calls `on_event(event)` for its events.

    `on_restart()` is called when a new process replaces one that has died, `on_given_up(reason)` when none does.
    """

    def __init__(self, loop: Loop, log: Path, on_event: Callable[[dict[str, Any]], None],
                 on_restart: Callable[[], None], on_given_up: Callable[[str], None]) -> None:
        self._loop = loop
        self._log = log
        self._on_event = on_event
        self._on_restart = on_restart
        self._on_given_up = on_given_up
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._frames = Frames()
        self._outgoing = bytearray()
        self._timer: Timer | None = None
        self._writing: Timer | None = None
        self._heard = self._started = 0.0
        self._restarts = Restarts(MAX_RESTARTS, STEADY_S)

    @property
    def pid(self) -> int | None:
        """The process id; None if it does not run."""
        return self._process.pid if self._process else None

    def send(self, request: dict[str, Any]) -> None:
        """Send a request, starting the process if needed; raise `PlatformError` if it cannot be started."""
        if self._channel is None:
            self._start()
        self._outgoing += pack(request)
        self._flush()

    def let_go(self) -> None:
        """End the process; pending requests may be dropped."""
        self._ending = self._forget() or self._ending

    def reap(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the end of a released process, then kill it; callable in any thread."""
        process, self._ending = self._ending, None
        if process is not None:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # the import of radical.saga fails without HOME
        environ = {name: value for name, value in with_home(os.environ).items() if name != _SECRET}
        try:
            with open(self._log, 'ab') as log:
                self._process = subprocess.Popen(
                    python_program('rp_client.launcher.batch.process'), stdin=theirs.fileno(), stdout=log, stderr=log,
                    env=environ, start_new_session=True)
        except OSError as error:
            ours.close()
            raise PlatformError(f"the launcher's process cannot be started: {error}") from None
        finally:
            theirs.close()
        ours.setblocking(False)
        self._channel = ours
        self._frames = Frames()
        self._heard = self._started = time.monotonic()
        self._loop.add_fd(ours.fileno(), self._receive)
        self._timer = self._loop.call_later(PING_INTERVAL_S, self._ping)

    def _forget(self) -> subprocess.Popen[bytes] | None:
        """Close the channel, upon which the process ends unless it hangs."""
        for timer in (self._timer, self._writing):
            if timer is not None:
                timer.cancel()
        self._writing = None
        self._outgoing.clear()
        if self._channel is not None:
            with suppress(ValueError):   # the loop is closed
                self._loop.remove_fd(self._channel.fileno())
            self._channel.close()
            self._channel = None
        process, self._process = self._process, None
        return process

    def _flush(self) -> None:
        """Send as much as the socket accepts, and the rest later."""
        self._writing = None
        if self._channel is None:
            return
        try:
            while self._outgoing:
                del self._outgoing[:self._channel.send(self._outgoing)]
        except BlockingIOError:
            self._writing = self._loop.call_later(0.01, self._flush)
        except OSError:   # the process has died, which `_receive` finds
            return

    def _receive(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b''
        if not data:
            self._died()
            return
        self._heard = time.monotonic()
        for event in self._frames.feed(data):
            if event['event'] != 'pong':
                self._on_event(event)

    def _ping(self) -> None:
        assert self._process is not None
        if time.monotonic() - self._heard > SILENCE_TIMEOUT_S:
            self._process.kill()   # closes its socket
        else:
            self.send({'op': 'ping', 'number': 0})
        self._timer = self._loop.call_later(PING_INTERVAL_S, self._ping)

    def _died(self) -> None:
        restarts = self._restarts.next(time.monotonic() - self._started) is not None
        process = self._forget()
        code = None
        if process is not None:
            process.kill()
            code = process.wait()
        reason = f"the launcher's process ended with exit code {code} (see {self._log})"
        if not restarts:
            self._on_given_up(f'{reason}, {self._restarts.count + 1} times now')
            return
        try:
            self._start()
        except PlatformError as error:
            self._on_given_up(str(error))
        else:
            self._on_restart()

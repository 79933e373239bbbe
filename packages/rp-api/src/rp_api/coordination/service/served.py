"""A session of a stand-alone hub: start, takeover, supervision and restart of the process that serves it.

The hub of a session is a process with its own keys, port and database, which may outlive the service: a process that an
earlier service started is found through the record in its database (`presence.py`).
"""

from __future__ import annotations

import json
import logging
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rp_api.backoff import Restarts
from rp_api.coordination import sessions
from rp_api.coordination.connections import hub_file
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.presence import Where
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import private
from rp_api.system.host import python_program
from rp_api.system.processes import start_time

PROGRAM = 'rp_api.coordination.hub.main'

STARTING = 'starting'
SERVING = 'serving'
FAILED = 'failed'
ENDED = 'ended'

START_TIMEOUT_S = 30.0
"""Seconds that a hub may take to start."""

MAX_RESTARTS = 5
"""Maximum number of consecutive restarts of a hub."""

STEADY_S = 60.0
"""Seconds of operation after which the count of restarts begins again."""

BACKOFF_S = 0.05, 0.4
"""The first and the longest delay before a restart."""

_log = logging.getLogger('radical.pilot.service')

Answer = Callable[[str], object]
"""Called with the reason why a session is not served, or an empty text if it is."""


class ServedSession:
    """The hub process of one session, in an event loop. `on_end` is called at a regular end of the session's hub."""

    def __init__(self, loop: Loop, uid: str, directory: Path, on_end: Callable[[ServedSession], object]) -> None:
        self.uid = uid
        self.directory = directory
        self.state = ENDED
        self.reason = ''
        self.pid = 0
        self.config: dict[str, Any] = {}
        self.watchers: list[Answer] = []
        self._loop = loop
        self._on_end = on_end
        self._waiting: list[Answer] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._handle: ProcessHandle | None = None
        self._started = 0.0
        self._fresh = False
        self._has_served = False
        self._restarts = Restarts(MAX_RESTARTS, STEADY_S, *BACKOFF_S)
        self._deadline: Timer | None = None

    @property
    def endpoint(self) -> str:
        """The address at which the hub listens."""
        return str(self.config['endpoints'][0])

    def summary(self) -> dict[str, Any]:
        """Return the session's status as plain data without secrets."""
        return {'uid': self.uid, 'state': self.state, 'reason': self.reason, 'pid': self.pid,
                'endpoint': self.endpoint if self.config else ''}

    def begin(self, endpoint: str, orphan_timeout: float, lease: float) -> None:
        """Serve a new session at that endpoint, with new keys."""
        settings = Settings(lease=lease, orphan_timeout=orphan_timeout)
        self.config = hub_file.new_config(self.uid, self.directory, settings) | {
            'endpoints': [endpoint], 'runtime_dir': ''}
        self._fresh = True
        self._start()

    def resume(self) -> None:
        """Serve an existing session: take over its running process, or start a new one."""
        try:
            self.config = self.config or hub_file.read_open(self.directory) or {}
            hub = sessions.summary(self.directory).hub
        except (OSError, sqlite3.Error) as error:
            raise CoordinationError(f'{self.uid} is not served, because its files cannot be read: {error}') from error
        if not self.config:
            raise CoordinationError(f'{self.uid} is not open')
        if hub is not None and self._adopt(hub):
            self._serving()
        else:
            self._start()

    def when_serving(self, answer: Answer) -> None:
        """Call `answer` as soon as it is known whether the session is served."""
        if self.state == STARTING:
            self._waiting.append(answer)
        else:
            answer('' if self.state == SERVING else self.reason)

    def kill(self) -> None:
        """End the process without ending the session, which can be resumed."""
        if self._handle is not None:
            self._handle.send_signal(signal.SIGTERM)
        if self._process is not None:
            self._process.wait()
        self._forget_process()
        self.state = ENDED

    def release(self) -> None:
        """Leave the process running without this service."""
        self._forget_process()

    # the process

    def _start(self) -> None:
        self.state = STARTING
        self._started = time.monotonic()
        private.make_directory(self.directory)
        with open(self.directory / 'hub.log', 'ab') as log:
            self._process = subprocess.Popen(python_program(PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                             stderr=log, start_new_session=True)
        self.pid = self._process.pid
        assert self._process.stdin is not None
        how = {'fresh': self._fresh, 'patient': self._has_served}
        try:
            self._process.stdin.write(json.dumps(self.config | how).encode() + b'\n')
            self._process.stdin.close()
        except BrokenPipeError:   # it has died
            _log.debug('the hub of %s does not listen', self.uid)
        self._watch(self.pid, start_time(self.pid))
        assert self._process.stdout is not None
        self._loop.add_fd(self._process.stdout.fileno(), self._answered)
        self._deadline = self._loop.call_later(START_TIMEOUT_S, self._too_slow)

    def _answered(self) -> None:
        """Read the result of the start, which the process writes as one line."""
        assert self._process is not None
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline() or b'{}')
        self._close_pipe()
        if not answer.get('ok'):
            self.reason = answer.get('error') or f'it died when it started, see {self.directory / "hub.log"}'
            return   # the end of the process follows
        self.config['endpoints'] = answer['endpoints']
        self._fresh = False
        hub_file.save(self.directory, self.config)
        self._serving()

    def _serving(self) -> None:
        self.state, self.reason, self._has_served = SERVING, '', True
        _log.info('%s is served at %s by process %d', self.uid, self.endpoint, self.pid)
        self._tell('')

    def _too_slow(self) -> None:
        self.reason = f'it did not start within {START_TIMEOUT_S:g} s'
        if self._process is not None:
            self._process.kill()

    def _adopt(self, hub: Where) -> bool:
        """Watch a process that an earlier service started; return False if it has ended."""
        if not hub.local or hub.started is None or not self._watch(hub.pid, hub.started):
            return False
        self.pid = hub.pid
        return True

    def _watch(self, pid: int, started: int | None) -> bool:
        self._handle = ProcessHandle.open(pid, started)
        if self._handle is None:
            return False
        self._handle.watch(self._loop, self._died)
        return True

    def _died(self) -> None:
        """Handle the end of the process: a regular end, according to its database, or a reason to restart it."""
        if self.state == STARTING and self._process is not None and self._process.stdout is not None:
            self._answered()   # its last message
        self._forget_process()
        code = self._process.wait() if self._process is not None else None
        self._process = None
        if self._is_over():
            self.state, self.reason = ENDED, 'the session was closed, or has nothing left to do'
            self._tell(self.reason)
            self._tell_watchers()
            self._on_end(self)
            return
        delay = self._restarts.next(time.monotonic() - self._started)
        reason = self.reason or f'its hub died (exit code {code})'
        _log.warning('%s: %s', self.uid, reason)
        if delay is None or self._fresh:
            self._give_up(reason)
        else:
            self.state = STARTING
            self._loop.call_later(delay, self._start_again)

    def _start_again(self) -> None:
        if self.state == STARTING:
            self._start()

    def _give_up(self, reason: str) -> None:
        self.state, self.reason = FAILED, reason
        self._tell(reason)
        self._tell_watchers()

    def _is_over(self) -> bool:
        try:
            state = sessions.summary(self.directory).state
        except (FileNotFoundError, sqlite3.Error):   # it died before it created the database
            return False
        if state == sessions.CLOSED:
            hub_file.remove(self.directory)
        return state in (sessions.CLOSED, sessions.RESTING)

    def _tell(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer(reason)

    def _tell_watchers(self) -> None:
        watchers, self.watchers = self.watchers, []
        for watcher in watchers:
            watcher(self.reason)

    def _forget_process(self) -> None:
        self._close_pipe()
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _close_pipe(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._process is not None and self._process.stdout is not None:
            self._loop.remove_fd(self._process.stdout.fileno())
            self._process.stdout.close()
            self._process.stdout = None

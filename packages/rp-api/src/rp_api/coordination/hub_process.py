"""The hub of a session in a process of its own, from the client's side: start, restart, supervision and end."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rp_api.backoff import Restarts
from rp_api.coordination.connections import hub_file
from rp_api.coordination.connections.embedded import HubClientConnection, agent_access
from rp_api.coordination.coordinator import Coordinator, Settings
from rp_api.coordination.hub.store import claim, release
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import private
from rp_api.system.host import python_program
from rp_api.system.processes import exit_code, reap_left, start_time
from rp_api.system.processes import leave as leave_process

MAX_RESTARTS = 5
"""Number of restarts of a hub before the session fails."""

STEADY_S = 60.0
"""Seconds of operation after which the count of restarts begins again."""

CHECK_INTERVAL_S = 1.0
"""Seconds between checks of an existing hub until it reports its process id."""

KILL_TIMEOUT_S = 5.0
"""Seconds to wait for the end of a killed process."""

_log = logging.getLogger('radical.pilot.engine')


class HubProcess(Coordinator):
    """The hub of one session. A session that was not closed keeps its hub, its keys and its endpoint.

    `address` and `agent_address` are for the client and for agents: the same hub, different keys.
    """

    def __init__(self, session: str, directory: Path, settings: Settings) -> None:
        self._session = session
        self._directory = directory
        self._log_file = directory / 'hub.log'
        known = hub_file.read_open(directory)
        if known is not None and known['session'] != session:
            raise CoordinationError(f'{directory} has the files of session {known["session"]}, which was not closed: '
                                    f'attach that one, or open {session} in another directory')
        self.attached = known is not None
        self._open = self.attached
        self._on_open: Callable[[], object] | None = None
        self._config = known or hub_file.new_config(session, directory, settings)
        self._process: subprocess.Popen[str] | None = None
        self._handle: ProcessHandle | None = None
        self._pid = 0
        self._loop: Loop | None = None
        self._connection: HubClientConnection | None = None
        self._timer: Timer | None = None
        self._restarts = Restarts(MAX_RESTARTS, STEADY_S)
        self._started = 0.0
        self._ending = False
        self._read_config()

    def _read_config(self) -> None:
        self.address = hub_file.address(self._config, 'client')
        self.agent_address = hub_file.address(self._config, 'agent')
        self.agent_access = agent_access(self.agent_address)
        self.endpoint = self.address.address

    @property
    def pid(self) -> int:
        """The process id; 0 until it is known."""
        return self._pid

    def start(self) -> None:
        reap_left()
        if self.attached and self._is_served():
            _check_socket(self.endpoint)
        else:
            try:
                self._start_process(fresh=self._process is None and not self.attached)
            except BaseException:
                self.stop(KILL_TIMEOUT_S)
                raise

    def connect(self, loop: Loop) -> HubClientConnection:
        self._connection = HubClientConnection(loop, self.address, self._session, takes_over=self.attached,
                                               met=self._met)
        return self._connection

    @property
    def reachable(self) -> bool:
        return len(self._config['endpoints']) > 1

    def listen(self, address: str, done: Callable[[str], object]) -> None:
        assert self._connection is not None
        self._connection.listen(address, lambda endpoints, error: self._listening(endpoints, error, done))

    def _listening(self, endpoints: list[str], error: str, done: Callable[[str], object]) -> None:
        if endpoints:
            self._config['endpoints'] = endpoints
            self._read_config()
            if self._open:   # otherwise it is saved when the session can be taken over
                hub_file.save(self._directory, self._config)
        done(error)

    def watch(self, loop: Loop) -> None:
        self._loop = loop
        if self._handle is not None:
            self._handle.watch(loop, self._died)
        else:
            self._timer = loop.call_later(CHECK_INTERVAL_S, self._look)

    def ending(self) -> None:
        self._ending = True

    def when_open(self, callback: Callable[[], object]) -> None:
        if self._open:
            callback()
        else:
            self._on_open = callback

    def stop(self, patience: float, *, leave: bool = False) -> None:
        if leave:
            self._forget()
            if self._process is not None:
                leave_process(self._process)
            return
        in_order = self._await_end(patience)
        if not in_order and self._handle is not None:
            self._handle.send_signal(signal.SIGKILL)
            self._await_end(KILL_TIMEOUT_S)
        self._forget()
        reap_left()   # the hub may have been our child in an earlier session
        code = self.ended()
        if in_order and (hub_file.is_closed(self._directory) if code is None else code == 0):
            hub_file.remove(self._directory)
        shutil.rmtree(self._config['runtime_dir'], ignore_errors=True)

    def ended(self) -> int | None:
        """Return the exit code of a child that has ended, and reap it; None if it is unknown."""
        return None if self._process is None else exit_code(self._process, waits=False)

    def last_words(self, lines: int = 5) -> str:
        """Return the last lines of the hub's log."""
        try:
            return '\n'.join(self._log_file.read_text(encoding='utf-8', errors='replace').splitlines()[-lines:])
        except OSError:
            return ''

    # starting

    def _is_served(self) -> bool:
        """Return whether a hub serves this session."""
        try:
            release(claim(str(self._directory)))
        except CoordinationError:
            return True
        return False

    def _start_process(self, *, fresh: bool, patient: bool = False) -> None:
        """Start the hub, and return when it serves; raise `CoordinationError` with the reason if it does not."""
        with open(self._log_file, 'a', encoding='utf-8') as log:
            try:
                self._process = subprocess.Popen(
                    python_program('rp_api.coordination.hub.main'), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=log, text=True, start_new_session=True)
            except OSError as error:
                raise CoordinationError(f'the hub of the session did not start: {error.strerror}') from error
        self._started = time.monotonic()
        try:
            self._watch_process(self._process.pid, start_time(self._process.pid))
        except OSError as error:   # its end would stay unnoticed
            self._process.kill()
            self._process.wait()
            raise CoordinationError(f'the hub of the session cannot be watched: {error.strerror}') from error
        answer = self._tell(self._process, self._config | {
            'fresh': fresh, 'patient': patient, 'starter': (os.getpid(), start_time(os.getpid()))})
        if not answer.get('ok'):
            if not self._await_end(KILL_TIMEOUT_S):
                self._process.kill()
            self._process.wait()
            reason = answer.get('error') or self.last_words()
            raise CoordinationError(f'the hub of the session did not start: {reason} (see {self._log_file})')
        self._pid = self._process.pid
        self._config['endpoints'] = answer['endpoints']
        self._read_config()
        if not fresh:
            hub_file.save(self._directory, self._config)

    @staticmethod
    def _tell(process: subprocess.Popen[str], config: dict[str, Any]) -> dict[str, Any]:
        """Send the configuration to a hub, and return its answer, which is empty if it died."""
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):   # it has died
            process.stdin.write(json.dumps(config) + '\n')
            process.stdin.close()
        with process.stdout:
            answer: dict[str, Any] = json.loads(process.stdout.readline() or '{}')
        return answer

    # watching

    def _watch_process(self, pid: int, started: int | None) -> bool:
        """Watch a process; return False if it has ended."""
        self._forget()
        self._handle = ProcessHandle.open(pid, started)
        if self._handle is None:
            return False
        if self._loop is not None:
            self._handle.watch(self._loop, self._died)
        return True

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _met(self, hub: dict[str, Any]) -> None:
        """Handle the hub's welcome: from now on, other clients can take the session over."""
        if not self._open:
            hub_file.save(self._directory, self._config)
            self._open = True
            if self._on_open is not None:
                self._on_open()
        if self._process is None and self._loop is not None:
            self._pid = hub['pid']
            try:
                if not self._watch_process(self._pid, hub.get('started')):
                    self._died()
            except OSError:   # out of file descriptors
                self._look()

    def _look(self) -> None:
        """Check an existing hub that has not answered yet."""
        assert self._loop is not None
        if self._is_served():
            self._timer = self._loop.call_later(CHECK_INTERVAL_S, self._look)
        else:
            self._died()

    def _died(self) -> None:
        """Restart the hub, which recovers from its file; peers reconnect."""
        if self._ending and hub_file.is_closed(self._directory):   # a regular end
            return
        self._forget()
        code = self.ended()
        reason = 'the hub of the session died' + ('' if code is None else f' (exit code {code})')
        ran = time.monotonic() - self._started
        while self._restarts.next(ran) is not None:
            ran = 0.0   # what does not start has not run
            _log.warning('%s, restarting it', reason)
            try:
                self._start_process(fresh=False, patient=True)
            except (CoordinationError, OSError) as error:
                reason = f'the hub of the session died: {error}'
            else:
                return
        raise CoordinationError(f'{reason}, {self._restarts.count + 1} times; end of its log: {self.last_words()}')

    def _await_end(self, patience: float) -> bool:
        """Wait at most `patience` seconds, and return whether the process has ended; False if it is unknown."""
        return self._handle is not None and self._handle.wait(patience)


def _check_socket(endpoint: str) -> None:
    """Raise `OwnershipError` if other users could have created the socket; a missing one is detected later."""
    if endpoint.startswith('ipc://'):
        with contextlib.suppress(FileNotFoundError):
            private.check(os.path.dirname(endpoint.removeprefix('ipc://')), readable=False)

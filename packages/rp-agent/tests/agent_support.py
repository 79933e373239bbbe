"""Real agents in processes of their own, a real hub, and an application that waits for events with a deadline."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination.contract import BULK, ClientHandler, Update
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.hub_process import HubProcess
from rp_api.loop.event_loop import Loop
from rp_api.system import private
from rp_api.system.host import python_program
from rp_api.system.processes import pidfd_open

TIMEOUT = 30.0
PILOT = 'pilot.0000'

T = TypeVar('T')


class Application(ClientHandler):
    """The client's end: a hub, whose death nobody else notices, and a connection to it in a thread."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.hub = HubProcess('session', directory, Settings(**settings))
        self.hub.start()
        self.loop = Loop()
        self.tasks: dict[str, Update] = {}
        """The last update of each task."""
        self.seen: list[str] = []
        """Uid and state of each update of a task, in the order in which they came."""
        self.pilots: list[Update] = []
        self._changed = threading.Condition()
        self._connection = self.hub.connect(self.loop)
        self._connection.open(self)
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def do(self, function: Callable[..., T], *args: Any) -> T:
        """The result of a call in the loop's thread."""
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(function(*args))
            except Exception as error:
                future.set_exception(error)

        self.loop.call_soon(call)
        return future.result(TIMEOUT)

    def submit(self, uids: Iterable[str], **description: Any) -> None:
        """Send tasks for the pilot."""
        tasks = [(uid, {'executable': '/bin/true', **description}) for uid in uids]
        for first in range(0, len(tasks), BULK):
            self.do(self._connection.insert_batch, PILOT, Batch.of(tasks[first:first + BULK]))

    def command(self, **command: Any) -> None:
        """Send a command to the pilot."""
        self.do(self._connection.command, PILOT, command)

    def until(self, reached: Callable[[], object], what: str = '') -> None:
        """Wait until this is so; it is looked at whenever something has come."""
        with self._changed:
            if not self._changed.wait_for(reached, TIMEOUT):
                raise AssertionError(f'waited in vain for {what}; {len(self.tasks)} tasks, the last ones '
                                     f'{list(self.tasks.values())[-3:]}, pilots {self.pilots}')

    def until_active(self) -> None:
        self.until(lambda: self.pilots and self.pilots[-1].state == states.PMGR_ACTIVE, 'the pilot')

    def until_state(self, uids: Iterable[str], state: str) -> None:
        """Wait until this is the last that is known of these tasks."""
        uids = list(uids)
        self.until(lambda: all(uid in self.tasks and self.tasks[uid].state == state for uid in uids), state)

    def until_left(self, uids: Iterable[str]) -> None:
        """Wait until these tasks have left the agent."""
        uids = list(uids)
        left = states.TASK.value(states.TMGR_STAGING_OUTPUT_PENDING)
        self.until(lambda: all(uid in self.tasks and states.TASK.value(self.tasks[uid].state) >= left for uid in uids),
                   'the results')

    def kill_hub(self) -> None:
        """The hub dies, and stays dead."""
        os.kill(self.hub.pid, signal.SIGKILL)
        self.wait_for_hub()

    def wait_for_hub(self) -> None:
        """Wait until the hub has ended."""
        wait_for_process(self.hub.pid)
        assert self.hub.ended() is not None

    def close(self) -> None:
        """End all of it, whatever state it is in."""
        self.do(self._connection.close)
        self.loop.stop()
        self._thread.join(TIMEOUT)
        self.loop.close()
        self.hub.stop(0)
        assert not self._thread.is_alive()

    def on_tasks(self, updates: list[Update]) -> None:
        with self._changed:
            self.tasks.update((update.uid, update) for update in updates)
            self.seen += [f'{update.uid} {update.state}' for update in updates]
            self._changed.notify_all()

    def on_pilots(self, updates: list[Update]) -> None:
        with self._changed:
            self.pilots += updates
            self._changed.notify_all()


class RealAgent:
    """An agent as a launcher starts it; `updates` is where it leaves what it cannot deliver."""

    def __init__(self, access: dict[str, Any], sandbox: Path, setup: str, **values: Any) -> None:
        self.sandbox = sandbox
        self.updates = sandbox / 'agent_0.updates'
        self._config = sandbox / 'agent_0.cfg'
        path = str(sandbox)
        config = {
            'session': f'session.{os.getpid()}.{path}', 'pilot': PILOT, 'resource': 'local.exact', 'nodes': 0,
            'cores': 2, 'gpus': 0, 'runtime': 10, 'cleanup': False, 'output_staging': [], 'agent': {},
            'coordination': access, 'registry_address': access['endpoint'], 'orphan_timeout': 60.0, 'profile': False,
            'client_sandbox': path, 'resource_sandbox': path, 'session_sandbox': path, 'pilot_sandbox': path,
            'platform': {'agent_spawner': 'POPEN', 'agent_config': 'default', 'system_architecture': {}}} | values
        private.write_file(self._config, json.dumps(config).encode())
        program = python_program('rp_agent.cli')
        program[-1] = f'{setup}; {program[-1]}'
        with open(sandbox / 'agent_0.err', 'wb') as err:
            self.process = subprocess.Popen([*program, str(self._config)], stderr=err, start_new_session=True)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait until the agent has ended; its exit code."""
        try:
            return self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f'the agent does not end: {self.log()}') from None

    def log(self) -> str:
        """What it has said."""
        return (self.sandbox / 'agent_0.err').read_text() + (self.sandbox / 'agent_0.log').read_text()

    def until_logged(self, text: str) -> None:
        """Wait until it has said this."""
        wait_until(lambda: text in self.log(), text)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def real(directory: Path, *, setup: str = 'pass', agent: dict[str, Any] | None = None,
         **settings: Any) -> Iterator[tuple[Application, RealAgent]]:
    """An application with an active pilot; `setup` are statements that the agent's process begins with.

    `agent` are values of its configuration, `settings` those of the hub.
    """
    (directory / 'session').mkdir()
    (directory / 'pilot').mkdir()
    application = Application(directory / 'session', **settings)
    try:
        application.do(application._connection.insert_pilots, {PILOT: {}})
        running = RealAgent(application.hub.agent_access, directory / 'pilot', setup, **agent or {})
        try:
            application.until_active()
            yield application, running
        finally:
            running.close()
    finally:
        application.close()


def wait_for_process(pid: int) -> None:
    """Wait until a process has ended."""
    pidfd = pidfd_open(pid)
    if pidfd is not None:
        try:
            assert select.select([pidfd], [], [], TIMEOUT)[0], f'process {pid} does not end'
        finally:
            os.close(pidfd)


def wait_until(reached: Callable[[], object], what: str) -> None:
    """Wait for something that nobody tells us about."""
    deadline = time.monotonic() + TIMEOUT
    while not reached():
        assert time.monotonic() < deadline, f'waited in vain for {what}'
        time.sleep(0.01)


def uids(count: int, first: int = 0) -> list[str]:
    """Uids of tasks in ascending order."""
    return [f'task.{number:06d}' for number in range(first, first + count)]

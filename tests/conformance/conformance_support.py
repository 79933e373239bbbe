"""Sessions on every backend for the conformance suite, with clients and agents in loops of their own.

A test gets a `Site`: a session that is coordinated by one backend. The servers that several tests of a module share are
started once; what a test kills is its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import mongo_servers
from mongo_servers import Server
from parties import TIMEOUT, Party

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination import connect, contract
from rp_api.coordination.contract import BULK, Connection, KnownPilot, KnownTask, NewTask, Page, Update
from rp_api.coordination.coordinator import Coordinator, Settings
from rp_api.coordination.hub_process import HubProcess
from rp_api.loop.event_loop import Loop

BACKENDS = ['hub', *mongo_servers.KINDS]
RESTARTABLE = [kind for kind in BACKENDS if kind != 'external']

class Client(Party, contract.ClientHandler):
    """A client that keeps all updates it gets."""

    def __init__(self, connect_to: Callable[[Loop], Connection], *, recover: bool) -> None:
        self.tasks: list[Update] = []
        self.pilots: list[Update] = []
        self.pages: list[Page] = []
        self._recover = recover
        super().__init__()
        self.do(self._connect, connect_to)

    def _connect(self, connect_to: Callable[[Loop], Connection]) -> None:
        self.attach(connect_to(self.loop))
        if self._recover:
            self.connection.recover(self._on_page)

    def on_tasks(self, updates: list[Update]) -> None:
        self.tasks += updates
        self.order += [update.uid for update in updates]
        self.note('tasks')

    def on_pilots(self, updates: list[Update]) -> None:
        self.pilots += updates
        self.order += [update.uid for update in updates]
        self.note('pilots')

    def _on_page(self, page: Page) -> None:
        assert not self.tasks + self.pilots, 'updates came before the end of the pages'
        self.pages.append(page)
        self.note('page')

    def recovered(self) -> None:
        """Wait for the last page."""
        self.until(lambda: self.pages and self.pages[-1].last)

    @property
    def known_tasks(self) -> dict[str, KnownTask]:
        return {task.uid: task for page in self.pages for task in page.tasks}

    @property
    def known_pilots(self) -> dict[str, KnownPilot]:
        return {pilot.uid: pilot for page in self.pages for pilot in page.pilots}

    def told(self) -> dict[str, str]:
        """The last state that an application was told of each pilot and task, as the pages say."""
        self.recovered()
        return {uid: known.told for uid, known in (self.known_pilots | self.known_tasks).items()}

    def acknowledge(self, *owners: str) -> None:
        """Say that the application was told all that happened until now to what these have."""
        self.until_settled()
        self.do(lambda: self.connection.acknowledge(owners, self.connection.mark))
        self.until_settled()

    def pilot(self, *uids: str, owner: str = '') -> None:
        """Make pilots known."""
        self.do(self.connection.insert_pilots, {uid: {'cores': 4} for uid in uids}, owner)

    def submit(self, pilot: str, uids: Iterable[str], owner: str = '', **description: Any) -> None:
        """Send tasks, all of them at once whether there is room or not."""
        tasks = [(uid, {'executable': f'/bin/{uid}', **description}) for uid in uids]
        for first in range(0, len(tasks), BULK):
            self.do(self.connection.insert_batch, pilot, Batch.of(tasks[first:first + BULK]), owner)

    def update(self, uids: Iterable[str], state: str, info: dict[str, Any] | None = None) -> None:
        """Change states of tasks."""
        self.do(self.connection.update_tasks, [Update(uid, state, info) for uid in uids])

    def states(self) -> dict[str, str]:
        """The last known state of each task."""
        return {update.uid: update.state for update in self.tasks}

    def until_states(self, expected: dict[str, str]) -> None:
        """Wait until tasks are in these states."""
        self.until(lambda: expected.items() <= self.states().items())


class Agent(Party, contract.AgentHandler):
    """An agent that keeps what it gets, in order: descriptions by `tasks`, uids and command names by `order`."""

    def __init__(self, connect_to: Callable[[Loop], Connection], pilot: str,
                 react: Callable[[Agent, list[str]], object]) -> None:
        self.pilot = pilot
        self.tasks: list[dict[str, Any]] = []
        self.commands: list[dict[str, Any]] = []
        self.outcomes: list[Update] = []
        self._react = react
        super().__init__()
        self.do(self._connect, connect_to)

    def _connect(self, connect_to: Callable[[Loop], Connection]) -> None:
        self.attach(connect_to(self.loop))

    def on_tasks(self, tasks: list[NewTask]) -> None:
        uids = [uid for uid, _ in tasks]
        self.tasks += [{**description, 'uid': uid} for uid, description in tasks]
        self.order += uids
        self._react(self, uids)
        self.note('tasks')

    def on_command(self, command: dict[str, Any]) -> None:
        self.commands.append(command)
        self.order.append(command['cmd'])
        self.note('command')

    def on_followed(self, outcomes: list[Update]) -> None:
        self.outcomes += outcomes
        self.note('followed')

    def follow(self, *uids: str) -> None:
        """Ask how tasks end."""
        self.do(self.connection.follow_tasks, uids)

    def until_outcome_count(self, count: int) -> None:
        """Wait until it knows how so many tasks have ended."""
        self.until(lambda: len(self.outcomes) >= count)

    def until_outcomes(self, **expected: str) -> dict[str, dict[str, Any]]:
        """Wait until it knows that tasks have ended in these states, and return what else it was told of them."""
        self.until(lambda: expected.keys() <= {update.uid for update in self.outcomes})
        found = [update for update in self.outcomes if update.uid in expected]   # others may be told again
        assert {update.uid: update.state for update in found} == expected
        return {update.uid: dict(update.info or {}) for update in found}

    def until_order(self, count: int) -> None:
        """Wait until this many tasks and commands have come."""
        self.until(lambda: len(self.order) >= count)

    def report(self, uids: Iterable[str], state: str, info: dict[str, Any] | None = None) -> None:
        """Tell states of tasks."""
        self.do(self.connection.update_tasks, [Update(uid, state, info) for uid in uids])

    def report_pilot(self, state: str, info: dict[str, Any] | None = None) -> None:
        """Tell the state of the pilot."""
        self.do(self.connection.update_pilots, [Update(self.pilot, state, info)])

    def hold(self) -> None:
        """Want no more tasks, and wait until that is known: what is settled was sent after it."""
        self.do(self.connection.hold, True)
        self.report_pilot(states.PMGR_ACTIVE)
        self.until_settled()

    def until_tasks(self, uids: Iterable[str]) -> None:
        """Wait until it has these tasks."""
        wanted = set(uids)
        self.until(lambda: wanted <= set(self.order))


class Process:
    """A client or agent in a process of its own, which can be killed; it says things as lines of JSON."""

    def __init__(self, program: str, **orders: Any) -> None:
        self._process = subprocess.Popen([sys.executable, '-c', program], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            pipe.write(json.dumps(orders) + '\n')

    @property
    def pid(self) -> int:
        return self._process.pid

    def answer(self) -> Any:
        """The next thing that it says."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it without warning."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _no_reaction(_: Agent, uids: list[str]) -> None:
    """What an agent does with tasks, unless a test says otherwise."""


class Site:
    """A session on one backend; `close` ends whatever is left."""

    def __init__(self, backend: Backend, directory: Path, lease: float = 60.0) -> None:
        self.backend, server = backend
        self.slow = server is not None and server.slow
        self.server = server
        self.uid = f'session.{uuid.uuid4().hex[:12]}'
        self._directory = directory
        self._settings = Settings(dburl=server.url if server else '', lease=lease)
        self._parties: list[Party] = []
        self._coordinators: list[Coordinator] = []
        self._clients: dict[Client, Coordinator] = {}
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def some(self, count: int) -> int:
        """So many, or a tenth of it on a slow server."""
        return count // 10 if self.slow else count

    @property
    def coordinator(self) -> Coordinator:
        """That of the last client."""
        return self._coordinators[-1]

    def attached(self) -> bool:
        """Whether the last client has found the session."""
        return self.coordinator.attached

    def begin(self) -> Coordinator:
        """A coordinator that has started."""
        coordinator = connect.coordinator(self.uid, self._directory, self._settings)
        self._coordinators.append(coordinator)
        coordinator.start()
        return coordinator

    def client(self, *, recover: bool = False) -> Client:
        """A client of the session, which takes it over if there was another one."""
        coordinator = self.begin()
        client = Client(coordinator.connect, recover=recover)
        self._clients[client] = coordinator
        client.do(coordinator.watch, client.loop)
        self._parties.insert(0, client)   # agents end before
        return client

    def leave(self, client: Client) -> None:
        """Have a client go away such that the session goes on."""
        client.do(client.connection.detach)
        client.do(partial(self._clients[client].stop, 0.0, leave=True))
        client.close()

    def end(self, client: Client) -> None:
        """Have a client close the session."""
        client.close()
        self._clients[client].stop(5.0)

    @property
    def parties(self) -> list[Party]:
        """All that have come, clients before agents."""
        return self._parties

    def orders(self, **more: Any) -> dict[str, Any]:
        """What a client in a process of its own has to know."""
        return {'uid': self.uid, 'directory': str(self._directory), 'settings': asdict(self._settings), **more}

    def agent(self, pilot: str, agent: str = 'agent_0', react: Callable[[Agent, list[str]], object] = _no_reaction,
              access: dict[str, Any] | None = None) -> Agent:
        """An agent of a pilot."""
        access = access or self.coordinator.agent_access
        party = Agent(lambda loop: connect.agent_connection(loop, access, pilot, agent), pilot, react)
        self._parties.append(party)
        return party

    def kill(self, *, restart: bool = True) -> None:
        """End hub or server without warning, and start it again; a hub is always started again by its owner."""
        if self.server is not None:
            self.server.kill()
            if restart:
                self.server.start()
            return
        pidfd = os.pidfd_open(cast(HubProcess, self.coordinator).pid)
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)   # its owner starts it again
            assert select.select([pidfd], [], [], TIMEOUT)[0]
        finally:
            os.close(pidfd)

    def revive(self) -> None:
        """Start a server again that was killed."""
        if self.server is not None:
            self.server.start()

    def close(self) -> None:
        """End parties and hub."""
        try:
            for party in reversed(self._parties):
                party.close()
        finally:
            for coordinator in reversed(self._coordinators):
                coordinator.stop(5.0)
            self._reap()

    def _reap(self) -> None:
        """Take note of the end of a hub that was left by the client that had started it."""
        for coordinator in self._coordinators:
            with suppress(ChildProcessError):
                if pid := getattr(coordinator, 'pid', 0):
                    os.waitpid(pid, 0)


class Backend(NamedTuple):
    """A backend, and the server that it needs, if it needs one."""

    name: str
    server: Server | None


@contextmanager
def backend(name: str, directory: Path) -> Iterator[Backend]:
    """A backend, with its server running."""
    if name == 'hub':
        yield Backend(name, None)
        return
    with mongo_servers.running(name, directory) as server:
        yield Backend(name, server)


@contextmanager
def one_site(backend: Backend, directory: Path, **options: float) -> Iterator[Site]:
    """A session without a client yet; all of it is gone at the end."""
    site = Site(backend, directory / 'session', **options)
    try:
        yield site
    finally:
        site.close()


def uids(count: int, prefix: str = 't') -> list[str]:
    """Uids in ascending order."""
    return [f'{prefix}.{number:05d}' for number in range(count)]

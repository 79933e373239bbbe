"""Real hubs, and real connections to them in loops of their own, for tests that wait for events with a deadline."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from parties import TIMEOUT, Party

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination.connections import hub_file
from rp_api.coordination.connections.embedded import HubAgentConnection, HubClientConnection
from rp_api.coordination.contract import BULK, AgentHandler, ClientHandler, NewTask, Update
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.hub import main
from rp_api.coordination.hub_process import HubProcess
from rp_api.transport.access import Access

P = TypeVar('P', bound=Party)


class Client(Party, ClientHandler):
    """A client that keeps all updates it gets."""

    def __init__(self, address: Access) -> None:
        super().__init__()
        self.tasks: list[Update] = []
        self.pilots: list[Update] = []
        self.do(self._connect, address)

    def _connect(self, address: Access) -> None:
        connection = HubClientConnection(self.loop, address, 'session')
        self.attach(connection)

    def on_tasks(self, updates: list[Update]) -> None:
        self.tasks += updates
        self.note('tasks')

    def on_pilots(self, updates: list[Update]) -> None:
        self.pilots += updates
        self.note('pilots')

    def submit(self, pilot: str, uids: Iterable[str], **description: Any) -> None:
        """Send tasks, all of them at once whether there is room or not."""
        tasks = [(uid, {'executable': f'/bin/{uid}', **description}) for uid in uids]
        for first in range(0, len(tasks), BULK):
            self.do(self.connection.insert_batch, pilot, Batch.of(tasks[first:first + BULK]))

    def states(self) -> dict[str, str]:
        """The last known state of each task."""
        return {update.uid: update.state for update in self.tasks}


class Agent(Party, AgentHandler):
    """An agent that keeps what it gets, in order: descriptions by `tasks`, uids and command names by `order`."""

    def __init__(self, address: Access, pilot: str, agent: str = 'agent_0') -> None:
        super().__init__()
        self.pilot = pilot
        self.agent = agent
        self.tasks: list[dict[str, Any]] = []
        self.commands: list[dict[str, Any]] = []
        self.react: Callable[[list[str]], None] = lambda uids: None
        self.do(self._connect, address)

    def _connect(self, address: Access) -> None:
        connection = HubAgentConnection(self.loop, address, self.pilot, self.agent)
        self.attach(connection)

    def on_tasks(self, tasks: list[NewTask]) -> None:
        uids = [uid for uid, _ in tasks]
        self.tasks += [{**description, 'uid': uid} for uid, description in tasks]
        self.order += uids
        self.react(uids)
        self.note('tasks')

    def on_command(self, command: dict[str, Any]) -> None:
        self.commands.append(command)
        self.order.append(command['cmd'])
        self.note('command')

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


class Site:
    """A hub with its parties; `close` ends whatever is left."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.hub = HubProcess('session', directory, Settings(**settings))
        self.runtime_dir = Path(self.hub.address.address.removeprefix('ipc://')).parent
        self._parties: list[Party] = []

    def start(self) -> Site:
        """Start the hub, of a session that can be attached."""
        self.hub.start()
        hub_file.save(self.directory, self.hub._config)
        return self

    def client(self, address: Access | None = None) -> Client:
        return self._add(Client(address or self.hub.address))

    def agent(self, pilot: str, address: Access | None = None, agent: str = 'agent_0') -> Agent:
        return self._add(Agent(address or self.hub.agent_address, pilot, agent))

    def _add(self, party: P) -> P:
        self._parties.append(party)
        return party

    def until_ended(self) -> int:
        """Wait until the hub has ended; gives its exit code."""
        pidfd = os.pidfd_open(self.hub.pid)
        try:
            assert select.select([pidfd], [], [], TIMEOUT)[0], f'the hub still runs: {self.hub.last_words()}'
        finally:
            os.close(pidfd)
        code = self.hub.ended()
        assert code is not None
        return code

    def close(self) -> None:
        """End parties and hub."""
        try:
            for party in reversed(self._parties):   # the client last: the hub ends with it
                party.close()
        finally:
            self.hub.stop(0)
        assert not self.runtime_dir.exists()


class HubHere:
    """A hub in a thread of this process, where it can be tampered with; ends by itself, which is waited for."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._config = hub_file.new_config('session', directory, Settings(**settings))
        self.address = hub_file.address(self._config, 'client')
        self.agent_address = hub_file.address(self._config, 'agent')
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        main.serve(self._config | {'fresh': True}, lambda endpoints: self._ready.set())

    def until_ended(self) -> None:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()

    def __enter__(self) -> HubHere:
        self._thread.start()
        assert self._ready.wait(TIMEOUT)
        hub_file.save(self._directory, self._config)
        return self

    def __exit__(self, *_: object) -> None:
        self.until_ended()


MakeSite = Callable[..., Site]


@contextmanager
def sites(directory: Path) -> Iterator[MakeSite]:
    """A maker of sites in a directory; all are closed at the end."""
    made: list[Site] = []

    def make(**options: Any) -> Site:
        made.append(Site(directory, **options))
        return made[-1]

    try:
        yield make
    finally:
        for site in made:
            site.close()


def uids(count: int, prefix: str = 't') -> list[str]:
    """Uids in ascending order."""
    return [f'{prefix}.{number:05d}' for number in range(count)]


class Proxy:
    """Passes bytes on between a Unix socket of its own and that of the hub, until it is told not to."""

    def __init__(self, target: Path, path: Path) -> None:
        self._target = target
        self._swallow = False
        self._flowing = threading.Event()
        self._flowing.set()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._start(self._accept)

    def swallow(self) -> None:
        """Take everything and pass on nothing."""
        self._swallow = True

    def hold(self) -> None:
        """Take nothing more."""
        self._flowing.clear()

    def cut(self) -> None:
        """Break all connections; new ones work again."""
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()
        self._swallow = False
        self._flowing.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(self._target))
            self._open += [near, far]
            self._start(self._pass_on, near, far)
            self._start(self._pass_on, far, near)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while self._flowing.wait(TIMEOUT) and (data := source.recv(1 << 16)):
                if not self._swallow:
                    sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()   # each direction closes its source, so that each socket is closed once

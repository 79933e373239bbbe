"""Listening sockets of the system, each served by a process of its own, and proper peers of each."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination import hub_process
from rp_api.coordination.connections import embedded
from rp_api.coordination.contract import AgentHandler, ClientHandler, NewTask, Update
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.results import read_results
from rp_api.coordination.service import access as hub_access
from rp_api.coordination.service.request import ask
from rp_api.loop.event_loop import Loop
from rp_api.system.host import python_program
from rp_api.transport.keys import KeyPair, generate
from rp_api.tree.node import TreeNode

GROWTH = 24 << 20
"""Bytes by which memory may be larger afterwards: allocators keep some of what they once had."""

TIMEOUT = 30.0
SERVING = Path(__file__).with_name('serving.py')


class Peers:
    """Proper peers of a listener, in a loop of their own; `exchange` returns when a message went through all of it."""

    stays = True   # connected

    def __init__(self, connect: Callable[[Peers], Callable[[int], object]]) -> None:
        self.loop = Loop()
        self.ends: list[Any] = []
        self._arrived: list[int] = []
        self._news = threading.Condition()
        self._number = 0
        self._send = connect(self)
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def arrived(self, number: Any) -> None:
        """To be called with what came out at the end."""
        with self._news:
            self._arrived.append(number)
            self._news.notify_all()

    def exchange(self) -> None:
        """Send something, and wait for it, and nothing else, to come out."""
        self._number += 1
        self.loop.call_soon(self._send, self._number)
        with self._news:
            assert self._news.wait_for(lambda: self._number in self._arrived, TIMEOUT), 'proper peers are not served'
            assert self._arrived == list(range(1, self._number + 1))

    def close(self) -> None:
        """Leave."""
        def end() -> None:
            for each in self.ends:
                each.close()
            self.loop.stop()

        self.loop.call_soon(end)
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        self.loop.close()


class Listener(ABC):
    """A listening socket: where it is, who may come in, and what has got through to it.

    `sockets` are the kinds of sockets that its peers have, by address; `initial` is what it has accepted at first.
    """

    pid: int
    server: bytes
    admitted: KeyPair
    sockets: dict[str, int]
    initial: Any

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """What was `accepted`, and how many were `refused`, `strangers` and `malformed`, as far as it tells."""

    @abstractmethod
    def peers(self) -> Peers:
        """New proper peers."""

    @abstractmethod
    def ended(self) -> int | None:
        """The exit code, if the process has ended."""

    def until(self, holds: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """The figures, once that holds for them."""
        deadline = time.monotonic() + TIMEOUT
        while not holds(figures := self.figures()):
            assert time.monotonic() < deadline, f'not within {TIMEOUT} s: {what}; {figures}'
            assert self.ended() is None
            time.sleep(0.01)
        return figures

    def untouched(self) -> None:
        """Return when nothing is there that was not there at first; proper peers take a moment to leave."""
        self.until(lambda now: now['accepted'] == self.initial, f'nothing but {self.initial} is accepted')

    def works(self) -> None:
        """Return when proper peers that come now are served."""
        assert self.ended() is None, 'the server has crashed'
        peers = self.peers()
        try:
            peers.exchange()
        finally:
            peers.close()

    def rss(self) -> int:
        """Bytes of memory that the process uses."""
        status = Path(f'/proc/{self.pid}/status').read_text()
        return 1024 * int(status.split('VmRSS:')[1].split()[0])

    def limit_files(self, spare: int) -> int:
        """Let the process open `spare` more files at most; gives the limit."""
        limit = len(os.listdir(f'/proc/{self.pid}/fd')) + spare
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (limit, limit))
        return limit


class ServedListener(Listener):
    """A listener in a process that answers each line with one: what it is asked for, or its figures."""

    def _serve(self, program: Path, *arguments: str) -> None:
        self._process = subprocess.Popen([sys.executable, program, *arguments], stdin=subprocess.PIPE, text=True,
                                         stdout=subprocess.PIPE, bufsize=1)
        self.pid = self._process.pid

    def figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = self._ask('figures')
        return figures

    def ended(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        """End the process, which must have survived until now."""
        crashed = self.ended() is not None
        with self._process:   # which closes its input
            pass
        assert not crashed, 'the server has crashed'
        assert self.ended() == 0

    def _ask(self, question: str) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(question + '\n')
        return json.loads(self._process.stdout.readline())


class BridgeListener(ServedListener):
    """A bridge, the root of a tree, served by `serving.py`."""

    def __init__(self, address: str) -> None:
        keys, self.admitted = generate(), generate()
        self.server = keys.public
        self._serve(SERVING)
        self._address: str = self._ask(json.dumps({
            'public': keys.public.decode(), 'secret': keys.secret.decode(), 'address': address,
            'admitted': self.admitted.public.decode()}))
        self._leaves = 0
        self.sockets = {self._address: zmq.DEALER}

    def peers(self) -> Peers:
        return Peers(self._leaf)

    def _leaf(self, peers: Peers) -> Callable[[int], object]:
        def receive(items: list[dict[str, Any]]) -> None:
            for item in items:
                peers.arrived(item['number'])

        self._leaves += 1   # the first one is for attacks
        leaf = TreeNode(peers.loop, f'leaf.{self._leaves}', self._address, self.admitted, self.server, receive,
                        lambda why: None, context=zmq.Context.instance(), let_in=TIMEOUT)
        peers.ends.append(leaf)
        return lambda number: leaf.put([{'number': number}])


class HubListener(Listener, ClientHandler):
    """A hub as a session starts it; `admitted` is the key of agents. Its client stays until the end."""

    def __init__(self, directory: Path, listen: str = '') -> None:
        self._directory = directory
        self.hub = hub_process.HubProcess('session', directory, Settings(listen=listen))
        self.hub.start()
        self.pid = self.hub.pid
        agent = self.hub.agent_address
        self.server = agent.server.encode()
        self.admitted = KeyPair(agent.public.encode(), agent.secret.encode())
        self.client_keys = KeyPair(self.hub.address.public.encode(), self.hub.address.secret.encode())
        self.sockets = {agent.address: zmq.DEALER}
        self._pilots = 0
        self._waiting: dict[str, Callable[[int], object]] = {}
        self._owner = Peers(self._client)

    def figures(self) -> dict[str, Any]:
        log = self._directory / 'hub.log'
        own = [f't.p.{pilot}.' for pilot in range(1, self._pilots + 1)]
        accepted = [result for result in read_results(self._directory)
                    if not result['uid'].startswith(tuple(own)) or result['state'] != states.DONE]
        return {'accepted': accepted, **told(log, 'malformed message')}

    def peers(self) -> Peers:
        """A new agent that gets a task for each exchange; the client is the lasting one."""
        self._pilots += 1
        pilot = f'p.{self._pilots}'

        def connect(peers: Peers) -> Callable[[int], object]:
            agent = embedded.HubAgentConnection(peers.loop, self.hub.agent_address, pilot)
            peers.ends.append(agent)

            class Handler(AgentHandler):
                def on_tasks(self, tasks: list[NewTask]) -> None:
                    agent.update_tasks([Update(uid, states.TMGR_STAGING_OUTPUT_PENDING,
                                               {'target_state': states.DONE}) for uid, _ in tasks])

            agent.open(Handler())
            self._waiting[pilot] = peers.arrived
            return lambda number: self._owner.loop.call_soon(self._submit, pilot, number)

        return Peers(connect)

    def ended(self) -> int | None:
        return self.hub.ended()

    def close(self) -> None:
        """End the hub, which must have survived until now."""
        crashed = self.ended() is not None
        said = threading.Event()
        self._owner.loop.call_soon(self.client.finish, said.set)
        assert crashed or said.wait(TIMEOUT), 'the hub does not hear its client'
        self._owner.close()
        self.hub.stop(TIMEOUT)
        assert not crashed, 'the hub has crashed'
        assert self.ended() == 0

    def _client(self, owner: Peers) -> Callable[[int], object]:
        self.client = embedded.HubClientConnection(owner.loop, self.hub.address, 'session')
        owner.ends.append(self.client)

        self.client.open(self)
        return lambda number: None

    def on_tasks(self, updates: list[Update]) -> None:
        for update in updates:
            pilot, _, number = update.uid.removeprefix('t.').rpartition('.')
            self._waiting[pilot](int(number))

    def _submit(self, pilot: str, number: int) -> None:
        if number == 1:
            self.client.insert_pilots({pilot: {}})
        self.client.insert_batch(pilot, Batch.of([(f't.{pilot}.{number}', {'executable': '/bin/true'})]))


class Asker:
    """Proper peers of a stand-alone hub: each exchange is a request, on a connection of its own."""

    stays = False

    def __init__(self, access: hub_access.HubAccess) -> None:
        self._access = access

    def exchange(self) -> None:
        """Return when a request was answered."""
        assert ask(self._access, self._access.url, 'status')['sessions'] == []

    def close(self) -> None:
        """Nothing stays between requests."""


class ServiceListener(Listener):
    """The control socket of a stand-alone hub; accepted are its sessions."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / 'service.log'
        config = {'directory': str(directory / 'hub'), 'listen': 'tcp://127.0.0.1', 'ports': None}
        with open(self._log, 'wb') as log:
            self._process = subprocess.Popen(
                python_program('rp_api.coordination.service.main'), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, env=os.environ | {'RADICAL_BASE': str(directory)})
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(config).encode() + b'\n')
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.pid = self._process.pid
        self._access = hub_access.read(Path(answer['access']))
        self.server = self._access.server.encode()
        self.admitted = self._access.keys
        self.sockets = {self._access.url: zmq.DEALER}

    def figures(self) -> dict[str, Any]:
        sessions = ask(self._access, self._access.url, 'status')['sessions']
        return {'accepted': sessions, **told(self._log, 'refused a request')}

    def peers(self) -> Any:
        return Asker(self._access)

    def ended(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        """End the process, which must have survived until now."""
        crashed = self.ended() is not None
        with self._process:
            self._process.terminate()
        assert not crashed, 'the stand-alone hub has crashed'
        assert self.ended() == 0


def told(log: Path, malformed: str) -> dict[str, int]:
    """The numbers in the last warnings of each kind."""
    lines = log.read_text().splitlines()

    def last(word: str) -> int:
        found = [line.rpartition('(')[2] for line in lines if word in line]
        return int(''.join(filter(str.isdigit, found[-1]))) if found else 0

    return {'refused': last('refused a peer'), 'strangers': last('a stranger at'), 'malformed': last(malformed)}

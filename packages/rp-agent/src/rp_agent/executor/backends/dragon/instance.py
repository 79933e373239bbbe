"""Dragon: a runtime over all nodes of the pilot, and the connection to the program that we run in it.

Sources: the documentation of Dragon, and `dragon --help` of version 0.15.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import zmq

from rp_agent.executor.backends.dragon import dragon_runner
from rp_agent.executor.backends.launcher import InstanceLauncher, Node, Startup
from rp_agent.executor.backends.runner import News
from rp_api.loop.event_loop import Loop
from rp_api.transport.keys import Gate, generate, make_server

_SAID = 'rp dragon runner '

_BELOW_A_SHELL = '/bin/sh', '-c', '"$@"; exit "$?"', 'dragon'
"""Dragon makes itself the leader of a process group, and hangs if it leads a session and so cannot."""


class Link:
    """A socket that the runners of all instances connect to, each with keys of its own."""

    def __init__(self, loop: Loop, address: str) -> None:
        self._loop = loop
        self._context: zmq.Context[Any] = zmq.Context()
        self._gate = Gate(self._context, loop)
        self._keys = generate()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        make_server(self._socket, self._keys)
        self._socket.sndhwm = 0
        self._socket.bind(address)
        self._address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self._listeners: dict[bytes, News] = {}
        self.heard: Callable[[int, str], object] = lambda number, line: None
        """Called with what a runner says that has connected; what programs print in Dragon may get lost."""
        loop.add_socket(self._socket, self._receive)

    def invitation(self, number: int) -> str:
        """What a runner of that number has to know to connect; it is a secret."""
        keys = generate()
        self._gate.allow(keys.public)
        return json.dumps({'number': number, 'address': self._address,
                           'server': self._keys.public.decode(), 'public': keys.public.decode(),
                           'secret': keys.secret.decode()})

    def listen(self, number: int, news: News) -> None:
        """Call `news` with all messages of that runner."""
        self._listeners[str(number).encode()] = news

    def send(self, number: int, message: Mapping[str, Any]) -> None:
        """Send a message to a runner that has connected; it is lost if that is gone."""
        self._socket.send_multipart([str(number).encode(), json.dumps(message).encode()])

    def forget(self, number: int) -> None:
        """Hear nothing of that runner any more."""
        self._listeners.pop(str(number).encode(), None)

    def close(self) -> None:
        """Free everything."""
        self._loop.remove_socket(self._socket)
        self._socket.close(500)
        self._gate.close()
        self._context.term()

    def _receive(self) -> None:
        while self._socket.poll(0):
            sender, text = self._socket.recv_multipart()
            message = json.loads(text)
            listener = self._listeners.get(sender)
            if 'hello' in message:
                self._socket.send_multipart([sender, b'{}'])
                self.heard(int(sender), f'{_SAID}{int(sender)}')
            elif listener is not None:
                listener(message)


class Dragon(InstanceLauncher):
    """Runtimes of the `dragon` on PATH; `single` if there is just this host."""

    NAME: ClassVar[str] = 'DRAGON'
    SECONDS_TO_START: ClassVar[float] = 120.0
    SECONDS_TO_STOP: ClassVar[float] = 20.0
    STOP_SIGNAL: ClassVar[int] = 0   # it ends when its runner does
    SEGMENTS: ClassVar[str] = 'DD'   # of up to 4 GiB each

    def __init__(self, invitation: Callable[[int], str], *, single: bool, by_ssh: bool = False) -> None:
        self._invitation = invitation
        self._single = single
        self._by_ssh = by_ssh

    def startup(self, number: int, nodes: Sequence[Node]) -> Startup:
        """A runtime with a runner in it."""
        name = f'dragon.{number:04d}.json'
        if self._single:
            where: tuple[str, ...] = ('--single-node-override',)
        elif self._by_ssh:
            where = ('--wlm', 'ssh', '--hostlist', ','.join(node.name for node in nodes))
        else:
            where = ('--nodes', str(len(nodes)))
        command = 'dragon', *where, str(Path(dragon_runner.__file__)), name
        return Startup((*_BELOW_A_SHELL, *command), {name: self._invitation(number)})

    def address(self, line: str) -> str:
        """The number of the runner, which says it when it has connected."""
        return line.removeprefix(_SAID) if line.startswith(_SAID) else ''

    def is_ready(self, line: str) -> bool:
        """A runner that has connected can run tasks."""
        return bool(self.address(line))


class LinkRunner:
    """A runner in an instance, over the link."""

    def __init__(self, link: Link, number: int, news: News) -> None:
        self._link = link
        self._number = number
        link.listen(number, news)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send it at once."""
        self._link.send(self._number, message)

    def close(self) -> None:
        """Have it end, if it still runs."""
        self._link.send(self._number, {'end': True})
        self._link.forget(self._number)

"""The control channel between the supervisor of a pilot and the agent of a partition: a socket that the agent inherits.

The agent says when its pilot is known to be active (`{'ready': True}`) and, before anybody else hears of it, when it
ends (`{'ending': [state, reason]}`). The supervisor has it end (`{'state': ..., 'reason': ...}`).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from rp_agent.lineage import die_with_parent
from rp_api.loop.event_loop import Loop

_LONGEST = 1 << 16
"""Bytes of a message."""

_SHOWN = 4096
"""Characters of a reason that the supervisor gets: the client has all of it."""
Message = dict[str, Any]


class Agent(Protocol):
    """An agent, as far as the supervisor of its pilot directs it."""

    on_ending: Callable[[str, str], object]

    def finish(self, state: str, reason: str) -> None: ...
    def when_known(self, callback: Callable[[], object]) -> None: ...


class ControlChannel:
    """One end; `heard` is called with each message of the other one, until that is gone."""

    def __init__(self, loop: Loop, end: socket.socket, heard: Callable[[Message], object]) -> None:
        self._loop = loop
        self._end = end
        self._heard = heard
        self._open = True
        end.setblocking(False)
        loop.add_fd(end.fileno(), self.receive)

    def say(self, message: Message) -> None:
        """Tell the other end something; nothing happens if it is gone."""
        with suppress(OSError):
            self._end.send(json.dumps(message).encode())

    def close(self) -> None:
        """Hang up."""
        if self._open:
            self._open = False
            self._loop.remove_fd(self._end.fileno())
            self._end.close()

    def receive(self) -> None:
        """Hear what was said; to be called when the other end has died, as its last words may still be there."""
        while self._open:
            try:
                data = self._end.recv(_LONGEST)
            except BlockingIOError:
                return
            except OSError:
                data = b''
            if data:
                self._heard(json.loads(data))
            else:
                self.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a channel; messages stay whole."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def obey(agent: Agent, loop: Loop, supervisor: Mapping[str, int]) -> ControlChannel:
    """Have an agent do what the supervisor of its pilot says, and tell it what it must know; the agent dies with it."""
    die_with_parent(supervisor['pid'])
    os.set_inheritable(supervisor['fd'], False)
    channel = ControlChannel(loop, socket.socket(fileno=supervisor['fd']),
                             lambda order: agent.finish(order['state'], order['reason']))
    agent.on_ending = lambda state, reason: channel.say({'ending': [state, reason[:_SHOWN]]})
    agent.when_known(lambda: channel.say({'ready': True}))
    return channel

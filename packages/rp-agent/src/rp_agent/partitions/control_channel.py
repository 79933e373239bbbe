"""The control channel between the supervisor of a pilot and the agent of a partition: a socket that the agent inherits.

The agent sends `{'ready': True}` when the coordinator knows that its pilot is active, and `{'ending': [state, reason]}`
before it reports its end to the coordinator. The supervisor sends `{'state': ..., 'reason': ..., 'by_user': ...}` to
end the agent.
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
"""Most bytes of a message."""

_SHOWN = 4096
"""Most characters of a reason that the supervisor receives; the client receives all of it."""

Message = dict[str, Any]


class Agent(Protocol):
    """The part of an agent that the control channel uses."""

    on_ending: Callable[[str, str], object]

    def finish(self, state: str, reason: str, *, by_user: bool) -> None: ...
    def when_known(self, callback: Callable[[], object]) -> None: ...


class ControlChannel:
    """One end of a channel; `heard` is called with each message of the other end."""

    def __init__(self, loop: Loop, end: socket.socket, heard: Callable[[Message], object]) -> None:
        self._loop = loop
        self._end = end
        self._heard = heard
        self._open = True
        end.setblocking(False)
        loop.add_fd(end.fileno(), self.receive)

    def say(self, message: Message) -> None:
        """Send a message; does nothing if the other end is closed."""
        with suppress(OSError):
            self._end.send(json.dumps(message).encode())

    def close(self) -> None:
        """Close this end."""
        if self._open:
            self._open = False
            self._loop.remove_fd(self._end.fileno())
            self._end.close()

    def receive(self) -> None:
        """Handle all messages that have arrived; to be called once more when the process at the other end has died."""
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
    """Return both ends of a channel, which keeps the boundaries of messages."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def obey(agent: Agent, loop: Loop, supervisor: Mapping[str, int]) -> ControlChannel:
    """Connect an agent to the supervisor of its pilot, and tie its life to the supervisor's process."""
    die_with_parent(supervisor['pid'])
    os.set_inheritable(supervisor['fd'], False)
    channel = ControlChannel(loop, socket.socket(fileno=supervisor['fd']),
                             lambda order: agent.finish(order['state'], order['reason'], by_user=order['by_user']))
    agent.on_ending = lambda state, reason: channel.say({'ending': [state, reason[:_SHOWN]]})
    agent.when_known(lambda: channel.say({'ready': True}))
    return channel

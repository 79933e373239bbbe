"""The control channel between the supervisor of a pilot and the agent of a partition: JSON objects, one a line.

On the supervisor's host, the agent inherits a socket. On another host, the socket is the standard input and output of
the launcher, and those of the agent are the channel (see `of_launcher`); other programs may print there before.

The agent sends `{'ready': True}` when the coordinator knows that its pilot is active, and `{'ending': [state, reason]}`
before it reports its end to the coordinator. The supervisor sends `{'state': ..., 'reason': ..., 'by_user': ...}` to
end the agent, and `{'warning': number}` to pass on a signal; its first message, `{}`, shows that the channel works. If
a channel that works is closed, the supervisor has died, and the agent ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from rp_agent.lineage import die_with_parent
from rp_api.loop.event_loop import Loop

_READ_BYTES = 1 << 16
"""Most bytes that are read at once."""

_REASON_MAX_CHARS = 4096
"""Most characters of a reason that the supervisor receives; the client receives all of it."""

Message = dict[str, Any]


class ControlledAgent(Protocol):
    """The part of an agent that the control channel uses."""

    def finish(self, state: str, reason: str, *, by_user: bool) -> None: ...
    def told_to_end(self) -> None: ...
    def warned(self, number: int) -> None: ...
    def when_ending(self, callback: Callable[[str, str], object]) -> None: ...
    def when_known(self, callback: Callable[[], object]) -> None: ...


class ControlChannel:
    """One end of a channel, which reads from and writes to these descriptors, and closes them.

    `heard` is called with each message of the other end, `printed` with each line that is none. `ended` is called when
    the other end of a channel that has worked is closed.
    """

    def __init__(self, loop: Loop, read: int, write: int, heard: Callable[[Message], object],
                 printed: Callable[[bytes], object] = lambda line: None,
                 ended: Callable[[], object] = lambda: None) -> None:
        self._loop = loop
        self._read = read
        self._write = write
        self._heard = heard
        self._printed = printed
        self._ended = ended
        self._begun = b''
        self._works = False
        self._open = True
        os.set_blocking(read, False)
        loop.add_fd(read, self.receive)

    def say(self, message: Message) -> None:
        """Send a message; does nothing if the other end is closed."""
        with suppress(OSError):
            os.write(self._write, json.dumps(message).encode() + b'\n')

    def close(self) -> None:
        """Close this end."""
        if self._open:
            self._open = False
            self._loop.remove_fd(self._read)
            for descriptor in {self._read, self._write}:
                os.close(descriptor)

    def receive(self) -> None:
        """Handle all messages that have arrived; to be called once more when the process at the other end has died."""
        while self._open:
            try:
                data = os.read(self._read, _READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b''
            *lines, self._begun = (self._begun + data).split(b'\n')
            for line in lines:
                self._take(line)
            if not data:
                self.close()
                if self._works:
                    self._ended()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict):
            self._works = True
            self._heard(message)
        else:
            self._printed(line)


def of_launcher() -> dict[str, int]:
    """Return the supervisor of this agent on another host, from standard input and output, which children do not get.

    Output goes to standard error from now on.
    """
    found = {'read': os.dup(0), 'write': os.dup(1)}
    os.dup2(2, 1)
    with open(os.devnull, 'rb') as nothing:
        os.dup2(nothing.fileno(), 0)
    return found


def obey(agent: ControlledAgent, loop: Loop, supervisor: Mapping[str, int]) -> ControlChannel:
    """Connect an agent to the supervisor of its pilot, and tie its life to the supervisor's process."""
    if 'pid' in supervisor:
        die_with_parent(supervisor['pid'])
        os.set_inheritable(supervisor['read'], False)
    channel = ControlChannel(loop, supervisor['read'], supervisor['write'], partial(_follow, agent),
                             ended=agent.told_to_end)
    agent.when_ending(lambda state, reason: channel.say({'ending': [state, reason[:_REASON_MAX_CHARS]]}))
    agent.when_known(lambda: channel.say({'ready': True}))
    return channel


def _follow(agent: ControlledAgent, order: Message) -> None:
    if 'state' in order:
        agent.finish(order['state'], order['reason'], by_user=order['by_user'])
    elif 'warning' in order:
        agent.warned(order['warning'])

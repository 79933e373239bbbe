"""The relay of the first manager: connects the managers of other parts, which carriers reach, with the master.

Each part has a connection of its own to the master, whose messages are passed on as they are. So parts introduce
themselves to the master as they do without carriers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rp_api.loop.event_loop import Loop
from rp_raptor.carriers.channel import Channel, OpenFile
from rp_raptor.carriers.listener import CarrierListener
from rp_raptor.worker.carrier_job import CarrierJob
from rp_raptor.worker.job_process import refuse
from rp_raptor.worker.master_link import CLOSED, CONNECTED, FRAME, REFUSED, ZmqLink


class _Relayed:
    """A part: the channel to its manager, and its link to the master."""

    def __init__(self, loop: Loop, path: str, changed: Callable[[], object]) -> None:
        self._loop = loop
        self._path = path
        self._changed = changed
        self.channel = Channel(loop, self._heard, self._on_change)
        self.link: ZmqLink | None = None

    def connected(self) -> None:
        """Handle a handshake."""
        self.channel.send(CONNECTED)

    def received(self, data: bytes) -> None:
        """Handle a message of the master."""
        self.channel.send(FRAME, data)

    def lost(self, reason: str) -> None:
        """Handle the end of the master."""
        self.channel.send(REFUSED, reason.encode())

    def close(self) -> None:
        """Close the link."""
        if self.link is not None:
            self.link.close()
            self.link = None

    def _heard(self, kind: int, data: bytes, _files: list[OpenFile]) -> None:
        if kind == FRAME and self.link is not None:
            self.link.send(data)
        elif kind == CLOSED:
            self.close()
            self._changed()

    def _on_change(self) -> None:
        if self.channel.ready and self.link is None:
            self.link = ZmqLink(self._loop, self._path, self)
        self._changed()


class Relay:
    """The carriers and the connections of all parts but the first; `path` is that of the master's file.

    `job_path` has the command that starts the carriers, `files` are those by which each finds its manager, and
    `directory` is a private one of this manager.
    """

    def __init__(self, loop: Loop, name: str, path: str, job_path: str, files: Sequence[str],
                 directory: str) -> None:
        self._loop = loop
        self._name = name
        self._job_path = job_path
        self._parts = {part: _Relayed(loop, path, self._changed) for part in range(1, len(files))}
        self._listener = CarrierListener(loop, directory, files[0], len(files),
                                         {part: relayed.channel for part, relayed in self._parts.items()})
        self._finished: Callable[[], object] | None = None
        self._job = CarrierJob(loop, job_path, len(files), self._tell, self._fail)

    def finish(self, finished: Callable[[], object]) -> None:
        """Call `finished` when no part that can be reached has a connection to the master."""
        self._finished = finished
        self._job.finish()
        self._changed()

    def close(self) -> None:
        """End the carriers, and close all connections."""
        for part in self._parts.values():
            part.close()
            part.channel.detach()
        self._listener.close()
        self._job.close(orderly=True)

    def _changed(self) -> None:
        if any(part.channel.ready for part in self._parts.values()):
            self._job.works()
        if self._finished is not None and not any(
                part.link and part.channel.ready for part in self._parts.values()):
            self._finished()

    def _tell(self, reason: str) -> None:
        print(f'{self._name}: {reason}; the carriers are started again', file=sys.stderr, flush=True)

    def _fail(self, reason: str) -> None:
        """Leave the parts to connections of their own."""
        print(f'{self._name}: {reason}: messages travel over ZeroMQ', file=sys.stderr, flush=True)
        refuse(self._job_path, reason)
        for part in self._parts.values():
            part.close()
            part.channel.detach()
        self._changed()

"""The relay of the first manager: connects the managers of other parts, which carriers reach, with the master.

Each part has a connection of its own to the master, whose messages are passed on as they are. So parts introduce
themselves to the master as they do without carriers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.system.shared_directory import place
from rp_api.wire import codec
from rp_raptor.carriers.channel import Channel, OpenFile
from rp_raptor.carriers.listener import CarrierListener
from rp_raptor.carriers.stream_pipe import StreamPipe
from rp_raptor.wire.protocol import WORKER, parse_from_master
from rp_raptor.worker.carried_calls import results_placed, with_files
from rp_raptor.worker.carried_objects import Fetch, ObjectSender
from rp_raptor.worker.carrier_job import CarrierJob
from rp_raptor.worker.detour import DetourListener
from rp_raptor.worker.job_process import refuse
from rp_raptor.worker.master_link import CLOSED, CONNECTED, FRAME, NO_OBJECT, OBJECT, REFUSED, ZmqLink

_WELCOME = codec.pack(['welcome', 0])[:-1]   # how the greeting of the master begins

DETOUR_DELAY = 5.0
"""Seconds without carriers after which messages travel over ZeroMQ until there are some."""


class _Relayed:
    """A part: the channel to its manager, and its link to the master."""

    def __init__(self, loop: Loop, path: str, changed: Callable[[], object], want: Callable[[bytes], object]) -> None:
        self._want = want
        self._loop = loop
        self._path = path
        self._changed = changed
        self.channel = Channel(loop, self._heard, self._on_change)
        self.link: ZmqLink | None = None
        self._results = ''   # of the master: the place and the directory for large results

    def connected(self) -> None:
        """Handle a handshake."""
        self.channel.send(CONNECTED, place().encode())

    def received(self, data: bytes) -> None:
        """Handle a message of the master."""
        if data.startswith(_WELCOME):
            self._results = parse_from_master(data, WORKER)[1][0].get('results', '')
        for message, files in with_files(data):
            self.channel.send(FRAME, message, files)

    def lost(self, reason: str) -> None:
        """Handle the end of the master."""
        self.channel.send(REFUSED, reason.encode())

    def close(self) -> None:
        """Close the link."""
        if self.link is not None:
            self.link.close()
            self.link = None

    def _heard(self, kind: int, data: bytes, files: list[OpenFile]) -> None:
        if kind == FRAME and self.link is not None:
            self.link.send(results_placed(data, files, self._results))
        elif kind == OBJECT:
            self._want(data)
        elif kind == CLOSED:
            self.close()
            self._changed()

    def _on_change(self) -> None:
        if self.channel.pipe and self.link is None:
            self.link = ZmqLink(self._loop, self._path, self)
        self._changed()


class Relay:
    """The carriers and the connections of all parts but the first; `path` is that of the master's file.

    `job_path` has the command that starts the carriers, `files` are those by which each finds its manager. Without
    carriers, managers find this one by the file at `detour_path`. `directory` is a private one of this manager. `fetch`
    gets an object, see `ObjectSender`.
    """

    def __init__(self, loop: Loop, name: str, path: str, job_path: str, files: Sequence[str], detour_path: str,
                 directory: str, fetch: Fetch) -> None:
        self._loop = loop
        self._name = name
        self._job_path = job_path
        self._objects = ObjectSender(loop, fetch, self._refuse_object)
        self._parts = {part: _Relayed(loop, path, self._changed, partial(self._objects.want, part))
                       for part in range(1, len(files))}
        self._channels = {part: relayed.channel for part, relayed in self._parts.items()}
        self._listener = CarrierListener(loop, directory, files[0], len(files),
                                         {0: self._objects.pipe, **self._channels})
        self._detour_path = detour_path
        self._path = path
        self._directory = directory
        self._detour: DetourListener | None = None
        self._timer = loop.call_later(DETOUR_DELAY, self._look)
        self._finished: Callable[[], object] | None = None
        self._job = CarrierJob(loop, job_path, len(files), self._tell, self._fail)

    def let_end(self) -> None:
        """Do not start the carriers again: what ends the worker ends them at the same time."""
        self._job.finish()

    def finish(self, finished: Callable[[], object]) -> None:
        """Call `finished` when no part that can be reached has a connection to the master."""
        self._finished = finished
        self._job.finish()
        self._changed()

    def close(self) -> None:
        """End the carriers, and close all connections."""
        self._timer.cancel()
        for part in self._parts.values():
            part.close()
            part.channel.detach()
        self._objects.pipe.close()
        self._listener.close()
        if self._detour is not None:
            self._detour.close()
        self._job.close(orderly=True)

    def _changed(self) -> None:
        if any(isinstance(part.channel.pipe, StreamPipe) for part in self._parts.values()):
            self._job.works()
        self._timer.cancel()
        self._timer = self._loop.call_later(DETOUR_DELAY, self._look)
        if self._finished is not None and not any(
                part.link and part.channel.pipe for part in self._parts.values()):
            self._finished()

    def _refuse_object(self, part: int, id: bytes) -> None:
        self._channels[part].send(NO_OBJECT, id)

    def _tell(self, reason: str) -> None:
        print(f'{self._name}: {reason}; the carriers are started again', file=sys.stderr, flush=True)

    def _fail(self, reason: str) -> None:
        """Note that there will be no carriers."""
        print(f'{self._name}: {reason}: messages travel over ZeroMQ', file=sys.stderr, flush=True)
        refuse(self._job_path, reason)
        self._open_detour()

    def _look(self) -> None:
        """Let the parts reach this manager without carriers, if they have had none for some time."""
        if self._finished is None and not all(part.channel.pipe for part in self._parts.values()):
            self._open_detour()

    def _open_detour(self) -> None:
        try:
            if self._detour is None:
                self._detour = DetourListener(self._loop, self._detour_path, self._path, self._directory,
                                              self._channels)
        except (CoordinationError, OSError) as error:
            print(f'{self._name}: other managers cannot connect: {error}', file=sys.stderr, flush=True)

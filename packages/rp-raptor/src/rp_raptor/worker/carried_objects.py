"""Objects that carriers take from the first manager of a worker to the others.

Another manager asks the first one, which gets the object itself if it is not there, and gives it to its carrier with
the numbers of all parts that want it.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable, Sequence

from rp_api.loop.event_loop import Loop
from rp_api.system import private
from rp_raptor.carriers.channel import FIRST_KIND, End, OpenFile, Pipe

_GATHER_S = 0.005   # seconds for further parts to ask

Fetch = Callable[[bytes, Callable[[str], object]], object]


class ObjectPipe:
    """The connection to the carrier of this node for objects.

    `ended(id, file)` is called when one has arrived, without a file if it has not, or was sent; `lost()` when the
    connection is lost.
    """

    def __init__(self, ended: Callable[[bytes, OpenFile | None], object], lost: Callable[[], object]) -> None:
        self._ended = ended
        self._lost = lost
        self._pipe: Pipe | None = None

    @property
    def open(self) -> bool:
        """True if there is a connection."""
        return self._pipe is not None

    def attach(self, open_pipe: Callable[[End], Pipe]) -> None:
        """Use another connection."""
        if self._pipe is not None:
            self._pipe.close()
            self.lost()
        self._pipe = open_pipe(self)

    def send(self, id: bytes, parts: Sequence[int], file: OpenFile) -> None:
        """Send an object to parts."""
        assert self._pipe is not None
        self._pipe.write(FIRST_KIND, id + struct.pack(f'={len(parts)}H', *parts), [file])

    def close(self) -> None:
        """Close the connection."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def take(self, _kind: int, data: bytes, files: list[OpenFile]) -> None:
        """Handle a message of the carrier."""
        self._ended(data, files[0] if files else None)

    def lost(self) -> None:
        """Handle the loss of the connection."""
        self._pipe = None
        self._lost()


class ObjectSender:
    """The first manager's part: one object at a time, to all that want it.

    `fetch(id, found)` calls `found` with the path of an object, or '' if it is not to be had; `refuse(part, id)` tells
    a part that it will not come.
    """

    def __init__(self, loop: Loop, fetch: Fetch, refuse: Callable[[int, bytes], object]) -> None:
        self._loop = loop
        self._fetch = fetch
        self._refuse = refuse
        self._parts: dict[bytes, set[int]] = {}           # that wait for an object
        self._found: deque[tuple[bytes, str]] = deque()   # objects that can be sent
        self._sending = False
        self.pipe = ObjectPipe(self._sent, self._lost)

    def want(self, part: int, id: bytes) -> None:
        """Send an object to a part, now or later."""
        if id in self._parts:
            self._parts[id].add(part)
        else:
            self._parts[id] = {part}
            self._fetch(id, lambda path: self._here(id, path))

    def _here(self, id: bytes, path: str) -> None:
        self._found.append((id, path))
        self._loop.call_later(_GATHER_S, self._send)

    def _send(self) -> None:
        while self._found and not self._sending:
            id, path = self._found.popleft()
            parts = self._parts.pop(id)
            try:
                if not self.pipe.open or not os.path.getsize(path):
                    raise FileNotFoundError
                file = OpenFile(private.open_file(path))
            except OSError:
                for part in parts:
                    self._refuse(part, id)
            else:
                self._sending = True
                self.pipe.send(id, sorted(parts), file)

    def _sent(self, _id: bytes, _file: OpenFile | None) -> None:
        self._sending = False
        self._send()

    def _lost(self) -> None:
        """Refuse what waits; managers that wait for more notice it at their own carriers."""
        self._sending = False
        self._send()

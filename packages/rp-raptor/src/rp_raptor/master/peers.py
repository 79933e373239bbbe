"""The peers of a master: the workers and applications that are connected to it, and who hears of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from rp_api.errors import CoordinationError
from rp_api.transport.connection import PeerWatch
from rp_raptor.master.router import CallRouter
from rp_raptor.master.worker_pool import PooledWorker
from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.call_buffer import ResultGatherer
from rp_raptor.wire.large_calls import sent_to_others, stored_again
from rp_raptor.wire.parts import Part
from rp_raptor.wire.protocol import APPLICATION, WINDOW, WORKER, Message
from rp_raptor.wire.store import Lease, ValueStore

Send = Callable[[bytes, Message], object]


class PeerProcess(NamedTuple):
    """The process of a peer; the start time is None if the peer does not report it."""

    host: str
    pid: int
    started: int | None

    @classmethod
    def told(cls, host: Any, pid: Any, started: Any) -> PeerProcess:
        """Return the process that a peer reports; `CoordinationError` if a value is not valid."""
        if not isinstance(host, str) or type(pid) is not int or pid <= 0 or type(started) not in (int, type(None)):
            raise CoordinationError('a peer reports no valid host, process id and start time')
        return cls(host, pid, started)


class Peer:
    """A connected worker or application."""

    __slots__ = ('address', 'process', 'role', 'stopped', 'uid', 'watch')

    def __init__(self, role: str, address: bytes, uid: str, process: PeerProcess) -> None:
        self.role = role
        self.address = address
        self.uid = uid
        self.process = process
        self.stopped = False
        self.watch = PeerWatch()

    @property
    def key(self) -> str:
        """The name of the peer as an owner or holder of objects; that of an application changes as it reconnects."""
        return f'{self.uid}.{self.address.hex()}'


class WorkerPeer(Peer):
    """A connected worker, or a part of one that spans nodes."""

    __slots__ = ('_beside', '_leases', '_store', 'part', 'worker')

    def __init__(self, address: bytes, uid: str, process: PeerProcess, worker: PooledWorker, part: Part,
                 store: ValueStore | None) -> None:
        super().__init__(WORKER, address, uid, process)
        self.worker = worker
        self.part = part
        self._store = store   # of this master, if the worker sees files of this place
        self._leases: dict[int, Lease] = {}   # by calls that it has

    @property
    def key(self) -> str:
        """The name of the manager as a holder of objects."""
        return self.name

    @property
    def name(self) -> str:
        """The uid, with the number of the part."""
        return self.uid if self.part.count == 1 else f'{self.uid} (part {self.part.number} of {self.part.count})'

    def messages(self, message: Message) -> Iterable[Message]:
        """Return a message for the worker as messages with large contents of calls in files, or without files."""
        if message[0] != 'calls':
            return [message]
        if self._store is None:
            return sent_to_others(message)
        stored, leases = stored_again(message, self._store)
        self._leases |= leases
        return [stored]

    def released(self, ids: array[int]) -> array[int]:
        """Return the numbers of calls that the worker has no more; their files may be written again."""
        if self._leases:
            for number in ids:
                self._leases.pop(number, None)
        return ids

    @property
    def stem(self) -> str:
        """The stem of the uids of tasks that ranks submit, whose numbers each manager counts."""
        return self.uid if self.part.count == 1 else f'{self.uid}.{self.part.number:04d}'


class ApplicationPeer(Peer):
    """A connected application: a source of calls. `width` is the number of ranks of each of its calls."""

    __slots__ = ('_results', '_send', 'owed', 'ranks', 'source', 'width')

    def __init__(self, address: bytes, uid: str, process: PeerProcess, send: Send, router: CallRouter,
                 width: int) -> None:
        super().__init__(APPLICATION, address, uid, process)
        self._send = send
        self.width = width
        self.ranks = -1   # that it was told of
        self.source = router.open(self)
        self.owed = 0   # room that was not granted to it yet
        self._results = ResultGatherer(self._send_results)   # workers send those of long calls one by one

    def started(self, ids: array[int]) -> None:
        """Ignore the start of calls, which applications do not track."""

    def results(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Take results, which `flush` sends."""
        self._results.add(ids, payloads)

    def tell_ranks(self, ranks: int) -> None:
        """Report how many of its calls can run at a time, if that has changed."""
        if ranks != self.ranks:
            self.ranks = ranks
            self._send(self.address, ['ranks', ranks])

    def flush(self) -> None:
        """Send results, and grant room for as many calls."""
        self._results.flush()

    def _send_results(self, ids: array[int], payloads: Payloads) -> None:
        self._send(self.address, ['results', ids, payloads])
        self._make_room(len(payloads))

    def _make_room(self, count: int) -> None:
        self.owed += count
        if self.owed >= WINDOW // 8:
            self._send(self.address, ['room', self.owed])
            self.owed = 0


class SharingPeer(ApplicationPeer):
    """An application whose calls other masters share: its room follows what the workers can take soon."""

    __slots__ = ('granted',)

    def __init__(self, address: bytes, uid: str, process: PeerProcess, send: Send, router: CallRouter,
                 width: int) -> None:
        super().__init__(address, uid, process, send, router, width)
        self.granted = 0   # room that it has not used yet

    def _make_room(self, count: int) -> None:
        """Leave it to `grant`."""

    def grant(self, capacity: int) -> None:
        """Grant room for as many calls as the workers have or have credit for; much room while there is no worker."""
        window = min(WINDOW, capacity) if self.ranks else WINDOW
        room = window - self.source.open - self.granted
        if room > 0 and (room >= window // 8 or not self.granted):
            self.granted += room
            self._send(self.address, ['room', room])


class Audience(Protocol):
    """The interface for what follows from changes of workers."""

    def capacity_changed(self) -> None:
        """Handle workers that accept more calls, or a part of a worker that has ended."""

    def ended(self, uid: str, reason: str, *, failed: bool) -> None:
        """Handle the end of a worker."""

    def has_ranks(self, number: int) -> None:
        """Handle that the connected workers have so many ranks now."""

    def waits(self, text: str) -> None:
        """Handle that calls wait for workers that may never come, with the reason; empty: for none any more."""

    def run(self, uid: str, number: int, description: dict[str, Any], result: bytes,
            answer: Callable[[bytes], object]) -> None:
        """Run a task that a rank submits, or has run already with `result`; `answer` takes the result.

        `uid` is the stem of the uid of a task without one.
        """

"""The store of a caller: files for the large arguments of its calls, and for the results of these calls.

A large buffer is written to a file of its own when the call is made. So errors are raised there, and the caller can
change the buffer afterwards. A buffer that is passed again with the same content is in the store once: the contents are
compared, so that a changed one is noticed. A file is free when no call refers to it any more. It then keeps its content
for a further call with it, until another one is written to it, because new memory costs more than writing to it. Files
that ranks map (see `rp_api.blobs`) are not written again.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Sequence
from pickle import PickleBuffer

from rp_api import blobs
from rp_api.system import heap
from rp_api.system.shared_directory import SharedDirectory, place
from rp_raptor.wire import reused_files
from rp_raptor.wire.memory import address, equal

STORED_BYTES = 32 << 10
"""Size in bytes above which buffers and pickles are stored in files instead of being sent."""

_MAX_FREE_BYTES = 64 << 20   # bytes of free files
_PIECE = 64         # bytes of a piece of a sample
_KIND = b'V'


class StoredFile:
    """A file of a store with its content; `users` is the number of calls that refer to it."""

    __slots__ = ('capacity', 'content', 'key', 'path', 'sample', 'size', 'users', 'version')

    def __init__(self, path: str, capacity: int) -> None:
        self.path = path
        self.capacity = capacity
        self.size = self.version = self.users = 0
        self.key = (0, 0, False)   # address and size of the buffer that was written, and whether it is a `bytes`
        self.sample = b''        # pieces of the content
        self.content: memoryview | None = None   # a map of the content, once it was compared

    @property
    def place(self) -> tuple[str, int, int]:
        """Path, size and version for readers, see `reused_files.read`."""
        return self.path, self.size, self.version

    def has(self, buffer: memoryview, sample: bytes) -> bool:
        """Return whether the file has this content, with this sample; it has the same size."""
        if self.sample != sample:
            return False
        if self.content is None:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                found = memoryview(mmap.mmap(file, self.size, access=mmap.ACCESS_READ))
            finally:
                os.close(file)
            self.content = found[self.size - buffer.nbytes:]
        return equal(self.content, buffer)


class Lease:
    """Files that one call refers to, until this object is gone; `size` is the number of bytes written for it."""

    __slots__ = ('_store', 'files', 'size')

    def __init__(self, store: ValueStore, files: list[StoredFile], size: int) -> None:
        self._store = store
        self.files = files
        self.size = size

    def __del__(self) -> None:
        self._store.release(self.files)


class ValueStore:
    """Files in shared memory, or in the directory `overflow` on disk when there is no room; for any thread.

    `path` is the directory for results; empty if none can be made, so that nothing can be stored.
    """

    def __init__(self, overflow: str | None = None) -> None:
        heap.keep(blobs.COPIED)
        try:
            self._directory: SharedDirectory | None = SharedDirectory(overflow)
        except OSError:
            self._directory = None
        self.path = self._directory.path if self._directory else ''
        self._known: dict[tuple[int, int, bool], StoredFile] = {}
        self._free: dict[int, dict[StoredFile, None]] = {}   # by capacity, those that are free for the longest first
        self._kept = 0      # bytes of free files
        self._version = 0
        self._released: deque[StoredFile] = deque()
        self._lock = threading.Lock()

    @property
    def results(self) -> str:
        """The place and the directory for results of calls, as `rp_raptor.wire.payload.define` takes it."""
        return f'{place()}\n{self.path}' if self.path else ''

    def hold(self, buffers: Sequence[PickleBuffer]) -> Lease:
        """Store buffers; raise OSError if that fails."""
        with self._lock:
            self._take_released()
            lease = Lease(self, [], 0)
            for buffer in buffers:
                file, fresh = self._stored(buffer)
                file.users += 1
                lease.files.append(file)
                lease.size += fresh
        self._tidy()
        return lease

    def release(self, files: list[StoredFile]) -> None:
        """Note that a call does not refer to these files any more; may be called at any point of a program."""
        self._released.extend(files)
        self._tidy()

    def close(self) -> None:
        """Remove all files."""
        if self._directory is not None:
            self._directory.close()
            reused_files.unmap()

    def _tidy(self) -> None:
        """Free released files, unless another thread, or this one further up, is about to do it."""
        while self._released and self._lock.acquire(blocking=False):
            try:
                self._take_released()
            finally:
                self._lock.release()

    def _take_released(self) -> None:
        while self._released:
            file = self._released.popleft()
            file.users -= 1
            if not file.users:
                self._keep(file)

    def _stored(self, buffer: PickleBuffer) -> tuple[StoredFile, int]:
        """Return a file with this content, and how many bytes were written."""
        view = buffer.raw()
        key = address(view), view.nbytes, type(view.obj) is bytes   # another object may have had this address
        sample = _sample(view)
        file = self._known.get(key)
        if file is not None and file.has(view, sample):
            if not file.users:
                self._remove_free(file)
            return file, 0
        file = self._written(buffer)
        file.key, file.sample = key, sample
        self._known[key] = file
        return file, file.size

    def _written(self, buffer: PickleBuffer) -> StoredFile:
        content = [buffer]
        size = blobs.size_of(b'', content)
        self._version += 1
        file = self._reusable(size) if size <= blobs.COPIED else None
        if file is not None:
            reused_files.write_again(file.path, _KIND, b'', content, self._version)
        else:
            assert self._directory is not None
            file = StoredFile(self._directory.path_for(size), _capacity(size))
            blobs.write(file.path, _KIND, b'', content, self._version)
        file.size, file.version = size, self._version
        return file

    def _reusable(self, size: int) -> StoredFile | None:
        """Return the file that is free for the longest among the smallest ones that suffice."""
        wanted = _capacity(size)
        files = self._free.get(wanted)
        if not files:
            fitting = [capacity for capacity, files in self._free.items() if files and capacity > wanted]
            if not fitting or min(fitting) > blobs.COPIED:
                return None
            files = self._free[min(fitting)]
        file = next(iter(files))
        self._remove_free(file)
        self._forget(file)
        return file

    def _keep(self, file: StoredFile) -> None:
        """Keep a free file in memory, and remove others if these have become too many."""
        if file.size > _MAX_FREE_BYTES or not file.path.startswith(f'{self.path}/'):
            self._forget(file)
            reused_files.discard(file.path)
            return
        self._free.setdefault(file.capacity, {})[file] = None
        self._kept += file.size
        while self._kept > _MAX_FREE_BYTES:
            others = [files for capacity, files in self._free.items() if files and capacity != file.capacity]
            oldest = next(iter(others[0] if others else self._free[file.capacity]))
            self._remove_free(oldest)
            self._forget(oldest)
            reused_files.discard(oldest.path)

    def _remove_free(self, file: StoredFile) -> None:
        del self._free[file.capacity][file]
        self._kept -= file.size

    def _forget(self, file: StoredFile) -> None:
        """Note that a file loses its content."""
        if self._known.get(file.key) is file:
            del self._known[file.key]
        file.content = None


def _sample(buffer: memoryview) -> bytes:
    """Return pieces of a buffer, in which most other contents differ."""
    middle = buffer.nbytes // 2
    return bytes(buffer[:_PIECE]) + bytes(buffer[middle:middle + _PIECE]) + bytes(buffer[-_PIECE:])


def _capacity(size: int) -> int:
    """Return the size of files for contents of this size: at most a quarter more."""
    step = 1 << max(0, size.bit_length() - 3)
    return -(-size // step) * step

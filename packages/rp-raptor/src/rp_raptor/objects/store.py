"""The files of objects in one process: those that were put in it, and those that it has fetched."""

from __future__ import annotations

import os
import threading
from pickle import PickleBuffer
from typing import Any

from rp_api import blobs, pickles
from rp_api.errors import SerializationError
from rp_api.system.shared_directory import SharedDirectory
from rp_api.values import dump

_KIND = b'O'


class Store:
    """Files in a directory of this process in shared memory, made with the first one; may be used in any thread."""

    def __init__(self) -> None:
        self._directory: SharedDirectory | None = None
        self._files: set[str] = set()
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def write(self, value: Any) -> tuple[str, int]:
        """Write an object to a new file and return path and size; SerializationError if that fails."""
        buffers: list[PickleBuffer] = []
        data = dump(_contiguous(value), buffers, smallest=0)
        size = blobs.size_of(data, buffers)
        try:
            path = self.path_for(size)
            return path, blobs.write(path, _KIND, data, buffers)
        except OSError as error:
            raise SerializationError(f'cannot store {type(value).__name__} of {size} bytes: {error}') from error

    def path_for(self, size: int) -> str:
        """Return the path of a new file of so many bytes; OSError if there is no directory for it."""
        with self._lock:
            if self._directory is None:
                self._directory = SharedDirectory()
            path = self._directory.path_for(size)
            self._files.add(path)
            return path

    def restore(self, path: str) -> Any:
        """Return the object in a file."""
        return Mapped(path).value()

    def has(self, path: str) -> bool:
        """Return whether a file is in this store."""
        return path in self._files

    def discard(self, path: str) -> bool:
        """Remove a file; False in a fork of the process, to which it does not belong."""
        if os.getpid() != self._pid:
            return False
        self._files.discard(path)
        blobs.discard(path)
        return True

    def tidy(self) -> None:
        """Remove the directory if there are no files; the next one makes another."""
        with self._lock:
            if not self._files:
                self._close()

    def close(self) -> None:
        """Remove all files."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._directory is not None:
            self._directory.close()
            self._directory = None


class Mapped:
    """An object in a file that is mapped; `value` restores it without a copy of its buffers."""

    def __init__(self, path: str) -> None:
        _, self._body, self._buffers = blobs.read(path, shared=True)
        self._array: Any = None
        self._immutable: tuple[Any] | None = None

    def value(self) -> Any:
        """Return the object: a new one, unless it cannot be changed."""
        if self._array is not None:
            return self._array.view()   # the attributes of an array can be set, so that each call has one of its own
        if self._immutable is not None:
            return self._immutable[0]
        found = pickles.restore(self._body, 'an object', self._buffers)
        kind = type(found)
        if kind in (bytes, str, int, float, bool, type(None)):
            self._immutable = found,
        elif kind.__module__ == 'numpy' and kind.__name__ == 'ndarray' and not found.flags.writeable:  # type: ignore[attr-defined]
            self._array = found
            return found.view()  # type: ignore[attr-defined]
        return found


def _contiguous(value: Any) -> Any:
    """Return the value; an array whose elements are apart is copied, as it has no buffer that can be mapped."""
    kind = type(value)
    if kind.__module__ == 'numpy' and kind.__name__ == 'ndarray' and not (value.flags.forc or value.dtype.hasobject):
        return value.copy()
    return value

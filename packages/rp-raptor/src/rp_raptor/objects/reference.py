"""References to objects that were put at a master: what an application holds, and what stands for it in a call.

The process that puts an object owns it. A reference is pickled as the identifier of its object. It is restored as a
reference in the owner, and as the object itself in a rank, where `set_resolver` is called. An object is dropped when
neither a reference to it nor a call with one is left in the owner. Encoders therefore take what was pickled into a
call (`taken`) and keep it with the call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pickle import PickleBuffer
from threading import get_ident
from types import TracebackType
from typing import Any, Protocol
from weakref import ReferenceType, WeakSet, WeakValueDictionary, ref

from rp_api import blobs, pickles
from rp_api.errors import DeserializationError, SerializationError
from rp_api.system.shared_directory import SharedDirectory
from rp_api.values import dump

pending: dict[int, set[ReferenceType[Owned]]] = {}
"""Objects whose references were pickled and not taken yet, by thread."""

_owned: WeakValueDictionary[bytes, Owned] = WeakValueDictionary()
_resolver: Callable[[bytes, str], Any] | None = None
_KIND = b'O'


class Observer(Protocol):
    """The interface for what makes objects known to a master."""

    def dropped(self, id: bytes) -> None:
        """Note that an object is dropped; called in any thread."""


class Owned:
    """An object of this process; it is dropped, here and at the masters, when this is not referred to any more.

    `observers` are notified then, in any thread and at any point of a program.
    """

    __slots__ = ('__weakref__', '_store', 'id', 'kind', 'master', 'observers', 'path', 'size', 'weak')

    def __init__(self, store: ObjectStore, id: bytes, path: str, size: int, kind: str, master: str) -> None:
        self._store = store
        self.id, self.path, self.size, self.kind, self.master = id, path, size, kind, master
        self.observers: WeakSet[Observer] = WeakSet()
        self.weak = ref(self)
        _owned[id] = self

    def __del__(self) -> None:
        if self._store.discard(self.path):
            for observer in self.observers:
                observer.dropped(self.id)

    def value(self) -> Any:
        """Return the object, as a rank gets it."""
        return self._store.restore(self.path)


class ObjectRef:
    """A reference to an object that `put_object` has stored; as an argument of a call, it stands for the object.

    The object is dropped when all references to it are released or gone, and no call with one is without a result.
    As a context manager, a reference is released at the end.

    Attributes:
        size: Bytes of the object.
    """

    __slots__ = ('__weakref__', '_owned', '_reduced', '_text', 'size')

    def __init__(self, owned: Owned) -> None:
        self._owned: Owned | None = owned
        self._text = f'{owned.kind} of {owned.size} bytes at {owned.master}'
        self._reduced = (restored, (owned.id, owned.master))
        self.size = owned.size

    @property
    def released(self) -> bool:
        """Return whether this reference was released."""
        return self._owned is None

    def get(self) -> Any:
        """Return the object as calls get it: anew, with NumPy arrays as read-only views of the stored one.

        Raises:
            ValueError: If the reference was released.
        """
        if self._owned is None:
            raise ValueError(self._fault())
        return self._owned.value()

    def release(self) -> None:
        """Give up this reference. Calls that have no result yet keep the object; does nothing the second time."""
        self._owned = None

    def __enter__(self) -> ObjectRef:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.release()

    def __copy__(self) -> ObjectRef:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ObjectRef:
        return self

    def __repr__(self) -> str:
        return f'<ObjectRef {self._text}{", released" if self.released else ""}>'

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., Any], tuple[bytes, str]]:
        owned = self._owned
        if owned is None:
            raise SerializationError(self._fault())
        thread = get_ident()
        found = pending.get(thread)
        if found is None:
            pending[thread] = {owned.weak}
        else:
            found.add(owned.weak)
        return self._reduced

    def _fault(self) -> str:
        return f'the reference to the {self._text} was released'


def own(store: ObjectStore, value: Any, master: str) -> Owned:
    """Store an object that the master does not know yet; SerializationError if that fails."""
    path, size = store.write(value)
    return Owned(store, os.urandom(16), path, size, type(value).__name__, master)


def taken() -> tuple[Owned, ...]:
    """Return the objects whose references this thread has pickled since the last time."""
    found = pending.pop(get_ident(), None)
    if found is None:
        return ()
    alive = [owned for weak in found if (owned := weak()) is not None]
    return (alive[0],) if len(alive) == 1 else tuple(alive)


def restored(id: bytes, master: str) -> Any:
    """Return a reference in the owner of the object, and the object in a rank; called by `pickle`."""
    if _resolver is not None:
        return _resolver(id, master)
    owned = _owned.get(id)
    if owned is None:
        raise DeserializationError(f'a reference to an object at {master} can be used where the object was put, and in '
                                   'calls')
    return ObjectRef(owned)


def set_resolver(resolver: Callable[[bytes, str], Any] | None) -> None:
    """Restore references as what `resolver(id, master)` returns."""
    global _resolver
    _resolver = resolver


class ObjectStore:
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


class RankObjects:
    """The objects of a rank, mapped at their first use; `fetch(id)` returns path and fault of one that is not yet."""

    def __init__(self, fetch: Callable[[bytes], tuple[str, str]]) -> None:
        self._fetch = fetch
        self._mapped: dict[bytes, Mapped] = {}

    def resolve(self, id: bytes, master: str) -> Any:
        """Return the object; DeserializationError if it cannot be had."""
        mapped = self._mapped.get(id)
        if mapped is None:
            path, fault = self._fetch(id)
            if fault:
                raise DeserializationError(f'an object of {master} is not available: {fault}')
            mapped = self._mapped[id] = Mapped(path)
        return mapped.value()

    def drop(self, id: bytes) -> None:
        """Release an object; arrays that are in use stay valid."""
        self._mapped.pop(id, None)


def _contiguous(value: Any) -> Any:
    """Return the value; an array whose elements are apart is copied, as it has no buffer that can be mapped."""
    kind = type(value)
    if kind.__module__ == 'numpy' and kind.__name__ == 'ndarray' and not (value.flags.forc or value.dtype.hasobject):
        return value.copy()
    return value

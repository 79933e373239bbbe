"""References to objects that were put at a master: what an application holds, and what stands for it in a call.

The process that puts an object owns it. A reference is pickled as the identifier of its object. It is restored as a
reference in the owner, and as the object itself in a rank, where `set_resolver` is called. An object is dropped when
neither a reference to it nor a call with one is left in the owner. Encoders therefore take what was pickled into a
call (`taken`) and keep it with the call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import get_ident
from types import TracebackType
from typing import Any, Protocol
from weakref import ReferenceType, WeakSet, WeakValueDictionary, ref

from rp_api.errors import DeserializationError, SerializationError
from rp_raptor.objects.store import Store

pending: dict[int, set[ReferenceType[Owned]]] = {}
"""Objects whose references were pickled and not taken yet, by thread."""

_owned: WeakValueDictionary[bytes, Owned] = WeakValueDictionary()
_resolver: Callable[[bytes, str], Any] | None = None


class Observer(Protocol):
    """The interface for what makes objects known to a master."""

    def dropped(self, id: bytes) -> None:
        """Note that an object is dropped; called in any thread."""


class Owned:
    """An object of this process; it is dropped, here and at the masters, when this is not referred to any more.

    `observers` are notified then, in any thread and at any point of a program.
    """

    __slots__ = ('__weakref__', '_store', 'id', 'kind', 'master', 'observers', 'path', 'size', 'weak')

    def __init__(self, store: Store, id: bytes, path: str, size: int, kind: str, master: str) -> None:
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


def own(store: Store, value: Any, master: str) -> Owned:
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

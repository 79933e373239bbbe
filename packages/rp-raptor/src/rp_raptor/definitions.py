"""Functions of an executor, methods of workers and communicators, and how they are sent to workers.

A function travels as it is at the call. One that is called again, and has not changed, is defined at the masters once,
and calls refer to it. A definition lives as long as the executor. Lambdas made in a loop must not pile up, nor the
versions of a function that changes all the time, and a closure or a callable object may have changed since: these are
sent with each call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from rp_api import pickles
from rp_api.by_value.snapshot import Snapshot
from rp_api.errors import CoordinationError
from rp_raptor.objects.reference import Owned
from rp_raptor.unchanged import unchanged
from rp_raptor.wire.payload import define, encode_call, pickled_apart, pickled_function
from rp_raptor.wire.store import ValueStore

_MOST_VERSIONS = 16
"""Definitions of one function; it is sent with each call when it has changed more often."""

_SEGMENT = '/dev/shm/mpich_shm_'   # begins the names of MPICH's shared memory
_CHECK_INTERVAL_S = 0.001

_objects: list[Any] = []   # the worker object of this process, if it is a rank
Arguments = tuple[list[Any], dict[str, Any]]


class PreparedDefinition(NamedTuple):
    """A function as it was at some time, for calls that are made later."""

    fid: bytes | None   # if it is defined
    function: bytes
    objects: tuple[Owned, ...] = ()   # that the function refers to


class _Defined:
    """A function that was called before."""

    __slots__ = ('content', 'fid', 'snapshot', 'versions')

    def __init__(self) -> None:
        self.fid: bytes | None = None   # of the latest definition, None if the function has changed since
        self.snapshot: Snapshot | None = None
        self.content = b''   # the digest of the pickle at that time
        self.versions = 0


class Definitions:
    """Turns calls of any functions into payloads; `tell(fid, blob)` sends a definition before its first use.

    With `output`, results bring the output of the calls.
    """

    def __init__(self, tell: Callable[[bytes, bytes], object], store: ValueStore | None = None, *,
                 output: bool = False) -> None:
        self._tell = tell
        self._store = store
        self._output = output
        self._told: set[bytes] = set()
        self._seen: WeakKeyDictionary[FunctionType, _Defined] = WeakKeyDictionary()
        self._methods: dict[WorkerMethod, bytes] = {}

    def encode(self, func: Callable[..., Any] | PreparedDefinition, args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> tuple[bytes, bytes]:
        """Return identifier and payload of a call; SerializationError if function or arguments cannot be serialized."""
        fid = func.fid if isinstance(func, PreparedDefinition) else self._known(func)
        if fid is not None:
            return fid, encode_call(fid, args, kwargs or None, self._store)
        if isinstance(func, PreparedDefinition):
            return self._along(func.function, [], args, kwargs)
        return self._along(*pickled_apart(func), args, kwargs)

    def prepare(self, func: Callable[..., Any]) -> PreparedDefinition:
        """Return the function as it is now, to be given to `encode`; SerializationError if it cannot be serialized."""
        fid = self._known(func)
        return PreparedDefinition(fid, b'' if fid is not None else pickled_function(func))

    def define(self, func: Callable[..., Any]) -> bytes:
        """Define a function at the masters if needed, and return its identifier."""
        fid, blob = define(func, self._store.results if self._store else '', output=self._output)
        if fid not in self._told:
            self._told.add(fid)
            self._tell(fid, blob)
        return fid

    def _known(self, func: Callable[..., Any]) -> bytes | None:
        """Return the identifier of a function that is defined as it is now; None if it has to be sent with the call."""
        if isinstance(func, WorkerMethod):
            fid = self._methods.get(func)
            if fid is None:
                fid = self._methods[func] = self.define(func)
            return fid
        if not isinstance(func, FunctionType) or func.__closure__:
            return None
        defined = self._seen.get(func)
        if defined is None:
            self._seen[func] = _Defined()
            return None
        if defined.fid is not None and defined.snapshot is not None and unchanged(defined.snapshot, func):
            return defined.fid
        return self._renewed(defined, func)

    def _renewed(self, defined: _Defined, func: FunctionType) -> bytes | None:
        """Define a function that was called before; None if it has changed since it was defined."""
        snapshot = Snapshot(func)   # before it is pickled: another thread may change it meanwhile
        content = _digest(func)
        if defined.fid is not None and content != defined.content:
            defined.fid = None
            return None
        if defined.fid is None:
            if defined.versions == _MOST_VERSIONS:
                return None
            defined.versions += 1
            defined.fid = self.define(func)
        defined.snapshot, defined.content = snapshot, content
        return defined.fid

    def _along(self, function: bytes, buffers: list[Any], args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> tuple[bytes, bytes]:
        fid = self.define(call_along)
        return fid, encode_call(fid, (function, buffers, args, kwargs), None, self._store)


def _digest(func: FunctionType) -> bytes:
    """Return a digest of the pickled function, which is not copied for it."""
    data, buffers = pickled_apart(func)
    digest = blake2b(data, digest_size=32)
    for buffer in buffers:
        digest.update(buffer.raw())
    return digest.digest()


def call_along(*given: Any) -> Any:
    """Call a function that was sent with its call, on a worker, which may insert a communicator as first argument."""
    *comm, function, buffers, args, kwargs = given
    args, kwargs = with_communicator(comm, args, kwargs)
    restored: Any = pickles.restore(function, 'a function', buffers)
    return restored(*args, **kwargs)


@dataclass(frozen=True, repr=False)
class WorkerMethod:
    """A method of the worker object, as a function for streams, executors and tasks; made by `worker_method`."""

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method, in a rank of a worker; RuntimeError elsewhere."""
        if not _objects:
            raise RuntimeError(f'{self!r} can be called on workers only: pass it to a stream, an executor or a '
                               'PythonTask in place of a function')
        return find_method(_objects[0], self.name)(*args, **kwargs)

    def __repr__(self) -> str:
        return f'worker_method({self.name!r})'

    def __reduce__(self) -> tuple[type[WorkerMethod], tuple[str]]:
        return WorkerMethod, (self.name,)


def worker_method(name: str) -> WorkerMethod:
    """Return a function that calls this method of the worker object, in which a model may have been loaded once.

    It is used in place of a function: in streams, executors, the calls of a master, and `PythonTask`. A call with
    several ranks calls the method on each of them, with the communicator as first argument. If a worker's class has no
    such method, the calls there fail with a ValueError.

    Args:
        name: The name of a method of the worker's class.

    Returns:
        A function that raises RuntimeError where it is called outside of a worker.

    Raises:
        TypeError: If the name is no text.
        ValueError: If the name cannot be that of a method.
    """
    if not isinstance(name, str):
        raise TypeError(f'the name of a method of workers must be a text, not {name!r:.80}')
    if not name.isidentifier():
        raise ValueError(f'the name of a method of workers must be an identifier of Python, not {name!r:.80}')
    return WorkerMethod(name)


def set_worker_object(worker: Any) -> None:
    """Bind all `worker_method`s of this process to this object."""
    _objects[:] = [worker]


def find_method(worker: Any, name: str) -> Any:
    """Return a method of a worker object; ValueError with the names of its methods if there is no such method."""
    method = getattr(worker, name, None)
    if not callable(method):
        own = vars(worker)   # no `getattr` on the object: properties may do anything
        found = [each for each in dir(worker) if not each.startswith('_')
                 and callable(own.get(each, getattr(type(worker), each, None)))]
        raise ValueError(f'{type(worker).__name__} has no method {name!r}; its methods are {", ".join(found)}')
    return method


def start_mpi(ranks: int) -> int:
    """Initialise MPI on all ranks of a job of `ranks` ranks; return the rank in COMM_WORLD."""
    from mpi4py import MPI  # the import initialises MPI

    world = MPI.COMM_WORLD
    if world.size != ranks:
        raise CoordinationError(f'COMM_WORLD has {world.size} ranks instead of {ranks}: mpiexec and the library that '
                                'mpi4py loads belong to different MPI installations')
    _unname_segments(world.Ibarrier())
    return int(world.rank)


def _unname_segments(barrier: Any) -> None:
    """Remove the names of MPICH's shared memory when all ranks have mapped it: with them it outlives killed ranks."""
    while not barrier.Test():
        time.sleep(_CHECK_INTERVAL_S)
    with open('/proc/self/maps', encoding='utf-8', errors='surrogateescape') as maps:
        paths = {line.rstrip('\n')[line.find('/'):] for line in maps if _SEGMENT in line}
    for path in paths:
        with suppress(FileNotFoundError):   # another rank was faster
            os.unlink(path)


@contextmanager
def communicator(group: Sequence[int], tag: int) -> Generator[Any, None, None]:
    """Return a communicator over these ranks of COMM_WORLD; all of them have to call this. It is freed at exit."""
    from mpi4py import MPI

    members = MPI.COMM_WORLD.group.Incl(list(group))
    try:
        made = MPI.COMM_WORLD.Create_group(members, tag)
    finally:
        members.Free()
    try:
        yield made
    finally:
        made.Free()


def with_communicator(comms: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Arguments:
    """Return the arguments with the communicator, if there is one, in its place or before all others."""
    for comm in comms:
        args, kwargs = insert(comm, args, kwargs) or ([comm, *args], kwargs)
    return list(args), kwargs


def insert(comm: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Arguments | None:
    """Return the arguments with the communicator in its place: the keyword `comm=None`, or a first argument None.

    Return None if the call has no such place.
    """
    if 'comm' in kwargs and kwargs['comm'] is None:
        return list(args), {**kwargs, 'comm': comm}
    if args and args[0] is None:
        return [comm, *args[1:]], kwargs
    return None

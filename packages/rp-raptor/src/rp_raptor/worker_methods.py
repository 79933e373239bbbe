"""Calls of a method of the worker object: a function that stands for the method until a rank calls it."""

from __future__ import annotations

from typing import Any

_objects: list[Any] = []   # the worker object of this process, if it is a rank


class WorkerMethod:
    """A method of the worker object, as a function for streams, executors and tasks; made by `worker_method`."""

    __slots__ = ('_name',)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method, in a rank of a worker; RuntimeError elsewhere."""
        if not _objects:
            raise RuntimeError(f'{self!r} can be called on workers only: pass it to a stream, an executor or a '
                               'PythonTask in place of a function')
        return find_method(_objects[0], self._name)(*args, **kwargs)

    def __repr__(self) -> str:
        return f'worker_method({self._name!r})'

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkerMethod) and other._name == self._name

    def __hash__(self) -> int:
        return hash((WorkerMethod, self._name))

    def __reduce__(self) -> tuple[type[WorkerMethod], tuple[str]]:
        return WorkerMethod, (self._name,)


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
    """Let all `worker_method`s of this process call methods of this object."""
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

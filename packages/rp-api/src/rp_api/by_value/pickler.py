"""Pickles objects by value where the receiver cannot import them: cloudpickle, and what `functools` makes of functions.

Objects of C that `functools` wraps around a function, with caches and locks inside, are restored from that function.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pickle import PickleBuffer
from types import FunctionType, MethodType
from typing import Any

import cloudpickle

from rp_api.by_value.classes import reduced_class
from rp_api.by_value.out_of_band import BUFFER_BYTES, out_of_band_pickler
from rp_api.by_value.references import by_reference, global_names
from rp_api.errors import SerializationError, sentence

_PROTOCOL = 5
_BY_VALUE = 6   # parts of the reduction of a class that travels by value

_CACHED: type = functools._lru_cache_wrapper
_DISPATCHING = functools.singledispatch(lambda value: value).__code__   # type: ignore[attr-defined]
"""The code of all functions that `functools.singledispatch` makes."""

_OF_CACHED = frozenset({'__wrapped__', 'cache_parameters'})
_OF_DISPATCHING = frozenset({'__wrapped__', 'register', 'dispatch', 'registry', '_clear_cache'})
"""Attributes that `functools` sets on each such object."""

Buffers = list[PickleBuffer] | None
_DEEPEST = 50
Part = tuple[str, Any]   # a label, and the object


def dumps(value: Any, buffers: Buffers = None, smallest: int = BUFFER_BYTES) -> bytes:
    """Return the pickled object; raise SerializationError, which names the part that cannot be pickled, on failure.

    Large contents are added to `buffers`, if given, see `rp_api.by_value.out_of_band`.
    """
    try:
        return _dumps(value) if buffers is None else out_of_band_pickler(_Pickler, smallest)(value, buffers)
    except Exception as error:   # the type of exception depends on the object

        raise SerializationError(f'cannot serialise {cause(value, error, _dumps)}') from error


def _dumps(value: Any) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file, _PROTOCOL).dump(value)
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):   # type: ignore[misc]
    def reducer_override(self, value: Any) -> Any:
        """Reduce objects of `functools` to functions, and others as cloudpickle does."""
        kind = type(value)
        if kind is memoryview:
            return _restored_view, (PickleBuffer(_contiguous(value)), value.format, value.shape)
        if kind is _CACHED:
            return NotImplemented if by_reference(value) else _reduced_cached(value)
        if kind is FunctionType and value.__code__ is _DISPATCHING:
            return NotImplemented if by_reference(value) else _reduced_dispatching(value)
        if isinstance(value, functools.cached_property):
            return _restored_property, (kind,), {name: each for name, each in vars(value).items() if name != 'lock'}
        reduced = super().reducer_override(value)
        by_value = isinstance(value, type) and reduced is not NotImplemented and len(reduced) == _BY_VALUE
        return reduced_class(value, reduced) if by_value else reduced


def _contiguous(view: memoryview) -> memoryview | bytes:
    return view if view.c_contiguous else view.tobytes()


def _restored_view(buffer: Any, kind: str, shape: tuple[int, ...]) -> memoryview:
    """Return a memoryview of this format and shape; one of bytes if `memoryview` makes no such one."""
    view = memoryview(buffer).cast('B')
    try:
        return view.cast(kind, shape)   # type: ignore[call-overload, no-any-return]
    except (ValueError, TypeError, NotImplementedError):   # a format such as '<d', an empty shape
        return view


def _reduced_cached(value: Any) -> tuple[Any, ...]:
    parameters = value.cache_parameters()
    return (_restored_cached, (value.__wrapped__, parameters['maxsize'], parameters['typed']),
            _own(value, _OF_CACHED))


def _restored_cached(function: Any, maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _reduced_dispatching(value: Any) -> tuple[Any, ...]:
    state = _own(value, _OF_DISPATCHING), list(value.registry.items())
    return functools.singledispatch, (value.__wrapped__,), state, None, None, _set_dispatching


def _set_dispatching(function: Any, state: tuple[dict[str, Any], list[tuple[type, Any]]]) -> None:
    attributes, registry = state
    vars(function).update(attributes)
    for kind, implementation in registry:
        function.register(kind, implementation)


def _restored_property(kind: type[functools.cached_property[Any]]) -> Any:
    made = kind.__new__(kind)
    fresh = vars(functools.cached_property(_restored_property))
    if 'lock' in fresh:   # until Python 3.11
        vars(made)['lock'] = fresh['lock']
    return made


def _own(value: Any, others: frozenset[str]) -> dict[str, Any]:
    """Return the attributes of an object but for these others."""
    return {name: each for name, each in vars(value).items() if name not in others}


def cause(value: Any, error: Exception, dumps: Callable[[Any], bytes]) -> str:
    """Return the name of an object, of the parts that lead to the one that `dumps` cannot pickle, and the error."""
    words, seen = [_name(value)], {id(value)}
    while len(words) < _DEEPEST:
        found = next(((label, part, failure) for label, part in _parts(value)
                      if id(part) not in seen and (failure := _failure(part, dumps)) is not None), None)
        if found is None:
            break
        label, value, error = found
        words.append(f'{label} ({_name(value)})')
        seen.add(id(value))
    return f'{": ".join(words)}: {sentence(error)}'


def _failure(part: Any, dumps: Callable[[Any], bytes]) -> Exception | None:
    try:
        dumps(part)
    except Exception as error:
        return error
    return None


def _name(value: Any) -> str:
    if isinstance(value, type):
        return f'class {value.__qualname__}'
    if isinstance(value, FunctionType | MethodType):
        return f'function {value.__qualname__}'
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == 'builtins' else f'{kind.__module__}.{kind.__qualname__}'


def _parts(value: Any) -> Iterator[Part]:
    """Yield the objects that are pickled with an object, as far as they have names."""
    if isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, type):
        yield from () if by_reference(value) else _labelled('attribute', vars(value))
    elif isinstance(value, dict):
        yield from (('key', key) for key in value)
        yield from ((f'item {key!r:.80}', each) for key, each in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f'item {number}', each) for number, each in enumerate(value))
    elif isinstance(value, MethodType | partial | staticmethod | classmethod | property):
        names = ('__self__', '__func__', 'func', 'args', 'keywords', 'fget', 'fset', 'fdel')
        yield from ((f'its {name.strip("_")}', getattr(value, name)) for name in names if hasattr(value, name))
    elif all(getattr(type(value), name) is getattr(object, name) for name in ('__reduce__', '__reduce_ex__')):
        yield 'its class', type(value)
        yield from _labelled('attribute', getattr(value, '__dict__', {}))


def _parts_of_function(function: FunctionType) -> Iterator[Part]:
    if by_reference(function):
        return
    for name in global_names(function.__code__):
        if name in function.__globals__:
            yield f'global variable {name}', function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):   # it is empty
            yield f'variable {name} of the function around it', cell.cell_contents
    yield from (('default value', each) for each in function.__defaults__ or ())
    yield from _labelled('default value of', function.__kwdefaults__ or {})
    yield from _labelled('attribute', vars(function))


def _labelled(label: str, parts: Mapping[str, Any]) -> Iterator[Part]:
    return ((f'{label} {name}', each) for name, each in parts.items())

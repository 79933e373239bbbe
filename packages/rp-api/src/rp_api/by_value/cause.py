"""Finds the part of an object because of which it cannot be pickled, and names the way to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from rp_api.by_value.references import by_reference, global_names
from rp_api.errors import sentence

_DEEPEST = 50

Part = tuple[str, Any]   # a label, and the object


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

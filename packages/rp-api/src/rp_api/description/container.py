"""Containers of tasks: the attribute `container` of a task description, and its checks.

A container is a dict of `image`, `tool`, `binds` and `gpu`; a string is short for its image. Every key but the image is
optional.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_api.description.casts import program
from rp_api.record import CastError, suggestion

IMAGE = 'image'
TOOL = 'tool'
BINDS = 'binds'
GPU = 'gpu'

TOOLS = ('apptainer', 'singularity', 'podman', 'charliecloud')
"""The container tools, in the order in which an agent looks for them."""

GPUS = ('', 'nvidia', 'rocm')

_MODES = ('ro', 'rw')
_UNFIT = ('\0', '\n', ',')
"""Characters that the tools cannot take in a path, as a comma separates binds."""


def container(value: Any) -> dict[str, Any]:
    """Cast to a container; the same object is returned if nothing changes."""
    given = {IMAGE: value} if isinstance(value, str | os.PathLike) else value
    if not isinstance(given, Mapping):
        raise CastError("an image, or a dict with the key 'image'")
    if not given:   # the default: no container
        return given if isinstance(given, dict) else {}
    for name in given:
        if name not in _CASTS:
            raise CastError(f'a dict with the keys {", ".join(_CASTS)} (not {name!r}{suggestion(str(name), _CASTS)})')
    found = {name: _CASTS[name](each) for name, each in given.items() if each is not None}
    if IMAGE not in found:
        raise CastError(f"a dict with the key {IMAGE!r}")
    return value if value == found and isinstance(value, dict) else found


def merged(of_environment: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container of a task with a named environment of type container.

    Args:
        of_environment: The container of the environment.
        own: The container of the task's description, empty if it has none. Its keys take precedence, and its binds are
            added.
    """
    found = {**of_environment, **own}
    binds = [*of_environment.get(BINDS, ()), *own.get(BINDS, ())]
    if binds:
        found[BINDS] = list(dict.fromkeys(binds))
    return found


def parts_of(bind: str) -> tuple[str, str, str]:
    """Return the source, the target and the mode of a bind: `ro`, or '' for the default, `rw`."""
    source, _, rest = bind.partition(':')
    target, _, mode = rest.partition(':')
    if target in _MODES and not mode:
        target, mode = '', target
    return source, target or source, '' if mode == 'rw' else mode


def _image(value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = program(value)
    if not isinstance(value, str) or not value or value.startswith('-') or '\0' in value:
        raise CastError(f'a dict whose {IMAGE} is a path or the name of an image (not {value!r})')
    return value


def _tool(value: Any) -> str:
    if value not in ('', *TOOLS):
        raise CastError(f'a dict whose {TOOL} is one of {", ".join(map(repr, TOOLS))} (not {value!r})')
    return str(value)


def _gpu(value: Any) -> str:
    if value not in GPUS:
        raise CastError(f'a dict whose {GPU} is one of {", ".join(map(repr, GPUS))} (not {value!r})')
    return str(value)


def _binds(value: Any) -> list[str]:
    given = [value] if isinstance(value, str | os.PathLike) else value
    if not isinstance(given, list | tuple):
        raise CastError(f'a dict whose {BINDS} is a list of paths (not {value!r})')
    return [_bind(each) for each in given]


def _bind(value: Any) -> str:
    text = os.fsdecode(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not _is_bind(text):
        raise CastError(f"a dict whose {BINDS} are 'SOURCE', 'SOURCE:TARGET' or 'SOURCE:TARGET:ro', absolute paths "
                        f'without commas (not {value!r})')
    return text


def _is_bind(text: str) -> bool:
    source, target, mode = parts_of(text)
    return (all(path.startswith(('/', '$')) for path in (source, target)) and mode in ('', 'ro')
            and not any(char in text for char in _UNFIT))


_CASTS = {IMAGE: _image, TOOL: _tool, BINDS: _binds, GPU: _gpu}

"""The requirements of calls and programs, and the size of the pilot, as users give them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

_UNITS = {'d': 1440, 'h': 60, 'm': 1, 'min': 1, 's': 1 / 60}
"""Minutes of a unit of time."""

_DURATION = re.compile(r'(?:\s*\d+(?:\.\d+)?\s*(?:d|h|min|m|s))+\s*')
_PART = re.compile(r'(\d+(?:\.\d+)?)\s*(d|h|min|m|s)')


class Requirements(NamedTuple):
    """The requirements of a call or a program."""

    ranks: int = 1
    cores_per_rank: int = 1
    gpus_per_rank: float = 0
    timeout: float = 0
    retries: int = 0
    cache: bool | str = False

    @property
    def of_call(self) -> dict[str, float]:
        """The attributes of a RAPTOR call with these requirements, without those that have their default."""
        found = {'ranks': self.ranks, 'cores': self.cores_per_rank, 'gpus': self.gpus_per_rank, 'timeout': self.timeout}
        return {name: value for name, value in found.items() if value != _OF_CALL[name]}


_OF_CALL = {'ranks': 1, 'cores': 1, 'gpus': 0, 'timeout': 0}


def _whole(least: int) -> tuple[Callable[[Any], bool], str]:
    return lambda value: type(value) is int and value >= least, f'a whole number of at least {least}'


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _key(value: Any) -> bool:
    return type(value) is bool or (isinstance(value, str) and value != '')


_ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    'ranks': _whole(1),
    'cores_per_rank': _whole(1),
    'gpus_per_rank': (_number, 'a number of at least 0'),
    'timeout': (_number, 'a number of seconds of at least 0, where 0 means no limit'),
    'retries': _whole(0),
    'cache': (_key, 'True, False or a key, which is text')}


def checked(given: Mapping[str, Any], base: Requirements) -> Requirements:
    """Return the requirements `base`, changed as given.

    Raises:
        TypeError: A name is unknown.
        ValueError: A value is not allowed.
    """
    for name, value in given.items():
        if name not in _ALLOWED:
            raise TypeError(f'{name!r} is not a requirement of a call: allowed are {", ".join(_ALLOWED)}')
        allowed, sentence = _ALLOWED[name]
        if not allowed(value):
            raise ValueError(f'{name} is {value!r}, it must be {sentence}')
    return base._replace(**given)


def size(name: str, value: Any) -> int:
    """Return the number of cores, nodes or GPUs of a pilot; ValueError if it is none."""
    least = 0 if name == 'gpus' else 1
    if type(value) is not int or value < least:
        raise ValueError(f'{name} is {value!r}, it must be a whole number of at least {least}')
    return value


def minutes(runtime: Any) -> int:
    """Return a run time in whole minutes, rounded up: of text ('1h', '90m', '1h30m'), minutes, or a timedelta.

    Raises:
        ValueError: The run time is none of these, or not above 0.
    """
    found = math.nan
    if isinstance(runtime, timedelta):
        found = runtime.total_seconds() / 60
    elif type(runtime) in (int, float):
        found = runtime
    elif isinstance(runtime, str) and _DURATION.fullmatch(runtime):
        found = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(runtime))
    if not 0 < found < math.inf:
        raise ValueError(f"runtime is {runtime!r}, it must be a number of minutes, a timedelta, or text such as '90m', "
                         "'1h' or '1d12h', and above 0")
    return math.ceil(found)

"""Times and sizes as users write them: `'90m'`, `'1:30:00'` or a `timedelta`, and `'4GB'` or `'512MiB'`.

They are casts as those of `rp_api.description.casts`: each raises `CastError` for what it does not accept.
"""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from rp_api.errors import attribute_type_error
from rp_api.record import CastError, number

MINUTE_S = 60.0
MB = 1024 * 1024
"""Bytes of a MB, as batch systems count: 1 GB is 1024 MB, and GB is GiB."""

Time: TypeAlias = 'float | str | timedelta'
"""A time as users write it."""

_SECONDS = {'d': 86400, 'h': 3600, 'm': 60, 'min': 60, 's': 1}
_NUMBER = r'\d{1,15}(?:\.\d{1,15})?'   # no text is infinite
_PARTS = re.compile(rf'(?:\s*{_NUMBER}\s*(?:d|h|min|m|s))+\s*')
_PART = re.compile(rf'({_NUMBER})\s*(d|h|min|m|s)')
_CLOCK = re.compile(r'\s*(?:(\d{1,9})-)?(\d{1,9}):([0-5]\d):([0-5]\d)\s*')
_BYTES = {'': 1, 'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30, 't': 1 << 40}
_SIZE = re.compile(rf'\s*({_NUMBER})\s*([kmgt]?)i?b\s*|\s*({_NUMBER})\s*([kmgt])\s*', re.IGNORECASE)


def seconds(value: Any, unit: float = 1.0) -> float:
    """Return a time in seconds.

    Args:
        value: Text such as `90m`, `1d12h`, `1:30:00` or `2-12:00:00` (days, hours, minutes, seconds), a `timedelta`, or
            a number.
        unit: Seconds of the unit of a number.
    """
    if type(value) is float and math.isfinite(value):   # the usual case
        return value * unit
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        if clock := _CLOCK.fullmatch(value):
            days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
            return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
        if _PARTS.fullmatch(value):
            return sum(float(count) * _SECONDS[name] for count, name in _PART.findall(value))
    try:
        return number(value) * unit
    except CastError:
        raise CastError(f'a number of {"minutes" if unit == MINUTE_S else "seconds"}, a timedelta, or text such as '
                        "'90m', '1d12h' or '1:30:00'") from None


def limit(value: Any, name: str = 'timeout') -> float | None:
    """Return the seconds of a time limit, the argument of that name; None, for no limit, stays None. See `seconds`."""
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise CastError('a number of seconds')
        return seconds(value)
    except CastError as error:
        raise attribute_type_error(f'{name} is {value!r}, it must be {error}, or None for no limit') from None


def minutes(value: Any) -> int:
    """Return a time in whole minutes, rounded up; numbers are minutes. See `seconds`."""
    return math.ceil(round(seconds(value, MINUTE_S) / MINUTE_S, 9))


def byte_count(value: Any, unit: int = 1) -> int:
    """Return a size in bytes, rounded up.

    Args:
        value: Text such as `4GB`, `512MiB` or `1.5T`, or a number.
        unit: Bytes of the unit of a number.
    """
    size = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if size is not None:
        count, prefix, short_count, short_prefix = size.groups()
        return math.ceil(float(count or short_count) * _BYTES[(prefix or short_prefix or '').lower()])
    try:
        found = number(value)
    except CastError:
        found = -1.0
    if found < 0:
        raise CastError(f"a number of {'MB' if unit == MB else 'bytes'}, at least 0, or text such as '4GB' or '512MiB'")
    return math.ceil(found * unit)


def megabytes(value: Any) -> int:
    """Return a size in MB, rounded up; numbers are MB. See `byte_count`."""
    return -(-byte_count(value, MB) // MB)


def shown_time(value: float | None) -> str:
    """Return a time in seconds as text for users, such as `0.25 s`; empty for None."""
    return '' if value is None else f'{value:.3g} s' if value < 1000 else f'{value:.0f} s'


def shown_size(value: float | None) -> str:
    """Return a number of bytes as text for users, such as `200 MB`; empty for None."""
    if value is None:
        return ''
    for unit in ('B', 'KB', 'MB', 'GB', 'TB'):
        if value < 1000 or unit == 'TB':
            break
        value /= 1024
    return f'{value:.3g} {unit}'


def option(cast: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the `type` of an argument of `argparse`: it is cast so, and at least 0."""
    def convert(text: str) -> Any:
        try:
            found = cast(text)
        except CastError as error:
            raise ArgumentTypeError(f'{text!r} is not {error}') from None
        if found < 0:
            raise ArgumentTypeError(f'{text!r} is less than 0')
        return found
    return convert

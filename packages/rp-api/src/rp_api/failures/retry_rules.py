"""The attributes `retries`, `retry_on`, `retry_delay`, `retry_with` and `expect` of a task description.

Plain data in, plain data out: what is allowed, which failures are followed by another attempt, and what the description
of that attempt is.
"""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import Any

from rp_api import units
from rp_api.backoff import backoff
from rp_api.failures import kinds as k
from rp_api.failures.kinds import KINDS
from rp_api.record import Cast, CastError, integer, number
from rp_api.system.signals import name_of

BY_DEFAULT = frozenset(
    {k.EXIT, k.SIGNAL, k.MEMORY, k.OUTPUT, k.EXCEPTION, k.TIMEOUT, k.NODE, k.PILOT, k.LOST, k.INTERNAL})
"""The kinds of failures that are retried without `retry_on`: what may succeed the next time."""

NEVER = frozenset({k.CANCELED, k.DEPENDENCY, k.DESCRIPTION, k.STAGING})
"""The kinds of failures that are never retried: another run of the program does not change them."""

RESTARTS = 3
"""Deaths of nodes or agents at which a task may have been running; then it is suspected of causing them, and fails."""

LONGEST_DELAY = 600.0
"""Seconds to which a delay grows, unless the first one is longer."""

MOST_RETRIES = 1000
"""Largest value of `retries`: the history of all attempts travels with each."""

COMMAND = 'command:'
"""The beginning of an entry of `expect` that is a command and not a file."""

_STDERR = 'stderr:'
_WORDS = tuple(kind for kind in KINDS if kind not in NEVER)
_LIMITED = ('mem_per_rank', 'lfs_per_rank', 'cores_per_rank', 'gpus_per_rank')
CHANGEABLE = (*_LIMITED, 'ranks_per_node', 'timeout', 'startup_timeout', 'priority', 'executable', 'arguments',
              'environment', 'pre_launch', 'post_launch', 'pre_exec', 'post_exec', 'tags')
"""The attributes that `retry_with` may change."""

_NUMBERS = (*_LIMITED, 'ranks_per_node', 'timeout', 'startup_timeout', 'priority')
_UNITS: Mapping[str, Cast] = {
    'mem_per_rank': units.megabytes, 'lfs_per_rank': units.megabytes, 'timeout': units.seconds,
    'startup_timeout': units.seconds}
_CHANGE = re.compile(r'([*+])\s*(\d+(?:\.\d+)?)\Z')


def rule(value: Any) -> int | str:
    """Cast to an entry of `retry_on`."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if type(value) is int and value != 0:
        return value
    if isinstance(value, str):
        if value in _WORDS or value in _signals():
            return value
        if value.startswith(_STDERR) and value != _STDERR:
            try:
                re.compile(value.removeprefix(_STDERR))
            except re.error as error:
                raise CastError(f'"stderr:" with a valid regular expression ({error})') from None
            return value
    if isinstance(value, signal.Signals):
        return value.name
    raise CastError(f'an exit code other than 0, the name of a signal such as "SIGBUS", "stderr:<regex>", or one of '
                    f'{", ".join(_WORDS)}')


def retries(value: int) -> str | None:
    """Check `retries`."""
    return None if 0 <= value <= MOST_RETRIES else f'a number from 0 to {MOST_RETRIES}'


def change(value: Any) -> dict[str, Any]:
    """Cast to `retry_with`."""
    if not isinstance(value, Mapping) or not all(name in CHANGEABLE for name in value):
        raise CastError(f'a dict with new values of some of {", ".join(CHANGEABLE)}')
    for name, new in value.items():
        if name in _NUMBERS and isinstance(new, str) and not _CHANGE.match(new) and not _is_amount(name, new):
            raise CastError(f'a dict in which {name} is a number, or "*" or "+" with a number, such as "*2"')
    return dict(value)


def _is_amount(name: str, value: str) -> bool:
    """Return whether a text is a time or a size, which the attribute of that name takes."""
    try:
        _UNITS[name](value)
    except (KeyError, CastError):
        return False
    return True


def expected(value: Any) -> str:
    """Cast to an entry of `expect`."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(value, str) and '\0' not in value and value.removeprefix(COMMAND).strip():
        return value
    raise CastError('the name of a file, or "command:" with a command')


def is_relative(name: str, value: Any) -> bool:
    """Return whether a new value in `retry_with` depends on the old one."""
    return name in _NUMBERS and isinstance(value, str) and _CHANGE.match(value) is not None


class RetryRules:
    """Decides if a task gets another attempt, after how many seconds, and with which description."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        """Read the attributes of a description; raise `CastError` or `TypeError` if a value is not valid."""
        restartable = bool(description.get('restartable'))
        self._rules = {rule(value) for value in description.get('retry_on') or ()}
        self._retries = integer(description.get('retries') or 0)
        self._delay = number(description.get('retry_delay', 1.0))
        self._with = change(description.get('retry_with') or {})
        if retries(self._retries) or not 0 <= self._delay < math.inf:
            raise CastError(f'a valid number, not retries={self._retries} and retry_delay={self._delay}')
        if not self._rules and self._retries:
            self._rules = set(BY_DEFAULT)
        if restartable:
            self._rules |= {k.NODE, k.PILOT}
        self.most = 1 + self._retries
        """The number of attempts that may fail; those that were lost do not count."""

    def restarts(self, kind: str) -> bool:
        """Return whether the task runs again after an attempt was lost with its pilot or node (the kind)."""
        return kind in self._rules

    def covers(self, record: Mapping[str, Any], exit_code: int | None, stderr: Callable[[], str]) -> bool:
        """Return whether a failure is one that is followed by another attempt.

        Args:
            record: The record of the failure.
            exit_code: The exit code of the program; None without one.
            stderr: Returns the standard error of the program; it is called only if a rule needs it.
        """
        kind = record.get('kind')
        if self.most == 1 or kind in NEVER:
            return False
        by = record.get('signal')
        if kind in self._rules or exit_code in self._rules or (by and name_of(by) in self._rules):
            return True
        patterns = [str(each).removeprefix(_STDERR) for each in self._rules if str(each).startswith(_STDERR)]
        text = stderr() if patterns else ''
        return any(re.search(pattern, text, re.MULTILINE) for pattern in patterns)

    @property
    def reads_stderr(self) -> bool:
        """True if a rule needs the standard error."""
        return any(str(each).startswith(_STDERR) for each in self._rules)

    def delay(self, failed: int) -> float:
        """Return the seconds before the next attempt after so many failed ones, without jitter."""
        return backoff(failed, self._delay, LONGEST_DELAY)

    def changes(self, description: Mapping[str, Any], limits: Mapping[str, float]) -> dict[str, Any]:
        """Return the attributes that the next attempt changes.

        Args:
            description: The description of the attempt that has failed.
            limits: What a node has of the resources, by attribute; attributes that are unknown are missing.
        """
        found = {}
        for name, new in self._with.items():
            match = _CHANGE.match(new) if isinstance(new, str) and name in _NUMBERS else None
            if match:
                old = description[name] or 0
                by = float(match[2])
                new = old * by if match[1] == '*' else old + by
                if name in limits:   # but never less than before
                    new = max(old, min(new, limits[name]))
                new = type(old)(new)
            found[name] = new
        return found


def _signals() -> frozenset[str]:
    return frozenset(name_of(number) for number in signal.valid_signals())

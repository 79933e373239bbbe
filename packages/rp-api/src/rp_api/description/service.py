"""The attribute `service` of a task description, and patterns of information: their validation and normal form.

The normal form has plain values only, and is its own normal form. It has all keys of `restart`, but of the others only
those that the user has set: their defaults depend on other attributes of the task (see `probe_of`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rp_api.errors import DescriptionError
from rp_api.record import CastError, flag, integer, number, suggestion, text
from rp_api.units import seconds

STDOUT = 'stdout'
STDERR = 'stderr'
FILE = 'file'

_NAME = re.compile(r'[A-Za-z0-9_][A-Za-z0-9._-]*\Z')
_KINDS = ('http', 'port', 'file', 'pattern', 'signal', 'runs')
_FIELDS = ('host', 'port')

RESTART = {'attempts': 0, 'delay': 0.5, 'factor': 2.0, 'limit': 30.0}
"""The defaults of `restart`: restarts in a row, seconds before the first, growth of the delay, its largest value."""

PROBE = {'interval': 1.0, 'timeout': 5.0}
"""The defaults of a probe: seconds between two looks, and those that one look may take."""


class Pattern(NamedTuple):
    """The source of a service's information."""

    source: str
    """`stdout`, `stderr` or `file`."""
    path: str
    """The path of the file, relative to the sandbox of the task or absolute; '' for the outputs."""
    regex: str

    def find(self, line: str) -> str | None:
        """Return the information in a line: the last group of the regular expression, or all that it matches."""
        found = re.search(self.regex, line)
        return None if found is None else found.group(found.re.groups) or ''


def parse_pattern(value: str, what: str) -> Pattern:
    """Return the parts of a pattern; raise DescriptionError, which names the attribute `what`, if it is not valid."""
    source, _, rest = value.partition(':')
    path, colon, regex = rest.partition(':') if source == FILE else ('', ':', rest)
    if source not in (STDOUT, STDERR, FILE) or not regex or not colon or (source == FILE and not path):
        raise DescriptionError(f'{what} is {value!r}, but must be "stdout:<regex>", "stderr:<regex>" or '
                               '"file:<path>:<regex>"')
    try:
        re.compile(regex)
    except re.error as error:
        raise DescriptionError(f'{what} is {value!r}, but its regular expression is not valid: {error}') from None
    return Pattern(source, path, regex)


def service(value: Any) -> dict[str, Any]:
    """Return the normal form of the attribute `service`; raise DescriptionError if it is not valid."""
    return _dict('TaskDescription.service', value, _CASTS)


def probe_of(settings: Mapping[str, Any], info_pattern: str) -> dict[str, Any]:
    """Return the complete probe of a service, which has exactly one key of `_KINDS`.

    Args:
        settings: The attribute `service` in normal form.
        info_pattern: The attribute `info_pattern`.
    """
    probe = dict(settings.get('probe') or ())
    if not probe.keys() & set(_KINDS):
        default: dict[str, Any] = {'runs': True}
        if info_pattern:
            default = {'pattern': info_pattern}
        elif 'port' in settings:
            default = {'port': True}
        probe |= default
    if 'http' in probe:
        probe.setdefault('status', 200)
    return {**PROBE, **probe}


def _dict(what: str, value: Any, casts: Mapping[str, Callable[[str, Any], Any]]) -> dict[str, Any]:
    """Return a dict with cast values, without those that are None."""
    if not isinstance(value, Mapping):
        raise DescriptionError(f'{what} is {value!r}, but must be a dict')
    for key in value:
        if key not in casts:
            raise DescriptionError(f'{what} has no key {key!r}{suggestion(str(key), casts)}')
    cast = {key: casts[key](f'{what}[{key!r}]', each) for key, each in value.items() if each is not None}
    return {key: each for key, each in cast.items() if each is not None}


def _to(cast: Callable[[Any], Any], kind: str, allowed: Callable[[Any], bool]) -> Callable[[str, Any], Any]:
    """Return a cast to values that are `allowed`, which `kind` describes."""
    def cast_value(what: str, value: Any) -> Any:
        try:
            found = cast(value)
        except CastError:
            found = None
        if found is None or not allowed(found):
            raise DescriptionError(f'{what} is {value!r}, but must be {kind}')
        return found
    return cast_value


def _restart(what: str, value: Any) -> dict[str, Any]:
    found = {**RESTART, **_dict(what, value, _RESTART_CASTS)}
    if found['limit'] < found['delay']:
        raise DescriptionError(f'{what}["limit"] is {found["limit"]}, but must not be less than the delay, '
                               f'{found["delay"]}')
    return found


def _probe(what: str, value: Any) -> dict[str, Any]:
    found = _dict(what, value, _PROBE_CASTS)
    kinds = [kind for kind in _KINDS if kind in found]
    if len(kinds) > 1:
        raise DescriptionError(f'{what} has {" and ".join(map(repr, kinds))}, but must have one of them')
    if 'status' in found and 'http' not in found:
        raise DescriptionError(f'{what} has "status" without "http"')
    return found


def _pattern(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise DescriptionError(f'{what} is {value!r}, but must be a string')
    parse_pattern(value, what)
    return value


def _info(what: str, value: Any) -> str:
    """Check a text with the fields {host} and {port}."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text(value)) if field is not None]
    except (CastError, ValueError):
        fields = ['']
    if not set(fields) <= set(_FIELDS):
        raise DescriptionError(f'{what} is {value!r}, but must be a text with no other fields than {{host}} and '
                               '{port}; other braces are doubled')
    return text(value)


def _router(what: str, value: Any) -> dict[str, Any] | None:
    """Cast to the settings of a router; None without one."""
    if isinstance(value, bool):
        value = {} if value else None
    return None if value is None else {'retry_unsafe': False, **_dict(what, value, _ROUTER_CASTS)}


_seconds = _to(seconds, 'a number of seconds above 0, a timedelta, or text such as "90s" or "1m"',
               lambda value: value > 0)
_flag = _to(flag, 'true or false', lambda value: True)
_true = _to(flag, 'true', bool)

_ROUTER_CASTS = {'retry_unsafe': _flag}

_RESTART_CASTS = {
    'attempts': _to(integer, 'an integer that is not negative', lambda value: value >= 0),
    'delay': _to(seconds, 'a number of seconds that is not negative, a timedelta, or text such as "90s" or "1m"',
                 lambda value: value >= 0),
    'factor': _to(number, 'a number that is not less than 1', lambda value: value >= 1),
    'limit': _seconds,
}

_PROBE_CASTS = {
    'http': _to(text, 'a path that begins with "/"', lambda value: re.match(r'/[!-~]*\Z', value) is not None),
    'status': _to(integer, 'an HTTP status from 100 to 599', lambda value: 100 <= value <= 599),
    'port': _true,
    'file': _to(text, 'a path', lambda value: bool(value) and '\0' not in value),
    'pattern': _pattern,
    'signal': _true,
    'runs': _true,
    'interval': _seconds,
    'timeout': _seconds,
}

_CASTS = {
    'name': _to(text, 'a word of letters, digits, "_", "." and "-"', lambda value: _NAME.match(value) is not None),
    'port': _to(integer, 'a port number, or 0 for a free one', lambda value: 0 <= value <= 65535),
    'probe': _probe,
    'liveness': _flag,
    'restart': _restart,
    'info': _info,
    'router': _router,
}


def check(settings: Mapping[str, Any], info_pattern: str) -> None:
    """Check the attributes `service`, in normal form, and `info_pattern` of a service task together.

    Raises:
        DescriptionError: They are not valid, or contradict each other.
    """
    if info_pattern:
        parse_pattern(info_pattern, 'TaskDescription.info_pattern')
    if 'port' not in settings:
        probe = settings.get('probe') or {}
        needs = ("probe['http']" if 'http' in probe else "probe['port']" if 'port' in probe else
                 'router' if settings.get('router') is not None else
                 'info' if '{port}' in settings.get('info', '') else '')
        if needs:
            raise DescriptionError(f"TaskDescription.service has {needs}, which needs the key 'port': the number of a "
                                   'port, or 0 for a free one, which the service gets as $RP_SERVICE_PORT')

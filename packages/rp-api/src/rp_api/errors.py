"""The error tree of the project: every exception that a caller may want to catch.

All of them derive from `PilotError`. Where a built-in exception says the same thing (`ValueError` for bad input,
`RuntimeError` for something that went wrong), the class derives from that as well, so that code which only knows the
built-in ones keeps working. A message says what happened, to which object, and what is allowed or what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

LONGEST = 2000
"""Characters of a sentence: some errors quote all that they are about."""


class PilotError(Exception):
    """Root of all errors raised by this project."""


class DescriptionError(PilotError, ValueError):
    """A description is incomplete or contradicts itself."""


class AttributeUnknown(DescriptionError, KeyError):
    """A description has an attribute that does not exist."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which turns a sentence into a quoted string
        return str(self.args[0]) if self.args else ''


class AttributeTypeError(DescriptionError, TypeError):
    """An attribute has a value that cannot be cast to the attribute's type."""


class StateError(PilotError, ValueError):
    """An entity was told to leave a state that it cannot leave in that way."""


class StagingError(PilotError, RuntimeError):
    """A staging directive could not be carried out."""

    def __init__(self, directive: str, path: str, reason: str) -> None:
        super().__init__(f'staging directive [{directive}] failed on {path}: {reason}')
        self.directive = directive
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return StagingError, (self.directive, self.path, self.reason)


class PlatformError(PilotError, RuntimeError):
    """A platform is unknown, or its definition is broken."""


class ResourceError(PilotError, ValueError):
    """A resource request can never be satisfied."""


class LimitError(PilotError, RuntimeError):
    """A process may not open as many files, or start as many threads, as it needs."""


class CoordinationError(PilotError, RuntimeError):
    """Client, hub and agents cannot work together (any more)."""


class OwnershipError(CoordinationError, PermissionError):
    """A directory or file that has to be this user's own is another user's, or open to others."""


class SerializationError(PilotError):
    """An object cannot be serialised."""


class DeserializationError(PilotError):
    """A serialised object cannot be restored; `original_exception` is the cause, if there is one."""

    def __init__(self, message: str, original_exception: BaseException | None = None) -> None:
        super().__init__(message)
        self.original_exception = original_exception


def sentence(error: BaseException) -> str:
    """What an error says, as text that can be sent; with its type, unless it is one of ours or of the system."""
    known = isinstance(error, PilotError | OSError) and str(error)
    text = str(error) if known else f'{type(error).__name__}: {error}'
    if len(text) > LONGEST:
        text = f'{text[:LONGEST]} [...]'
    try:
        text.encode('utf-8', 'surrogateescape')
    except UnicodeEncodeError:
        return text.encode('utf-8', 'backslashreplace').decode()
    return text


def _also(ours: type[DescriptionError], foreign: str,
          maker: Callable[[str], DescriptionError]) -> type[DescriptionError]:
    """The class `ours`, joined with the class of that name in radical.utils when the application has loaded it.

    Applications catch `radical.utils.typeddict.TDKeyError` and `TDTypeError`; they must have imported them for that,
    so looking at the loaded modules is enough and radical.utils need not be installed. A copy of such an exception, in
    another process, is made by `maker` anew, from what is loaded there.
    """
    theirs = getattr(sys.modules.get('radical.utils.typeddict'), foreign, None)
    if not theirs:
        return ours
    return type(ours.__name__, (ours, theirs), {
        '__str__': AttributeUnknown.__str__, '__reduce__': lambda self: (maker, self.args)})


def unknown_attribute(message: str) -> DescriptionError:
    """An `AttributeUnknown` to raise; also a `TDKeyError` of radical.utils if that is loaded."""
    return _also(AttributeUnknown, 'TDKeyError', unknown_attribute)(message)


def attribute_type_error(message: str) -> DescriptionError:
    """An `AttributeTypeError` to raise; also a `TDTypeError` of radical.utils if that is loaded."""
    return _also(AttributeTypeError, 'TDTypeError', attribute_type_error)(message)

"""The exceptions of the project, all derived from `PilotError`.

A class also derives from the built-in exception with the same meaning (`ValueError` for bad input, `RuntimeError` for a
failed operation), so that code which catches only built-in exceptions keeps working. A message names the object, the
problem, and the allowed values or the remedy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

MAX_ERROR_CHARS = 2000
"""Maximum length of an error text in characters; the rest is cut off."""


class PilotError(Exception):
    """The root of all errors of this project."""


class DescriptionError(PilotError, ValueError):
    """A description is incomplete or contradictory."""


class AttributeUnknown(DescriptionError, KeyError):
    """A description has an unknown attribute."""

    def __str__(self) -> str:
        # KeyError would return the repr of the message
        return str(self.args[0]) if self.args else ''


class AttributeTypeError(DescriptionError, TypeError):
    """A value cannot be cast to the type of its attribute."""


class StateError(PilotError, ValueError):
    """A state is unknown, or a transition between two states is not allowed."""


class StagingError(PilotError, RuntimeError):
    """A staging directive failed."""

    def __init__(self, directive: str, path: str, reason: str) -> None:
        super().__init__(f'staging directive [{directive}] failed on {path}: {reason}')
        self.directive = directive
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return StagingError, (self.directive, self.path, self.reason)


class PlatformError(PilotError, RuntimeError):
    """A platform is unknown, or its definition is invalid."""


class ResourceError(PilotError, ValueError):
    """A resource request can never be satisfied."""


class LimitError(PilotError, RuntimeError):
    """A limit on open files or threads is too low for this process."""


class CoordinationError(PilotError, RuntimeError):
    """Client, hub and agents cannot communicate, or no longer."""


class OwnershipError(CoordinationError, PermissionError):
    """A directory or file belongs to another user, or is accessible to others."""


class NoPilot(PilotError, RuntimeError):
    """Tasks wait, and their task manager has no pilot that could run them."""


class SerializationError(PilotError):
    """An object cannot be serialised."""


class DeserializationError(PilotError):
    """A serialised object cannot be restored; `original_exception` is the cause, or None."""

    def __init__(self, message: str, original_exception: BaseException | None = None) -> None:
        super().__init__(message)
        self.original_exception = original_exception


def sentence(error: BaseException) -> str:
    """Return the text of an error for sending; it includes the type unless it is an error of ours or of the system."""
    known = isinstance(error, PilotError | OSError) and str(error)
    text = str(error) if known else f'{type(error).__name__}: {error}'
    if len(text) > MAX_ERROR_CHARS:
        text = f'{text[:MAX_ERROR_CHARS]} [...]'
    try:
        text.encode('utf-8', 'surrogateescape')
    except UnicodeEncodeError:
        return text.encode('utf-8', 'backslashreplace').decode()
    return text


_joined: dict[tuple[type, type], type[DescriptionError]] = {}
"""Classes of errors that are ours and those of radical.utils: one for each pair, so that equal errors compare equal."""


def _also(ours: type[DescriptionError], foreign: str,
          maker: Callable[[str], DescriptionError]) -> type[DescriptionError]:
    """Return the class `ours`, joined with the class of that name in radical.utils if the application has imported it.

    Applications catch `radical.utils.typeddict.TDKeyError` and `TDTypeError`, which requires importing them; therefore
    it suffices to look at loaded modules, and radical.utils need not be installed. A pickled exception is created by
    `maker` in the receiving process, from the modules that are loaded there.
    """
    theirs = getattr(sys.modules.get('radical.utils.typeddict'), foreign, None)
    if not theirs:
        return ours
    if (ours, theirs) not in _joined:
        _joined[ours, theirs] = type(ours.__name__, (ours, theirs), {
            '__str__': AttributeUnknown.__str__, '__reduce__': lambda self: (maker, self.args)})
    return _joined[ours, theirs]


def unknown_attribute(message: str) -> DescriptionError:
    """Return an `AttributeUnknown`; it is also a `TDKeyError` of radical.utils if that is loaded."""
    return _also(AttributeUnknown, 'TDKeyError', unknown_attribute)(message)


def attribute_type_error(message: str) -> DescriptionError:
    """Return an `AttributeTypeError`; it is also a `TDTypeError` of radical.utils if that is loaded."""
    return _also(AttributeTypeError, 'TDTypeError', attribute_type_error)(message)

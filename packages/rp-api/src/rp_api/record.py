"""Dict-like records with a fixed set of typed fields: plain data on the wire, attributes in the code.

A record is a dict, so that it goes through msgpack and JSON as it is. Its fields can be read and set as items
and as attributes, all fields are always there (but for required ones that were never given), a value is cast
to its field's type when it is set, and an unknown field is refused with the name that was probably meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from rp_api.errors import DescriptionError, attribute_type_error, unknown_attribute

REQUIRED: Any = object()  # the default of a field that has none: `verify` insists on it

_TRUE = {'1', 'true', 'yes', 'on'}
_FALSE = {'0', 'false', 'no', 'off'}


class Field(NamedTuple):
    """The type of a field, as a function that casts a value or raises, and its default (or its maker)."""

    cast: Callable[[Any], Any]
    default: Any = REQUIRED


class Record(dict[str, Any]):
    """A dict with the fields of `FIELDS` and no others.

    Sub-classes list their fields in `FIELDS` and annotate them, so that attribute access is type-checked.
    None stands for the default, except in a required field, whose cast decides.
    """

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Field]] = {}

    def __init__(self, from_dict: Mapping[str, Any] | None = None, **values: Any) -> None:
        super().__init__()
        if from_dict is not None and not isinstance(from_dict, Mapping):
            raise attribute_type_error(f'{type(self).__name__} is made from a dict, not from {from_dict!r}')
        for name, field in self.FIELDS.items():
            if field.default is not REQUIRED:
                self[name] = None
        self.update(from_dict or {}, **values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f'{type(self).__name__} has no attribute {name!r}') from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith('_'):
            super().__setattr__(name, value)
        else:
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, self._cast(name, value))

    def update(self, *mappings: Any, **values: Any) -> None:
        """Sets all given fields, cast and checked like single assignments."""
        for name, value in dict(*mappings, **values).items():
            self[name] = value

    def as_dict(self) -> dict[str, Any]:
        """The record as plain dicts and lists, which share nothing with it."""
        return {name: plain(value) for name, value in self.items()}

    def verify(self) -> None:
        """Returns if every required field is set, else raises a DescriptionError that names a missing one."""
        for name, field in self.FIELDS.items():
            if field.default is REQUIRED and name not in self:
                raise DescriptionError(f'{type(self).__name__}.{name} is required')

    def _cast(self, name: str, value: Any) -> Any:
        field = self.FIELDS.get(name)
        if field is None:
            hint = suggestion(name, self.FIELDS)
            raise unknown_attribute(f'{type(self).__name__} has no field {name!r}{hint}')
        if value is None and field.default is not REQUIRED:
            return field.default() if callable(field.default) else field.default
        try:
            return field.cast(value)
        except CastError as error:
            where = f'{type(self).__name__}.{name}'
            raise attribute_type_error(f'{where} must be {error}, not {value!r}') from None


R = TypeVar('R', bound=Record)


class CastError(Exception):
    """A value cannot be cast; the text says what it should be ('an integer')."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to append to a message about an unknown name: the nearest known ones, or all if they are few."""
    import difflib  # only needed for messages

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return ': did you mean ' + ' or '.join(repr(each) for each in near) + '?'
    return ': known are ' + ', '.join(names) if len(names) <= 10 else ''


def plain(value: Any) -> Any:
    """The value with all records, mappings, tuples and lists inside turned into plain dicts and lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def anything(value: Any) -> Any:
    """The value as it is."""
    return value


def integer(value: Any) -> int:
    """A whole number; text and floats that are one are taken."""
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        raise CastError('an integer') from None
    if isinstance(value, float) and whole != value:
        raise CastError('an integer')
    return whole


def count(value: Any) -> int:
    """A whole number that is not negative."""
    try:
        whole = integer(value)
    except CastError:
        whole = -1
    if whole < 0:
        raise CastError('an integer that is not negative')
    return whole


def number(value: Any) -> float:
    """A finite float."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise CastError('a number') from None
    if result - result != 0.0:  # infinities and NaN
        raise CastError('a finite number')
    return result


def text(value: Any) -> str:
    """A string; numbers are written out."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise CastError('a string')


def flag(value: Any) -> bool:
    """A bool; also yes/no, true/false, on/off, 1/0 as text or number."""
    word = str(value).strip().lower()
    if word not in _TRUE and word not in _FALSE:
        raise CastError('true or false')
    return word in _TRUE


def list_of(cast: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """A cast to a list of such values; a single value makes a list of one."""
    def cast_list(value: Any) -> list[Any]:
        values = value if isinstance(value, list | tuple) else [value]
        try:
            return [cast(item) for item in values]
        except CastError as error:
            raise CastError(f'a list where each item is {error}') from None
    return cast_list


def dict_of(cast: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """A cast to a dict of such values with text as keys."""
    def cast_dict(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise CastError('a dict')
        try:
            return {str(key): cast(item) for key, item in value.items()}
        except CastError as error:
            raise CastError(f'a dict where each value is {error}') from None
    return cast_dict


def record(cls: type[R]) -> Callable[[Any], R]:
    """A cast of a dict to the record class `cls`; errors inside keep their own message."""
    def cast_record(value: Any) -> R:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise CastError(f'a {cls.__name__} or dict')
        return cls(value)
    return cast_record

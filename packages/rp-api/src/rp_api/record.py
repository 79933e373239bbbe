"""Dict-like records with a fixed set of typed fields: plain data on the wire, attributes in the code.

A record is a dict, so msgpack and JSON serialise it. Fields can be read and set as items and as attributes. All fields
are always present, except required ones that were never set; a value is cast to the field's type when it is set; an
unknown field raises an error that suggests similar names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from rp_api.errors import DescriptionError, attribute_type_error, unknown_attribute

REQUIRED: Any = object()  # the default of a field without one, which `verify` requires

SIMILAR = 0.75
"""Least similarity, from 0 to 1, of a name that an error suggests for an unknown one: `ranks` for `raks`, but not
`services` for `retries`."""

_TRUE = {'1', 'true', 'yes', 'on'}
_FALSE = {'0', 'false', 'no', 'off'}


Cast = Callable[[Any], Any]
Check = Callable[[Any], 'str | None']


class Field(NamedTuple):
    """The type of a field, its default value or factory, and the check of its range.

    The type is a cast, and in descriptions any of those that `rp_api.description.casts` describes. Only descriptions
    have checks.
    """

    cast: Any
    default: Any = REQUIRED
    check: Check | None = None


def field(cast: Cast, default: Any = REQUIRED) -> Any:
    """Return a field of a record, for a class attribute annotated with the type of its values."""
    return Field(cast, default)


class Record(dict[str, Any]):
    """A dict with the fields of its class and no others.

    Subclasses declare fields as annotated attributes, `name: type = field(cast, default)`, which are collected in
    `FIELDS`. None means the default, except for a required field, whose cast decides.
    """

    __slots__ = ()
    FIELDS: ClassVar[Mapping[str, Field]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        cls.FIELDS = {**cls.FIELDS, **own}
        for name in own:
            delattr(cls, name)   # otherwise it would hide the value of an instance

    def __init__(self, from_dict: Mapping[str, Any] | None = None, **values: Any) -> None:
        super().__init__()
        if from_dict is not None and not isinstance(from_dict, Mapping):
            raise attribute_type_error(f'{type(self).__name__} takes a dict, not {from_dict!r}')
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
        """Set the given fields, cast and checked like single assignments."""
        for name, value in dict(*mappings, **values).items():
            self[name] = value

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain dicts and lists, as copies."""
        return {name: plain(value) for name, value in self.items()}

    def verify(self) -> None:
        """Raise a DescriptionError if a required field is not set."""
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
    """A value cannot be cast; the text describes the type ('an integer').

    If an item of a list or a dict is wrong, `place` says where it is, such as `[2]` or `['key']`, and `part` is that
    item.
    """

    def __init__(self, kind: str, place: str = '', part: Any = None) -> None:
        super().__init__(kind)
        self.place = place
        self.part = part


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: similar known names, or all of them if they are few."""
    import difflib  # only needed for messages

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=SIMILAR)
    if near:
        return ': did you mean ' + ' or '.join(repr(each) for each in near) + '?'
    return ': known are ' + ', '.join(names) if len(names) <= 10 else ''


def plain(value: Any) -> Any:
    """Return the value with all records, mappings, tuples and lists in it converted to plain dicts and lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def anything(value: Any) -> Any:
    """Return the value unchanged."""
    return value


def integer(value: Any) -> int:
    """Cast to an integer; text and floats with an integer value are accepted."""
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        raise CastError('an integer') from None
    if isinstance(value, float) and whole != value:
        raise CastError('an integer')
    return whole


def count(value: Any) -> int:
    """Cast to a non-negative integer."""
    try:
        whole = integer(value)
    except CastError:
        whole = -1
    if whole < 0:
        raise CastError('an integer that is not negative')
    return whole


def number(value: Any) -> float:
    """Cast to a finite float."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise CastError('a number') from None
    if result - result != 0.0:  # infinities and NaN
        raise CastError('a finite number')
    return result


def text(value: Any) -> str:
    """Cast to a string; numbers and paths are converted."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise CastError('a string')


def flag(value: Any) -> bool:
    """Cast to a bool; yes/no, true/false, on/off and 1/0 are accepted as text or number."""
    word = str(value).strip().lower()
    if word not in _TRUE and word not in _FALSE:
        raise CastError('true or false')
    return word in _TRUE


def list_of(cast: Cast) -> Callable[[Any], list[Any]]:
    """Return a cast to a list of such values; a single value becomes a list of one."""
    def cast_list(value: Any) -> list[Any]:
        many = isinstance(value, list | tuple)
        values = value if many else [value]
        try:
            return [cast(item) for item in values]
        except CastError as error:
            kind = f'a list where each item is {error}'
            raise _in_collection(kind, cast, enumerate(values)) if many else CastError(kind) from None
    return cast_list


def dict_of(cast: Cast) -> Callable[[Any], dict[str, Any]]:
    """Return a cast to a dict of such values with string keys."""
    def cast_dict(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise CastError('a dict')
        try:
            return {str(key): cast(item) for key, item in value.items()}
        except CastError as error:
            raise _in_collection(f'a dict where each value is {error}', cast, value.items()) from None
    return cast_dict


def _in_collection(kind: str, cast: Cast, items: Iterable[tuple[Any, Any]]) -> CastError:
    """Return the error about the first of these items that cannot be cast; `kind` describes the whole."""
    for key, item in items:
        try:
            cast(item)
        except CastError as error:
            return CastError(kind, f'[{key!r}]{error.place}', error.part if error.place else item)
    return CastError(kind)


def record(cls: type[R]) -> Callable[[Any], R]:
    """Return a cast from a dict to the record class `cls`; errors of its fields keep their own message."""
    def cast_record(value: Any) -> R:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise CastError(f'a {cls.__name__} or dict')
        return cls(value)
    return cast_record

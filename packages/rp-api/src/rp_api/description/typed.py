"""The base class of descriptions: a dict whose keys are attributes, with types and defaults.

Rules of this module:

- Only values that were set are stored, because an application may hold hundreds of thousands of descriptions.
- Users always see all attributes: reading one that was not set returns its default, and `in`, `len`, iteration,
  `keys`, `items`, `dict(...)` and comparison include them all. A mutable default (a list, a dict) is created and stored
  when it is read as an attribute, by index or by `get`; `items` and `values` return copies.
- Nothing is checked on assignment. `verify` casts every value to the type of its attribute and rejects values that
  cannot be cast, unknown names, and values out of range. None means "not set".
- An unknown name is remembered with the file and the line that set it, which the error of `verify` names.
- An alias is an old name of an attribute. `verify` moves its value to the new name; reading the old name then returns
  the value of the new one. Aliases are not among the keys, because a dict with both names would be ambiguous.
"""

from __future__ import annotations

import sys
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, ClassVar, TypeVar

from rp_api.description.casts import cast_for
from rp_api.description.html_table import html_table
from rp_api.description.renamed import warn_renamed
from rp_api.errors import AttributeUnknown, DescriptionError, attribute_type_error, unknown_attribute
from rp_api.record import Cast, CastError, Check, Field, plain, suggestion

D = TypeVar('D', bound='Description')

_MAX_VALUE_CHARS = 200  # maximum length of a value in an error message

_OURS = ('rp_api', 'rp_client', 'rp_raptor', 'rp_agent')
"""Packages whose calls are not those of the application."""


class NoSuchAttribute(AttributeUnknown, AttributeError):
    """An attribute that does not exist and was never set was read: both a `KeyError` and an `AttributeError`."""


_NOT_SHOWN = frozenset({'check', 'derive', 'from_sparse', 'sparse', 'verify_alone', 'verify_call'})
"""Methods for other parts of the system."""


class Description(dict[str, Any]):
    """A dict with typed attributes; see the rules of this module.

    A subclass lists its attributes in `_fields` (name -> type, default and check), and optionally `_aliases` (old name
    -> name) and `_units` (name -> cast of values that may have a unit).
    """

    __slots__ = ('_origins',)

    _origins: dict[str, str]   # of unknown names; most descriptions have none

    _fields: ClassVar[Mapping[str, Field]] = {}
    _aliases: ClassVar[Mapping[str, str]] = {}
    _units: ClassVar[Mapping[str, Cast]] = {}

    # derived from the tables above for each subclass
    _schema: ClassVar[Mapping[str, Any]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}
    _casts: ClassVar[Mapping[str, Cast]] = {}
    _checks: ClassVar[Mapping[str, Check]] = {}
    _known: ClassVar[frozenset[str]] = frozenset()
    _mutable: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._schema = {name: field.cast for name, field in cls._fields.items()}
        cls._defaults = {name: field.default for name, field in cls._fields.items()}
        cls._checks = {name: field.check for name, field in cls._fields.items() if field.check}
        cls._mutable = tuple(name for name, value in cls._defaults.items() if isinstance(value, list | dict))
        casts = {name: cast_for(cls._units.get(name, spec)) for name, spec in cls._schema.items()}
        cls._casts = casts | {old: casts[new] for old, new in cls._aliases.items()}
        cls._known = frozenset(cls._casts)

    def __init__(self, from_dict: Mapping[str, Any] | None = None, **attributes: Any) -> None:
        """Create a description.

        Args:
            from_dict: A dict of attributes, or another description.
            **attributes: Attributes; they take precedence over those in `from_dict`.

        Raises:
            DescriptionError: `from_dict` is not a dict.
        """
        if type(from_dict) is dict and not attributes:   # the common case
            super().__init__(from_dict)
            if not self._known.issuperset(from_dict):
                self._note_unknown()
            return
        super().__init__()
        if isinstance(from_dict, Mapping):
            self.update(from_dict, **attributes)
        elif from_dict is None:
            self.update(attributes)
        else:
            raise attribute_type_error(f'{type(self).__name__} takes a dict, not {_shown(from_dict)}')

    @classmethod
    def from_sparse(cls: type[D], values: Mapping[str, Any]) -> D:
        """Return the description with these values; the inverse of `sparse`."""
        return cls(values)

    def sparse(self) -> dict[str, Any]:
        """Return the values that differ from their defaults, as plain data that shares no list or dict with this."""
        defaults = self._defaults
        found = {}
        for name, value in self._stored():
            if name not in defaults or value != defaults[name]:
                found[name] = _sparse(value) if isinstance(value, list | tuple | dict) else value
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes and other keys, as plain data that shares no list or dict with this."""
        full = self._full()
        for name, value in self._stored():
            if isinstance(value, list | tuple | dict):
                full[name] = plain(value)
        return full

    def verify(self) -> None:
        """Cast all values to the types of their attributes, and set attributes that follow from others.

        Raises:
            DescriptionError: A name is unknown, a value has a wrong type or is out of range, or attributes that are
                needed are missing or contradict each other.
        """
        self.check()
        self.derive()

    def derive(self) -> None:
        """Set attributes that follow from others. Subclasses override this."""

    def check(self) -> None:
        """Cast all values as `verify` does, but derive none: a description that is sent stays small."""
        self._resolve_aliases()
        casts, unset = self._casts, []
        for name, value in self._stored():
            if value is None and name in casts:
                unset.append(name)
                continue
            cast = self._cast(name, value)
            if cast is not value:
                dict.__setitem__(self, name, cast)  # the key exists, so the dict may change while it is iterated
        for name in unset:
            del self[name]
        self._verify()

    def verify_alone(self, values: dict[str, Any]) -> bool:
        """Verify single attributes; return False if one of them needs the complete `check`.

        `values` has the attributes; their cast values are set in it and in the description.
        """
        for name, value in values.items():
            if value is None or name not in self._casts or name in self._aliases:
                return False
            cast = self._cast(name, value)
            if cast is not value:
                self[name] = values[name] = cast   # the keys exist, so the dicts may change while they are iterated
        return True

    def _verify(self) -> None:
        """Verify the attributes as a whole; all values have their types. Subclasses override this."""

    def _cast(self, name: str, value: Any) -> Any:
        """Return a value as its attribute has it; raise DescriptionError if it has a wrong type or is out of range."""
        cast = self._casts.get(name)
        if cast is None:
            raise unknown_attribute(self._complaint(name) + self._origin(name))
        try:
            found = cast(value)
        except CastError as error:
            sentence = f'{type(self).__name__}.{name} must be {error}, not {_shown(value)}'
            if error.place:
                sentence += f': {name}{error.place} is {_shown(error.part)}'
            raise attribute_type_error(sentence) from None
        if name in self._checks and (allowed := self._checks[name](found)):
            raise DescriptionError(f'{type(self).__name__}.{name} is {_shown(found)}, but must be {allowed}')
        return found

    def _resolve_aliases(self) -> None:
        """Move values set by old names to the new ones; 0, '' and None by an old name mean "not set"."""
        aliases = self._aliases
        for old in [name for name in dict.keys(self) if name in aliases]:
            value = dict.pop(self, old)
            if value:
                warn_renamed(f'{type(self).__name__}.{old}', aliases[old])
                self[aliases[old]] = self._cast(old, value)

    def _complaint(self, name: object) -> str:
        start = f'{type(self).__name__} has no attribute "{name}"'
        instead = self._instead(str(name).lower().replace('-', '_'))
        return f'{start}: {instead}' if instead else start + suggestion(str(name), self._schema)

    @classmethod
    def _instead(cls, name: str) -> str | None:
        """Return what to use instead of an unknown name, in lower case with `_` for `-`. Subclasses override this."""
        return None

    # unknown names

    def _note_unknown(self) -> None:
        """Note the line of the application that has set names which are unknown."""
        unknown = dict.keys(self) - self._known
        if unknown:
            self._note(unknown - getattr(self, '_origins', {}).keys())

    def _note(self, names: Iterable[str]) -> None:
        self._add_origins(dict.fromkeys(names, _line()))

    def _add_origins(self, origins: Mapping[str, str]) -> None:
        if origins:
            object.__setattr__(self, '_origins', {**getattr(self, '_origins', {}), **origins})

    def _origin(self, name: str) -> str:
        place = getattr(self, '_origins', {}).get(name)
        return f' (set in {place})' if place else ''

    # stored values, and the complete view

    def _stored(self) -> ItemsView[str, Any]:
        return dict.items(self)

    def _full(self) -> dict[str, Any]:
        """Return all attributes and other keys, in the order of the schema, with new copies of mutable defaults."""
        full = self._defaults.copy()
        for name in self._mutable:
            full[name] = full[name].copy()
        full.update(self._stored())
        return full

    def _names(self) -> list[str]:
        known = self._defaults
        return [*known, *(name for name in dict.keys(self) if name not in known)]

    # attributes

    def __getattr__(self, name: str) -> Any:
        if name.startswith('_') and name not in self:
            raise AttributeError(f'{type(self).__name__!r} object has no attribute {name!r}')
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._known:
            self._note((name,))
        dict.__setitem__(self, name, value)

    __setitem__ = __setattr__

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __dir__(self) -> list[str]:
        return [*(name for name in super().__dir__() if name not in _NOT_SHOWN), *self._names()]

    # the methods of a dict

    def __missing__(self, key: str) -> Any:
        new = self._aliases.get(key)
        if new is not None:
            return self[new]
        try:
            value = self._defaults[key]
        except KeyError:
            raise NoSuchAttribute(self._complaint(key)) from None
        if key in self._mutable:
            value = value.copy()
            dict.__setitem__(self, key, value)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._defaults or key in self._aliases or dict.__contains__(self, key)

    def __len__(self) -> int:
        known = self._defaults
        return len(known) + sum(name not in known for name in dict.keys(self))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._names())

    def __delitem__(self, key: str) -> None:
        """Reset an attribute to its default; raise KeyError for a name that is neither an attribute nor set."""
        self.pop(key)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Description):
            return self._full() == other._full()
        return self._full() == other if isinstance(other, dict) else NotImplemented

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = None

    def __or__(self: D, other: Any) -> D:  # type: ignore[override]
        joined = self.copy()
        joined.update(other)
        return joined

    def __ior__(self: D, other: Any) -> D:  # type: ignore[override]
        self.update(other)
        return self

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        """Return the names of all attributes, those with default values included."""
        return self._full().keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Return the values of all attributes, in the order of `keys`."""
        return self._full().values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return the names and values of all attributes."""
        return self._full().items()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of an attribute, or `default` if there is no such attribute."""
        if key in self:  # it may have a default without being stored
            return self[key]
        return default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of an attribute, after setting it to `default` if it was not set."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        """Return the value of an attribute, and reset it to its default."""
        if key not in self and default:
            return default[0]
        value = self[key]
        dict.pop(self, key, None)
        return value

    def update(self, *others: Any, **values: Any) -> None:
        """Set values from `others` (dicts, descriptions, pairs) and `values`; a description replaces all attributes."""
        for other in others:
            if isinstance(other, type(self)):
                self._add_origins(getattr(other, '_origins', {}))
                other = dict(other._stored())
                for name in [name for name in dict.keys(self) if name in self._defaults or name in self._aliases]:
                    dict.pop(self, name)
            dict.update(self, other)
        dict.update(self, values)
        self._note_unknown()

    def copy(self: D) -> D:
        """Return a description with the same values; lists and dicts are shared."""
        return _restore(*self.__reduce__()[1])   # type: ignore[no-any-return]

    __copy__ = copy

    def __reduce__(self) -> tuple[Any, ...]:
        stored, origins = dict(self._stored()), getattr(self, '_origins', None)
        return _restore, (type(self), stored, origins) if origins else (type(self), stored)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.sparse()!r})'

    def _repr_html_(self) -> str:
        """Return a table of the attributes that are set, for notebooks."""
        return html_table(type(self).__name__, self.sparse())


def _restore(cls: type[D], stored: dict[str, Any], origins: dict[str, str] | None = None) -> D:
    """Return a description of class `cls` that stores exactly these values."""
    made = cls()
    dict.update(made, stored)
    made._add_origins(origins or {})
    return made


def _line() -> str:
    """Return the file and the line of the application that is being executed; empty outside of an application."""
    frame = sys._getframe(1)
    while frame and frame.f_globals.get('__name__', '').partition('.')[0] in _OURS:
        frame = frame.f_back   # type: ignore[assignment]
    return f'{frame.f_code.co_filename}, line {frame.f_lineno}' if frame else ''


def _sparse(value: Any) -> Any:
    """Return `value` as plain data, with descriptions reduced to the values that were set."""
    if isinstance(value, Description):
        return value.sparse()
    if isinstance(value, dict):
        return {key: _sparse(item) for key, item in value.items()}
    return [_sparse(item) for item in value] if isinstance(value, list | tuple) else value


def _shown(value: Any) -> str:
    """Return the value for an error message."""
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_CHARS else f'{text[:_MAX_VALUE_CHARS]}...'

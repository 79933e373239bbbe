"""Names of pickled functions, read without running code of whoever has pickled them."""

from __future__ import annotations

import io
import pickle
from functools import lru_cache
from typing import Any

_MAX_NAME = 256   # characters of text that is a name, and not a pickled call


@lru_cache(maxsize=256)
def function_name(function: bytes | str | None) -> str | None:
    """Return the name of the function in a description as it is sent, without its module; None if it is not known."""
    if not isinstance(function, bytes):
        return function if function and len(function) <= _MAX_NAME else None
    names: list[str] = []
    try:
        found = _Names(io.BytesIO(function), names).load()
    except Exception:   # the type of exception depends on the data
        return None
    name = names[-1] if names else getattr(found, 'name', None)
    return name if isinstance(name, str) else None


class _Names(pickle.Unpickler):
    """Restores placeholders, and collects the names that cloudpickle sets: that of the function itself comes last."""

    def __init__(self, file: io.BytesIO, names: list[str]) -> None:
        super().__init__(file)
        self._names = names

    def find_class(self, module: str, name: str) -> Any:
        return _Placeholder(name, self._names)


class _Placeholder:
    """Stands for a class or function of the pickle, and for all that it returns."""

    def __init__(self, name: str, names: list[str]) -> None:
        self.name = name
        self._names = names

    def __call__(self, *args: Any) -> _Placeholder:
        if self.name == '_function_setstate':
            self._names.append(args[1][1]['__name__'])
        return _Placeholder('', self._names)

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

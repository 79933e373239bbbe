"""Names of pickled functions, read without running code of whoever has pickled them."""

from __future__ import annotations

import base64
import io
import pickle
from functools import lru_cache
from typing import Any

_MAX_CHARS = 256   # of text that is a name, and not a pickled call


@lru_cache(maxsize=256)
def function_name(function: bytes | str | None) -> str | None:
    """Return the name of the function in a description, without its module; None if it is not known.

    Args:
        function: The pickled function, the text of a `PythonTask`, or the name of a function.
    """
    if not function:
        return None
    text = function if isinstance(function, str) else ''
    try:
        pickled = _Pickled(function if isinstance(function, bytes) else base64.b64decode(function))
        found = pickled.load()
    except Exception:   # the type of exception depends on the data
        return text if len(text) <= _MAX_CHARS and text else None
    if isinstance(found, dict):   # a function and its arguments
        return function_name(found.get('func'))
    name = pickled.names[-1] if pickled.names else getattr(found, 'name', None)
    return name if isinstance(name, str) and name else None


class _Pickled(pickle.Unpickler):
    """Restores placeholders, and collects the names that cloudpickle sets: that of the function itself comes last."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.names: list[str] = []

    def find_class(self, module: str, name: str) -> Any:
        return _Placeholder(name, self.names)


class _Placeholder:
    """Stands for a class or function of the pickle, and for all that it returns."""

    def __init__(self, name: str, names: list[str]) -> None:
        self.name, self._names = name, names

    def __call__(self, *args: Any) -> _Placeholder:
        if self.name == '_function_setstate':
            self._names.append(args[1][1]['__name__'])
        return _Placeholder('', self._names)

    def __setstate__(self, state: Any) -> None:
        """Drop the state."""

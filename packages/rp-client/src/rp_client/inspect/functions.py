"""The names of functions in the descriptions of tasks, read from their pickles without executing anything."""

from __future__ import annotations

import base64
import pickletools
from functools import lru_cache

NAMED_CHARS = 200
"""A text that is not longer is the name of a function: pickles are."""

_QUALNAME = '__qualname__'


def function_name(value: str | bytes) -> str | None:
    """Return the name of a function, given the `function` of a description; None if it cannot be read."""
    if isinstance(value, str) and len(value) <= NAMED_CHARS and value.replace('.', '').replace(':', '').isidentifier():
        return value
    try:
        outer = base64.b64decode(value) if isinstance(value, str) else value
        # a `PythonTask` has the pickled function in a pickle of its own
        parts = [part for _, part, _ in pickletools.genops(outer) if isinstance(part, bytes)]
        return _name_in(parts[0] if isinstance(value, str) else outer)
    except Exception:   # whatever is in it
        return None


@lru_cache(1024)
def _name_in(pickled: bytes) -> str | None:
    texts = [value for _, value, _ in pickletools.genops(pickled) if isinstance(value, str)]
    if _QUALNAME in texts[:-1]:   # by value
        return texts[texts.index(_QUALNAME) + 1]
    if len(texts) == 1:   # older protocols have module and name in one
        return texts[0].replace(' ', '.')
    return f'{texts[0]}.{texts[1]}'.removeprefix('builtins.')

"""Lets functions use `multiprocessing` with functions and classes that have come to the rank by value.

Python pickles these by reference, to the main script: that of the rank, which does not have them.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from rp_api.by_value.references import by_reference
from rp_api.functions import deserialize_obj, serialize_obj


def send_by_value() -> None:
    """Have `multiprocessing` pickle such functions and classes by value in this process."""
    from multiprocessing.reduction import ForkingPickler  # for the first call only

    ForkingPickler.reducer_override = _reduced   # type: ignore[method-assign]


def _reduced(pickler: Any, value: Any) -> Any:
    if isinstance(value, FunctionType | type) and value.__module__ == '__main__' and not by_reference(value):
        return _restored, (serialize_obj(value),)
    return NotImplemented


def _restored(data: bytes) -> Any:
    send_by_value()   # in a process that was spawned
    return deserialize_obj(data)

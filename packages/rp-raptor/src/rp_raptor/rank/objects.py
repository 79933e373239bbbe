"""The objects of a rank: mapped at their first use, and restored for each call that refers to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rp_api.errors import DeserializationError
from rp_raptor.objects.reference import Mapped


class RankObjects:
    """Restores references; `fetch(id)` returns path and fault of an object that is not mapped yet."""

    def __init__(self, fetch: Callable[[bytes], tuple[str, str]]) -> None:
        self._fetch = fetch
        self._mapped: dict[bytes, Mapped] = {}

    def resolve(self, id: bytes, master: str) -> Any:
        """Return the object; DeserializationError if it cannot be had."""
        mapped = self._mapped.get(id)
        if mapped is None:
            path, fault = self._fetch(id)
            if fault:
                raise DeserializationError(f'an object of {master} is not available: {fault}')
            mapped = self._mapped[id] = Mapped(path)
        return mapped.value()

    def drop(self, id: bytes) -> None:
        """Release an object; arrays that are in use stay valid."""
        self._mapped.pop(id, None)

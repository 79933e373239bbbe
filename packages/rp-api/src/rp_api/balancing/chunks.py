"""Chunks of an iterable that may raise: the items before its exception are not lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any


def chunks(items: Iterable[Any], size: int) -> Iterator[list[Any] | Exception]:
    """Yield the items in lists of `size`; at last the rest, and the exception if the iterable has raised one."""
    iterator, error = iter(items), None
    while error is None:
        chunk: list[Any] = []
        try:
            chunk.extend(islice(iterator, size))
        except Exception as raised:
            error = raised
        if chunk:
            yield chunk
        elif error is None:
            return
    yield error

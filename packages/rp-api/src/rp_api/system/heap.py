"""The heap of this process: how much free memory the C library keeps, and the passes of the cyclic collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def trim() -> None:
    """Return free memory to the operating system, after many objects were freed; other libraries than glibc do so."""
    from ctypes import CDLL  # only few processes need it, long after their start

    with suppress(AttributeError, OSError):
        CDLL(None).malloc_trim(0)


def keep(size: int) -> None:
    """Keep free memory for blocks of up to `size` bytes (at most 32 MB), whose pages would else be new each time.

    glibc uses its heap for blocks as large as the largest one that was freed, and keeps twice as much at its end.
    """
    bytes(size)


@contextmanager
def uncollected() -> Iterator[None]:
    """Create very many objects that stay, without the collector's passes over all objects that this would cause."""
    if not gc.isenabled():   # by the application, or by another thread that is here
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

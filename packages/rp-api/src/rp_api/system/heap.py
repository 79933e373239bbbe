"""The heap of this process, whose free memory the C library keeps."""

from __future__ import annotations

from contextlib import suppress


def trim() -> None:
    """Return free memory to the operating system, after many objects were freed; other libraries than glibc do so."""
    from ctypes import CDLL  # only few processes need it, long after their start

    with suppress(AttributeError, OSError):
        CDLL(None).malloc_trim(0)

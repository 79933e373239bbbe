"""Detection of missing sandboxes. Few tasks of RAPTOR masters have one, and checking each path is expensive."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import compress

MIN_SANDBOXES = 8
"""Minimum number of sandboxes in a directory for which the directory is listed."""

MAX_ENTRIES_PER_SANDBOX = 16
"""Maximum number of directory entries per sandbox for which the directory is listed."""


class Missing:
    """Looks up many sandboxes with one listing of their directory."""

    def __init__(self) -> None:
        self._entries: dict[str, int] = {}   # number of entries when a directory was last listed

    def of(self, sandboxes: Sequence[str]) -> set[str]:
        """Return the sandboxes that are known not to exist; the others may exist."""
        parents = [sandbox.rpartition('/')[0] for sandbox in sandboxes]
        found: dict[str, list[str]] = {}
        for parent, count in Counter(parents).items():
            names = self._listed(parent, count)
            if names is not None:
                found[parent] = [f'{parent}/{name}' for name in names]
        if not found:
            return set()
        known = sandboxes if len(found) == len(set(parents)) else compress(sandboxes, map(found.__contains__, parents))
        return set(known).difference(*found.values())

    def _listed(self, parent: str, count: int) -> list[str] | None:
        """Return what is in the directory of `count` sandboxes; None if that is unknown."""
        if count < MIN_SANDBOXES or self._entries.get(parent, 0) > MAX_ENTRIES_PER_SANDBOX * count:
            return None
        try:
            found = os.listdir(parent)
        except OSError:
            return None
        self._entries[parent] = len(found)
        return found

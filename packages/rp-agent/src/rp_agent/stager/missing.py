"""Detection of missing sandboxes. Few tasks of RAPTOR masters have one, and checking each path is expensive."""

from __future__ import annotations

import os
from collections.abc import Iterable

FEW = 8
"""Minimum number of sandboxes in a directory for which the directory is listed."""

MANY = 16
"""Maximum number of directory entries per sandbox for which the directory is listed."""


class Missing:
    """Looks up many sandboxes with one listing of their directory."""

    def __init__(self) -> None:
        self._entries: dict[str, int] = {}   # number of entries when a directory was last listed

    def of(self, sandboxes: Iterable[str]) -> set[str]:
        """Return the sandboxes that are known not to exist; the others may exist."""
        wanted: dict[str, dict[str, str]] = {}
        for sandbox in sandboxes:
            parent, _, name = sandbox.rpartition('/')
            wanted.setdefault(parent, {})[name] = sandbox
        return {sandbox for parent, names in wanted.items() for sandbox in self._missing(parent, names)}

    def _missing(self, parent: str, names: dict[str, str]) -> Iterable[str]:
        if len(names) < FEW or self._entries.get(parent, 0) > MANY * len(names):
            return ()
        try:
            found = os.listdir(parent)
        except OSError:
            return ()
        self._entries[parent] = len(found)
        for name in found:
            names.pop(name, None)
        return names.values()

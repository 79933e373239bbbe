"""Which sandboxes do not exist: of the tasks that RAPTOR masters run, few have one, and to look for each takes longer
than everything else that is done for them here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

FEW = 8
"""Sandboxes in one directory for which the directory is not worth a look."""

MANY = 16
"""Entries of a directory for each sandbox that is asked for, above which it is not, either."""


class Missing:
    """Finds out about many sandboxes with one look at the directory that they are in."""

    def __init__(self) -> None:
        self._entries: dict[str, int] = {}   # how many there were when a directory was last looked at

    def of(self, sandboxes: Iterable[str]) -> set[str]:
        """Those that certainly do not exist."""
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

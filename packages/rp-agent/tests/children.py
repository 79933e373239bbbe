"""The children of this process, and what else a test may not leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leftovers import open_descriptors


def children() -> set[int]:
    """All children that nobody has waited for; other tests in this process may have some, such as servers."""
    found: set[int] = set()
    for task in Path('/proc/self/task').iterdir():
        with suppress(FileNotFoundError):   # the thread has ended
            found.update(map(int, (task / 'children').read_text().split()))
    return found


@contextmanager
def nothing_stays() -> Iterator[None]:
    """Fail if descriptors are open in the end, or children there, that were not before."""
    others = children()
    before = open_descriptors()
    yield
    assert open_descriptors() <= before, 'descriptors are left open'
    assert children() <= others, 'a child is left'

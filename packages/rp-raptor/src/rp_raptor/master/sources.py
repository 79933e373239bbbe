"""The sources of calls, with the queues of those that no worker has."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rp_raptor.wire.call_buffer import CallBuffer

Attributes = dict[int, dict[str, Any]]
Call = tuple[int, bytes]
"""The router's number of a call, and the payload."""

Answer = Callable[['array[int]'], object]
"""Takes the numbers of calls that were given back."""


class CallOwner(Protocol):
    """The owner of a source of calls; both methods get the source's own numbers."""

    def started(self, ids: array[int]) -> None:
        """Take calls that a worker has; repeated for a call that is sent again."""

    def results(self, ids: array[int], payloads: Sequence[bytes]) -> None:
        """Take results: one for each call."""


class CallSource:
    """A source with a queue of calls that no worker has; `open` counts all calls without a result."""

    __slots__ = ('attributes', 'functions', 'number', 'open', 'owner', 'queue')

    def __init__(self, number: int, owner: CallOwner) -> None:
        self.number = number
        self.owner = owner
        self.queue = CallBuffer()
        self.attributes: Attributes = {}   # of calls without a result, by the router's numbers
        self.functions: set[bytes] = set()
        self.open = 0

    def ranks_of(self, number: int) -> int:
        """Return the number of ranks of a call."""
        attributes = self.attributes.get(number)
        return max(1, int(attributes.get('ranks', 1))) if attributes else 1


@dataclass(slots=True)
class Reclaim:
    """A request of a source for calls that no rank has started; complete when the workers in `asked` have answered."""

    source: CallSource
    answer: Answer
    found: array[int]
    count: int
    asked: dict[bytes, int] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """The number of calls for which no worker was asked."""
        return self.count - len(self.found) - sum(self.asked.values())

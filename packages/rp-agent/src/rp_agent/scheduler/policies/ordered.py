"""The policy CONTINUOUS_ORDERED: bags of tasks that run one after the other.

The tag `order` of a task is a dict with `ns` (any text: the sequence of bags), `order` (number of the bag in it, from
0) and `size` (number of tasks in the bag). A bag starts when all tasks of the previous one have ended, successfully or
not. Tasks without the tag start as they arrive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rp_agent.scheduler.policies.continuous import Continuous
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError


class Order(NamedTuple):
    """The tag `order` of a task."""

    ns: str
    order: int
    size: int


class Sequenced:
    """One sequence of bags: the running bag, and the tasks held back for later ones."""

    def __init__(self) -> None:
        self.running = 0
        self.ended: dict[int, int] = defaultdict(int)
        self.held: dict[int, dict[str, AgentTask]] = defaultdict(dict)
        self.sizes: dict[int, int] = {}

    def advance(self) -> list[AgentTask]:
        """Advance to the next bag if the running one has ended; return the tasks that may start."""
        freed: list[AgentTask] = []
        while self.ended[self.running] >= self.sizes.get(self.running, 1):
            del self.ended[self.running]
            del self.sizes[self.running]
            self.running += 1
            freed += self.held.pop(self.running, {}).values()
        return freed


class Ordered(Continuous):
    """Places tasks as CONTINUOUS does, bag after bag."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._sequences: dict[str, Sequenced] = defaultdict(Sequenced)

    def admit(self, task: AgentTask) -> Sequence[AgentTask]:
        """Return the task if its bag is running; hold it back otherwise."""
        tag = _tag(task)
        if tag is None:
            return (task,)
        sequence = self._sequences[tag.ns]
        if tag.order <= sequence.running:
            return (task,)
        sequence.held[tag.order][task.uid] = task
        return ()

    def held(self) -> Iterator[tuple[Sequence[AgentTask], str]]:
        """Yield the tasks of later bags."""
        for name, sequence in self._sequences.items():
            for order, tasks in sequence.held.items():
                if tasks:
                    yield list(tasks.values()), (f'waits for bag {sequence.running} of {name}, which has to end before '
                                                 f'bag {order}')

    def withdraw(self, task: AgentTask) -> Sequence[AgentTask]:
        """Count the task as ended."""
        return self.left([task])

    def left(self, tasks: Sequence[AgentTask]) -> Sequence[AgentTask]:
        """Return the tasks of bags that may start now."""
        freed: list[AgentTask] = []
        for task in tasks:
            try:
                tag = _tag(task)
            except ResourceError:   # the error for which the task was refused
                continue
            if tag is None:
                continue
            sequence = self._sequences[tag.ns]
            if tag.order < sequence.running:   # more tasks than the size of the bag
                continue
            sequence.held[tag.order].pop(task.uid, None)
            sequence.ended[tag.order] += 1
            sequence.sizes[tag.order] = tag.size
            freed += sequence.advance()
        return freed


def _tag(task: AgentTask) -> Order | None:
    value = task.description['tags'].get('order')
    if value is None:
        return None
    if isinstance(value, dict) and set(value) == {'ns', 'order', 'size'}:
        ns, order, size = value['ns'], value['order'], value['size']
        if isinstance(order, int) and order >= 0 and isinstance(size, int) and size >= 1:
            return Order(str(ns), order, size)
    raise ResourceError("the tag order must be a dict like {'ns': 'name', 'order': 0, 'size': 1}, with order from 0 "
                        f'and size from 1, not {value!r}')

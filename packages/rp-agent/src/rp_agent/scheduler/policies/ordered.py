"""The policy CONTINUOUS_ORDERED: bags of tasks that run one after the other.

Tasks have the tag `order`, a dict of `ns` (any text: which sequence of bags), `order` (the number of the bag in it,
from 0) and `size` (how many tasks the bag has). A bag may start when all tasks of the one before it have ended, well or
not. Tasks without the tag run as they come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from rp_agent.scheduler.policies.continuous import Continuous
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError


class Order(NamedTuple):
    """The tag of a task."""

    ns: str
    order: int
    size: int


class Sequenced:
    """One sequence of bags: which is running, and what waits for its turn."""

    def __init__(self) -> None:
        self.running = 0
        self.ended: dict[int, int] = defaultdict(int)
        self.held: dict[int, dict[str, AgentTask]] = defaultdict(dict)
        self.sizes: dict[int, int] = {}

    def advance(self) -> list[AgentTask]:
        """Go on to the next bag if the running one has ended; gives the tasks whose turn it is now."""
        freed: list[AgentTask] = []
        while self.ended[self.running] >= self.sizes.get(self.running, 1):
            del self.ended[self.running]
            del self.sizes[self.running]
            self.running += 1
            freed += self.held.pop(self.running, {}).values()
        return freed


class Ordered(Continuous):
    """Places tasks like CONTINUOUS, bag after bag."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._sequences: dict[str, Sequenced] = defaultdict(Sequenced)

    def admit(self, task: AgentTask) -> Sequence[AgentTask]:
        """The task if its bag is running; it is held back otherwise."""
        tag = _tag(task)
        if tag is None:
            return (task,)
        sequence = self._sequences[tag.ns]
        if tag.order <= sequence.running:
            return (task,)
        sequence.held[tag.order][task.uid] = task
        return ()

    def withdraw(self, task: AgentTask) -> Sequence[AgentTask]:
        """The task counts as ended."""
        return self.left([task])

    def left(self, tasks: Sequence[AgentTask]) -> Sequence[AgentTask]:
        """Tasks of bags whose turn it is now."""
        freed: list[AgentTask] = []
        for task in tasks:
            try:
                tag = _tag(task)
            except ResourceError:   # with which it was refused
                continue
            if tag is None:
                continue
            sequence = self._sequences[tag.ns]
            if tag.order < sequence.running:   # more tasks than the bag was said to have
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

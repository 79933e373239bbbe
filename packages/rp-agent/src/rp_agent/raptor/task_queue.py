"""The queue of tasks that wait for a master: the highest priority first, and in the order of arrival. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, MutableMapping

from rp_agent.task import AgentTask


class TaskQueue(MutableMapping[str, AgentTask]):
    """Tasks by uid; a task keeps its place if it is set again."""

    __slots__ = ('_levels',)

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[str, AgentTask]] = {}   # by priority, the highest first; none is empty

    def __setitem__(self, uid: str, task: AgentTask) -> None:
        self._level(task.description['priority'])[uid] = task

    def put_first(self, task: AgentTask) -> None:
        """Add a task before the others of its priority."""
        level = self._level(task.description['priority'])
        level[task.uid] = task
        level.move_to_end(task.uid, last=False)

    def take_first(self) -> AgentTask:
        """Remove and return the task that is next; KeyError if there is none."""
        for priority, level in self._levels.items():
            _, task = level.popitem(last=False)
            if not level:
                del self._levels[priority]
            return task
        raise KeyError('no task waits')

    def __getitem__(self, uid: str) -> AgentTask:
        for level in self._levels.values():
            if uid in level:
                return level[uid]
        raise KeyError(uid)

    def __delitem__(self, uid: str) -> None:
        for priority, level in self._levels.items():
            if uid in level:
                del level[uid]
                if not level:
                    del self._levels[priority]
                return
        raise KeyError(uid)

    def __iter__(self) -> Iterator[str]:
        for level in self._levels.values():
            yield from level

    def __len__(self) -> int:
        return sum(map(len, self._levels.values()))

    def _level(self, priority: int) -> OrderedDict[str, AgentTask]:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = OrderedDict()
            self._levels = dict(sorted(self._levels.items(), reverse=True))
        return level

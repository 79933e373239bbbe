"""The queue of tasks that wait for a master: the highest priority first, and in the order of arrival. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, MutableMapping

from rp_agent.task import AgentTask, Description


class TaskQueue(MutableMapping[str, AgentTask]):
    """Tasks by uid; a task keeps its place if it is set again."""

    __slots__ = ('_levels',)

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[str, AgentTask]] = {}   # by priority, the highest first; none is empty

    def __setitem__(self, uid: str, task: AgentTask) -> None:
        self.level(task.description['priority'])[uid] = task

    def put_first(self, task: AgentTask) -> None:
        """Add a task before the others of its priority."""
        level = self.level(task.description['priority'])
        level[task.uid] = task
        level.move_to_end(task.uid, last=False)

    def take(self, most: int, most_bytes: int) -> list[AgentTask]:
        """Remove and return the tasks that are next, as many as fit into one message."""
        taken: list[AgentTask] = []
        size = 0
        for priority, level in list(self._levels.items()):
            while level and len(taken) < most and size < most_bytes:
                _, task = level.popitem(last=False)
                taken.append(task)
                size += _size(task.description)
            if level:
                break
            del self._levels[priority]
        return taken

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

    def level(self, priority: int) -> OrderedDict[str, AgentTask]:
        """Return the tasks of a priority by uid, for a caller that adds at least one."""
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = OrderedDict()
            self._levels = dict(sorted(self._levels.items(), reverse=True))
        return level


def _size(description: Description) -> int:
    """Return the bytes of a description that may be large."""
    return len(dict.get(description, 'function', '')) + len(dict.get(description, 'code', ''))

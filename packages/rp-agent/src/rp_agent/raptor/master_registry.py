"""The masters of a pilot, and the tasks that wait for them: what goes to whom, and what has to be given up."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from rp_agent.raptor.master import Master, Queue, take
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import RAPTOR_WORKER
from rp_api.raptor_link import ANY, BULK, RPC

_BYTES = 4 << 20
"""Bytes of functions and code from which on a message takes no further task."""


class MasterRegistry:
    """All masters that something is known about; nothing here talks to anybody."""

    def __init__(self) -> None:
        self.masters: dict[str, Master] = {}
        self.any: Queue = OrderedDict()
        """Tasks that wait for any master."""

    def known(self, uid: str) -> Master:
        """The master of that uid, from now on."""
        master = self.masters.get(uid)
        if master is None:
            master = self.masters[uid] = Master(uid)
        return master

    def of(self, task: AgentTask) -> Master:
        """The master that a task asks for by name."""
        return self.known(task.description['raptor_id'])

    def all_ended(self) -> bool:
        """Whether there were masters, and none is left or on its way."""
        masters = self.masters.values()
        return any(master.ended for master in masters) and not any(master.awaited for master in masters)

    # tasks that wait

    def wait(self, tasks: Iterable[AgentTask]) -> list[AgentTask]:
        """Have tasks wait for their masters; gives those for which that is in vain."""
        vain = []
        alike: tuple[str, str] | None = None
        queue, ended = self.any, False
        for task in tasks:
            if task.cancelled:
                vain.append(task)
                continue
            description = task.description
            if (description['raptor_id'], description['mode']) != alike:   # most are like the one before
                alike = description['raptor_id'], description['mode']
                if description['raptor_id'] == ANY:
                    queue, ended = self.any, self.all_ended()
                else:
                    master = self.of(task)
                    queue, ended = _place(task, master), bool(master.ended)
            queue[task.uid] = task
            if ended:
                vain.append(task)
        return vain

    def wait_again(self, tasks: list[AgentTask]) -> None:
        """Have tasks for any master wait in front of the others."""
        for task in reversed(tasks):
            self.any[task.uid] = task
            self.any.move_to_end(task.uid, last=False)

    def waiting(self, uid: str) -> AgentTask | None:
        """The task of that uid, if it waits here."""
        if uid in self.any:
            return self.any[uid]
        for master in self.masters.values():
            for queue in master.queues:
                if uid in queue:
                    return queue[uid]
        return None

    def holder(self, uid: str) -> Master | None:
        """Who has the task of that uid."""
        return next((master for master in self.masters.values() if uid in master.held), None)

    def end(self, task: AgentTask) -> None:
        """Make a task one that has ended, as it was cancelled or its master has ended; it waits no more."""
        self.any.pop(task.uid, None)
        master = self.masters.get(task.description['raptor_id'])
        if master is not None:
            _place(task, master).pop(task.uid, None)
        if task.cancelled:
            task.target_state = states.CANCELED
            task.exception = 'cancelled while it waited for its RAPTOR master'
        elif master is None:
            ended = '; '.join(f'{each.uid}: {each.ended}' for each in self.masters.values() if each.ended)
            task.fail(f'no RAPTOR master of {task.pilot} is left: {ended}', f'{task.uid} is for any master')
        else:
            fail(task, master)

    def given_up(self, master: Master) -> list[AgentTask]:
        """The tasks that wait in vain now that this master has ended."""
        found = [task for queue in master.queues for task in queue.values()]
        return found + list(self.any.values()) if self.all_ended() else found

    def clear(self) -> list[AgentTask]:
        """All tasks that wait; they wait no more."""
        queues = [self.any, *(queue for master in self.masters.values() for queue in master.queues)]
        tasks = [task for queue in queues for task in queue.values()]
        for queue in queues:
            queue.clear()
        return tasks

    @property
    def held_back(self) -> int:
        """Number of tasks that may have to wait until others come."""
        now = time.monotonic()
        stalled = [master for master in self.masters.values() if not master.ended and master.stalled(now)]
        found = sum(len(master.held) + sum(map(len, master.queues)) for master in stalled)
        working = any(not master.ended and not master.stalled(now) for master in self.masters.values())
        return found if working else found + len(self.any)

    # tasks that go to masters

    def deal(self) -> Iterator[tuple[Master, list[AgentTask]]]:
        """What masters get now, by the bulk: first what is for them alone, then what is for any."""
        able = [master for master in self.masters.values() if master.up]
        for master in able:
            yield from _give(master, master.queue, master.credit)
        while self.any and (able := [master for master in able if master.credit]):
            share = -(-len(self.any) // len(able))
            for master in able:
                yield from _give(master, self.any, min(share, master.credit))


def fail(task: AgentTask, master: Master) -> None:
    """Make a task of a master that has ended a failed one, or a cancelled one if that was under way."""
    sentence = f'{master.uid} has ended before it ran the task: {master.ended}'
    if task.cancelled:
        task.target_state = states.CANCELED
        task.exception = sentence
    else:
        task.fail(sentence, sentence)


def _give(master: Master, queue: Queue, most: int) -> Iterator[tuple[Master, list[AgentTask]]]:
    while most and queue:
        tasks = take(queue, min(most, BULK), _BYTES)
        most -= len(tasks)
        master.credit -= len(tasks)
        master.held.update((task.uid, task) for task in tasks)
        yield master, tasks


def _place(task: AgentTask, master: Master) -> Queue:
    mode = task.description['mode']
    return master.requests if mode == RPC else master.waiting if mode == RAPTOR_WORKER else master.queue

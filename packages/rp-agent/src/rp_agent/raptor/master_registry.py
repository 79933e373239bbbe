"""The registry of a pilot's masters and of the tasks that wait for them. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from operator import attrgetter

from rp_agent.raptor.master import Master, TaskQueue
from rp_agent.task import AgentTask, Description
from rp_api.balancing.shares import requests, shares
from rp_api.constants import RAPTOR_WORKER
from rp_api.failures.kinds import LOST
from rp_api.raptor_link import ANY, BULK, RPC

_UID = attrgetter('uid')

_GIVEN_AGAIN = 'raptor.given_again'

_BYTES = 4 << 20
"""Bytes of functions and code at which a message is full."""


class MasterRegistry:
    """All masters by uid, and the queue of tasks for any master."""

    def __init__(self) -> None:
        self.masters: dict[str, Master] = {}
        self.any = TaskQueue()
        """Tasks that wait for any master."""

    def known(self, uid: str) -> Master:
        """Return the master of that uid; the first call makes its record."""
        master = self.masters.get(uid)
        if master is None:
            master = self.masters[uid] = Master(uid)
        return master

    def of(self, task: AgentTask) -> Master:
        """Return the master that a task names."""
        return self.known(task.description['raptor_id'])

    def all_ended(self) -> bool:
        """Return whether all masters have ended; False before the first one."""
        masters = self.masters.values()
        return any(master.ended for master in masters) and not any(master.awaited for master in masters)

    # tasks that wait

    def wait(self, tasks: Iterable[AgentTask]) -> list[AgentTask]:
        """Queue tasks for their masters; return those that no master will run."""
        vain = []
        before: Description | None = None
        level: dict[str, AgentTask] = {}
        ended = False
        for task in tasks:
            if task.cancelled:
                vain.append(task)
                continue
            if task.description is not before:   # most share that of the one before
                before = task.description
                if before['raptor_id'] == ANY:
                    queue, ended = self.any, self.all_ended()
                else:
                    master = self.of(task)
                    queue, ended = _place(task, master), bool(master.ended)
                level = queue.level(before['priority'])
            level[task.uid] = task
            if ended:
                vain.append(task)
        return vain

    def wait_again(self, tasks: list[AgentTask]) -> None:
        """Queue tasks for any master in front of the others."""
        for task in reversed(tasks):
            self.any.put_first(task)

    def waiting(self, uid: str) -> AgentTask | None:
        """Return the waiting task of that uid; None if there is none."""
        return next((queue[uid] for queue in self._queues() if uid in queue), None)

    def holder(self, uid: str) -> Master | None:
        """Return the master that has the task of that uid; None if none has it."""
        return next((master for master in self.masters.values() if uid in master.held), None)

    def end(self, task: AgentTask) -> None:
        """Remove a task that was cancelled or whose master has ended, and set its final state."""
        self.any.pop(task.uid, None)
        master = self.masters.get(task.description['raptor_id'])
        if master is not None:
            _place(task, master).pop(task.uid, None)
        if task.cancelled:
            task.cancel('cancelled while it waited for its RAPTOR master')
        elif master is None:
            ended = '; '.join(f'{each.uid}: {each.ended}' for each in self.masters.values() if each.ended)
            task.fail(f'no RAPTOR master of {task.pilot} is left: {ended}', f'{task.uid} is for any master', LOST)
        else:
            fail(task, master)

    def given_up(self, master: Master) -> list[AgentTask]:
        """Return the waiting tasks that no master will run now that this one has ended."""
        found = [task for queue in master.queues for task in queue.values()]
        return found + list(self.any.values()) if self.all_ended() else found

    def lost(self, master: Master, tasks: Iterable[AgentTask]) -> list[AgentTask]:
        """Queue tasks that a master had when it ended for any other one, once; fail and return the others."""
        again, failed = [], []
        for task in tasks:
            if (task.description['raptor_id'] == ANY and not task.cancelled and not self.all_ended()
                    and _GIVEN_AGAIN not in task.extra):
                task.extra[_GIVEN_AGAIN] = True
                again.append(task)
            else:
                fail(task, master)
                failed.append(task)
        self.wait_again(again)
        return failed

    def clear(self) -> list[AgentTask]:
        """Take all waiting tasks."""
        tasks = [task for queue in self._queues() for task in queue.values()]
        for queue in self._queues():
            queue.clear()
        return tasks

    def _queues(self) -> list[TaskQueue]:
        return [self.any, *(queue for master in self.masters.values() for queue in master.queues)]

    @property
    def held_back(self) -> int:
        """Number of tasks that may have to wait until others arrive."""
        now = time.monotonic()
        stalled = [master for master in self.masters.values() if not master.ended and master.stalled(now)]
        found = sum(len(master.held) + sum(map(len, master.queues)) for master in stalled)
        working = any(not master.ended and not master.stalled(now) for master in self.masters.values())
        return found if working else found + len(self.any)

    # tasks that go to masters

    def deal(self) -> Iterator[tuple[Master, list[AgentTask]]]:
        """Take bulks of tasks for masters with credit: first their own tasks, then those for any master.

        The latter are shared in proportion to the ranks of the masters, see `rp_api.balancing`.
        """
        able = [master for master in self.masters.values() if master.up]
        for master in able:
            yield from _give(master, master.queue, master.credit)
        while self.any and (dealt := shares(len(self.any), able)):
            for master, number in dealt:
                yield from _give(master, self.any, number)

    def to_give_back(self) -> list[tuple[Master, int]]:
        """Return the masters that have to give tasks back, as ranks of others are idle, and how many."""
        return requests(len(self.any), [master for master in self.masters.values() if master.up])

    def check(self) -> None:
        """Verify all invariants; raise AssertionError if one is violated."""
        masters = self.masters.values()
        places = [*self.any, *(uid for master in masters for queue in (*master.queues, master.held) for uid in queue)]
        assert len(places) == len(set(places)), 'a task is in two places'
        for master in masters:
            assert master.credit >= 0, f'{master.uid} was given too much'
            assert not (master.ended and (master.up or any(master.queues))), f'{master.uid} has ended, and has tasks'


def fail(task: AgentTask, master: Master) -> None:
    """Set the final state of a task whose master has ended: FAILED, or CANCELED if it was being cancelled."""
    sentence = f'{master.uid} has ended before it ran the task: {master.ended}'
    if task.cancelled:
        task.cancel(sentence)
    else:
        task.fail(sentence, sentence, LOST)


def _give(master: Master, queue: TaskQueue, most: int) -> Iterator[tuple[Master, list[AgentTask]]]:
    while most and queue:
        tasks = queue.take(min(most, BULK), _BYTES)
        most -= len(tasks)
        master.credit -= len(tasks)
        master.exhausted = False
        master.held.update(zip(map(_UID, tasks), tasks, strict=True))
        yield master, tasks


def _place(task: AgentTask, master: Master) -> TaskQueue:
    mode = task.description['mode']
    return master.requests if mode == RPC else master.waiting if mode == RAPTOR_WORKER else master.queue

"""A scheduler over a few nodes, a clock to move by hand, and builders of tasks and slots."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rp_agent.resource_manager.base import Allocation, Domain
from rp_agent.scheduler.component import Scheduler
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.wire import codec
from rp_profiling.write.tracer import Tracer


class Bench:
    """A scheduler, and what leaves it. Further arguments are those of the platform definition."""

    def __init__(self, nodes: int = 2, cores: int = 4, gpus: int = 1, profile: Path | None = None,
                 names: Sequence[str] = (), config: dict[str, Any] | None = None,
                 blocked_cores: tuple[int, ...] = (), domains: tuple[Domain, ...] = (), **platform: Any) -> None:
        self.allocation = Allocation(tuple(names) or ('localhost',) * nodes, cores, gpus, mem_per_node=1000,
                                     lfs_per_node=100, blocked_cores=blocked_cores, domains=domains)
        self.placed: list[AgentTask] = []
        self.failed: list[AgentTask] = []
        self.advanced: list[tuple[str, str]] = []
        self.now = 0.0
        self.alarms: list[tuple[float, Callable[[], object]]] = []
        self.scheduler = Scheduler('agent_scheduling.0000', Tracer(profile, 'agent_scheduling.0000'), self.allocation,
                                   {'platform': platform, **(config or {})}, self.failed.extend,
                                   lambda delay, callback: self.alarms.append((self.now + delay, callback)),
                                   lambda: self.now)
        self.scheduler.output = self.placed.extend
        self.scheduler.advanced = self._advanced

    def _advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        self.advanced += [(task.uid, state) for task in tasks]

    def put(self, *tasks: AgentTask) -> None:
        """Hand tasks in."""
        self.scheduler.put(list(tasks))
        self.scheduler.check()

    def finish(self, *uids: str) -> None:
        """Let tasks that are placed end; all of them if none is named."""
        done = [task for task in self.placed if not uids or task.uid in uids]
        self.placed[:] = [task for task in self.placed if task not in done]
        self.scheduler.release(done)
        self.scheduler.check()

    def cancel(self, *uids: str) -> None:
        """Cancel tasks that wait."""
        self.scheduler.cancel(uids)
        self.scheduler.check()

    def wait(self, seconds: float) -> None:
        """Move the clock, and ring the alarms that are due."""
        end = self.now + seconds
        for _ in itertools.takewhile(lambda _: self.alarms and min(self.alarms)[0] <= end, range(1000)):
            self.alarms.sort(key=lambda alarm: alarm[0])
            self.now, callback = self.alarms.pop(0)
            callback()
            self.scheduler.check()
        self.now = end

    def running(self) -> list[str]:
        """The uids of the tasks that are placed."""
        return [task.uid for task in self.placed]

    def nodes_of(self, uid: str) -> list[int]:
        """The nodes of a placed task, rank by rank."""
        return [slot['node_index'] for slot in self.slots_of(uid)]

    def cores_of(self, uid: str) -> list[list[int]]:
        """The cores of a placed task, rank by rank."""
        return [[core['index'] for core in slot['cores']] for slot in self.slots_of(uid)]

    def slots_of(self, uid: str) -> list[dict[str, Any]]:
        """The slots of a placed task."""
        task, = (task for task in self.placed if task.uid == uid)
        assert task.slots is not None
        return task.slots

    def free(self, node: int) -> dict[str, Any]:
        """What is free on a node."""
        return self.scheduler._slots.free(node)

    def free_cores(self) -> int:
        """How many cores are free."""
        return sum(int(self.free(node)['cores']) for node in range(len(self.allocation.names)))

    def reasons(self) -> dict[str, str]:
        """Why tasks have failed."""
        return {task.uid: task.exception or '' for task in self.failed}


def a_task(uid: str, **description: Any) -> AgentTask:
    """A task as it comes over the wire."""
    plain = codec.unpack(codec.pack({'executable': '/bin/true', **description}))
    task = AgentTask(uid, plain, 'pilot.0000', '/sandbox')
    task.state = states.AGENT_SCHEDULING_PENDING
    return task


def a_slot(node: int = 0, cores: Sequence[Any] = (0,), **more: Any) -> dict[str, Any]:
    """A slot as an application gives it, with indices for devices."""
    return {'node_index': node, 'cores': list(cores), **more}

"""Workers that span nodes: on each node, the agent runs one manager, as a task of its own that is part of the worker.

The scheduler places the ranks of a worker as those of any task. The executor of each node then gets a part: a copy of
the task with the ranks on that node. The worker executes when the first part does, and has ended when all parts have.
It is DONE if a part is, else CANCELED if one is: a worker without MPI continues without the nodes that it loses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from rp_agent.components.stage import Flow, Owner, Stage, Tasks
from rp_agent.raptor.transport import UNPROTECTED, Transports
from rp_agent.stager.component import tail
from rp_agent.task import JOB_SLOTS, PART, VARIABLES, AgentTask
from rp_api import states
from rp_api.constants import RAPTOR_WORKER, TRANSPORT_MPI
from rp_api.raptor_link import TRANSPORT, carrier_file, run_file
from rp_profiling.write.tracer import Tracer


class PartPlacement:
    """The resources of some ranks of a task, all on one node."""

    def __init__(self, whole: Any, node: int, ranks: Sequence[int]) -> None:
        self._whole = whole
        self._node = node
        self._ranks = ranks

    def nodes(self) -> list[int]:
        """Return the position of the node."""
        return [self._node]

    def slots(self) -> list[dict[str, Any]]:
        """Return the slots of the ranks as plain data."""
        slots = self._whole.slots()
        return [slots[rank] for rank in self._ranks]

    def cores_of_rank(self, rank: int) -> tuple[int, ...]:
        """Return the core indices of a rank of the part; empty if there is no such rank."""
        if not 0 <= rank < len(self._ranks):
            return ()
        cores: tuple[int, ...] = self._whole.cores_of_rank(self._ranks[rank])
        return cores


class WorkerPart(AgentTask):
    """The ranks of a worker on one node; `number` counts its parts."""

    __slots__ = ('number', 'worker')

    def __init__(self, worker: AgentTask, number: int) -> None:
        uid = f'{worker.uid}.part.{number:04d}'
        description = dict(worker.description)
        if number:   # the first one writes the files of the worker
            description |= {'stdout': f'{uid}.out', 'stderr': f'{uid}.err'}
        else:
            description |= {name: description.get(name) or f'{worker.uid}.{name[3:]}' for name in ('stdout', 'stderr')}
        super().__init__(uid, description, worker.pilot, worker.sandbox)
        self.worker = worker
        self.number = number
        self.state = worker.state


_DECISIVE = (states.DONE, states.CANCELED, states.FAILED)
"""The first of these that a part has is that of the worker."""


class WorkerParts(Stage):
    """The parts of all workers that span nodes; `ended(part)` is called with each that ends before its worker does.

    `transports` chooses how their managers exchange messages. `tracer` records the states of workers, as executors
    record those of their parts.
    """

    order = 2

    def __init__(self, ended: Callable[[WorkerPart], object], tracer: Tracer, flow: Flow, owner: Owner,
                 transports: Transports) -> None:
        self._ended = ended
        self._tracer = tracer
        self._flow = flow
        self._owner = owner
        self._transports = transports
        self._warned = False
        self._running: dict[str, dict[str, WorkerPart]] = {}
        self._done: dict[str, list[WorkerPart]] = {}

    def placed(self, tasks: Tasks) -> Tasks:
        """Return the tasks with parts in place of the workers that the scheduler has placed on several nodes."""
        spread = [task for task in tasks
                  if task.description['mode'] == RAPTOR_WORKER and task.placement is not None
                  and len(task.placement.nodes()) > 1]
        if not spread:
            return tasks
        found = [task for task in tasks if task not in spread]
        for worker in spread:
            parts = _parts_of(worker, self._transport(worker))
            self._running[worker.uid] = {part.uid: part for part in parts}
            self._done[worker.uid] = []
            found += parts
        return found

    def _transport(self, worker: AgentTask) -> str:
        transport = self._transports.of(worker.uid, worker.description)
        if transport == TRANSPORT_MPI and not self._transports.fabric and not self._warned:
            self._warned = True
            self._owner.notice(f'{worker.uid}: {UNPROTECTED}')
        return transport

    def close(self) -> None:
        """End the trial of MPI."""
        self._transports.close()

    def cancel(self, uids: Iterable[str]) -> None:
        """Cancel the parts of those of these tasks that are workers."""
        parts = [part for uid in uids for part in self._running.get(uid, {}).values()]
        if parts:
            self._flow.end_runs(parts)

    def visible(self, tasks: Sequence[AgentTask], state: str) -> Sequence[AgentTask]:
        """Return the tasks that have reached a state, with workers in place of their parts."""
        if not any(isinstance(task, WorkerPart) for task in tasks):
            return tasks
        found: list[AgentTask] = []
        for task in tasks:
            if not isinstance(task, WorkerPart):
                found.append(task)
            elif state == states.AGENT_EXECUTING and task.worker.state != state:
                task.worker.state = state
                self._tracer.record('advance', task.worker.uid, state)
                found.append(task.worker)
                if self._owner.find(task.worker.uid) is task.worker:   # else a master has submitted it
                    self._owner.report(task.worker, {'transport': task.extra[VARIABLES][TRANSPORT]})
        return found

    def returned(self, tasks: Tasks) -> Tasks:
        """Return the executed tasks with workers, of which all parts have ended, in place of parts."""
        if not any(isinstance(task, WorkerPart) for task in tasks):
            return tasks
        found: list[AgentTask] = []
        for task in tasks:
            if not isinstance(task, WorkerPart):
                found.append(task)
                continue
            worker = task.worker
            del self._running[worker.uid][task.uid]
            self._done[worker.uid].append(task)
            if self._running[worker.uid]:
                self._ended(task)
            else:
                del self._running[worker.uid]
                _conclude(worker, self._done.pop(worker.uid))
                self._tracer.record('advance', worker.uid, worker.state)
                found.append(worker)
        return found


def _parts_of(worker: AgentTask, transport: str) -> list[WorkerPart]:
    """Return the parts of a worker, in the order of its ranks."""
    slots = worker.slots or []
    ranks_of: dict[int, list[int]] = {}
    for rank, slot in enumerate(slots):
        ranks_of.setdefault(slot['node_index'], []).append(rank)
    found = []
    for number, (node, ranks) in enumerate(ranks_of.items()):
        part = WorkerPart(worker, number)
        part.description['ranks'] = len(ranks)
        part.placement = PartPlacement(worker.placement, node, ranks)
        part.extra = {**worker.extra, PART: {
            'worker': worker.uid, 'part': number, 'parts': len(ranks_of), 'numbers': ranks, 'total': len(slots)},
            VARIABLES: {**worker.extra.get(VARIABLES, {}), TRANSPORT: transport}}
        if number == 0:
            part.extra[JOB_SLOTS] = slots
        found.append(part)
    return found


def _conclude(worker: AgentTask, parts: list[WorkerPart]) -> None:
    """Set the outcome of a worker whose parts have ended, in this order."""
    for part in parts:
        for file in (run_file, carrier_file):
            with suppress(OSError):   # a killed manager leaves it
                os.unlink(file(worker.sandbox, worker.uid, part.number))
    by_state = {state: [part for part in parts if part.target_state == state] for state in _DECISIVE}
    done = by_state[states.DONE]
    decisive = next(filter(None, by_state.values()), parts)[0]
    for name in ('state', 'exit_code', 'target_state', 'exception', 'exception_detail', 'error'):
        setattr(worker, name, getattr(decisive, name))
    if decisive.number and not done:
        worker.stderr = tail(os.path.join(decisive.sandbox, decisive.description['stderr']))

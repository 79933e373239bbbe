"""The component that brings RAPTOR masters their tasks, and their results back into the pipeline.

Rules of this file:

- Tasks come from the input stagers. Masters, and workers whose master is up, go on to the scheduler like any other
  task; all others wait until a master asks for them, and need no resources of the agent.
- A master that has ended takes what waits for it and what it had with it: those tasks fail, with the reason. What was
  for any master goes to another one, once. What is being executed by the agent goes on.
- Whatever a master says, the agent goes on: what does not make sense is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rp_agent.raptor import start
from rp_agent.raptor.master import Master, how_it_ended
from rp_agent.raptor.master_registry import MasterRegistry, fail
from rp_agent.raptor.ports import RaptorPorts
from rp_agent.raptor.results import apply, has_run
from rp_agent.raptor.submissions import Submissions, with_told
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.component import Component
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER, TASK_EXECUTABLE
from rp_api.errors import CoordinationError, sentence
from rp_api.raptor_link import ANY, RPC, Access
from rp_api.wire import codec
from rp_profiling.write.tracer import Tracer

_log = logging.getLogger('radical.pilot.agent.raptor')

DRAIN = 0.25
"""Seconds that what a master has said before its end has to arrive, if it did not say goodbye."""

GRACE = 10.0
"""Seconds that the workers of a master which has ended have to end themselves."""

_GIVEN_AGAIN = 'raptor.given_again'


class Raptor(Component):
    """AGENT_SCHEDULING_PENDING in; `output` goes to the scheduler. `info` is what masters are welcomed with."""

    def __init__(self, uid: str, tracer: Tracer, ports: RaptorPorts, info: dict[str, Any]) -> None:
        super().__init__(uid, tracer)
        self._ports = ports
        self._info = info
        self._registry = MasterRegistry()
        self._submissions = Submissions(ports)
        self._addresses: dict[bytes, Master] = {}
        self._tasks: dict[str, AgentTask] = {}
        """The tasks of the masters themselves."""
        self._last_request = 0
        self._asked: dict[int, AgentTask] = {}
        self._stopped: str | None = None
        """Why all tasks end."""
        self._handlers: Mapping[str, Callable[..., None]] = {
            'credit': self._on_credit, 'states': self._on_states, 'results': self._on_results,
            'submit': self._on_submit, 'cancel': self._on_cancel, 'rpc_result': self._on_rpc_result,
            'bye': self._on_bye}

    # tasks come, and go to masters

    def put(self, tasks: list[AgentTask]) -> None:
        """Take tasks of masters, masters and workers."""
        if self._stopped is not None:
            self._refuse(tasks, self._stopped)
            return
        ready, waiting = [], []
        for task in tasks:
            mode = task.description['mode']
            if mode == RAPTOR_MASTER:
                self._registry.known(task.uid).awaited = True
                self._tasks[task.uid] = task
            if mode != RAPTOR_MASTER and not (mode == RAPTOR_WORKER and self._registry.of(task).up):
                waiting.append(task)
            elif self._can_start(task):
                ready.append(task)
        if ready:
            self.output(ready)
        if waiting:
            self.advance(waiting, states.AGENT_SCHEDULING)
            self._end(self._registry.wait(waiting))
            for master in {self._registry.of(task) for task in waiting if task.description['mode'] == RPC}:
                self._ask(master)
            self._serve()

    def _can_start(self, task: AgentTask) -> bool:
        """Whether there is a program for a master or worker; else its task has failed."""
        try:
            start.find_program(task.description, self._ports.environment)
        except Exception as error:   # which concerns this task alone
            if not isinstance(error, ValueError):
                task.broke(error, 'starting')
            task.fail(str(error), f'{task.uid} cannot be started: {error}')
            self._ports.leave([task])
            return False
        if task.description['mode'] == RAPTOR_WORKER:
            master = self._registry.of(task)
            master.workers[task.uid] = task
            self._submissions.worker_begins(master, task)
        return True

    def _end(self, tasks: list[AgentTask]) -> None:
        """End tasks that wait in vain."""
        for task in tasks:
            self._registry.end(task)
        if tasks:
            self._ports.leave(tasks)

    def _serve(self) -> None:
        """Give masters what they have asked for."""
        for master, tasks in self._registry.deal():
            # what is to be executed will come back, and be scheduled first
            self.advance([task for task in tasks if task.description['mode'] != TASK_EXECUTABLE],
                         states.AGENT_EXECUTING_PENDING)
            self._send_tasks(master, tasks)

    def _send_tasks(self, master: Master, tasks: list[AgentTask]) -> None:
        try:
            common, rests = codec.pack_bulk([task.description for task in tasks])
            self._ports.send(master.address, 'tasks', common, [task.uid for task in tasks],
                             [task.sandbox for task in tasks], rests)
        except ValueError as error:   # too large, or something in it is nested too deeply
            if len(tasks) == 1:
                self._cannot_send(master, tasks[0], error)
                return
            self._send_tasks(master, tasks[:len(tasks) // 2])
            self._send_tasks(master, tasks[len(tasks) // 2:])

    def _cannot_send(self, master: Master, task: AgentTask, error: ValueError) -> None:
        del master.held[task.uid]
        master.credit += 1
        task.fail(sentence(error), f'{task.uid} cannot be sent to {master.uid}')
        self._ports.leave([task])

    def _ask(self, master: Master) -> None:
        """Ask a master what it was not asked yet."""
        if not master.up:
            return
        for task in [task for task in master.requests.values() if task.state != states.AGENT_EXECUTING]:
            self._last_request += 1
            self._asked[self._last_request] = task
            self.advance([task], states.AGENT_EXECUTING)
            description = task.description
            self._ports.send(master.address, 'rpc', self._last_request, description['method'], description['args'],
                             description['kwargs'])

    # what masters say

    def receive(self, sender: bytes, operation: str, arguments: list[Any]) -> None:
        """Take in a message whose form was checked."""
        if operation == 'hello':
            self._on_hello(sender, *arguments)
            return
        master = self._addresses.get(sender)
        if master is None:
            self._ports.refuse(f'{operation} of somebody unknown')
        elif self._stopped is None:
            self._handlers[operation](master, *arguments)

    def _on_hello(self, sender: bytes, uid: str, pid: int, access: dict[str, Any]) -> None:
        task = self._tasks.get(uid)
        if task is None:
            self._ports.refuse(f'hello of {uid!r:.80}, which is not a master of this pilot')
            return
        try:
            checked = Access.read(access)
        except CoordinationError as error:
            self._ports.refuse(error)
            return
        master = self._registry.known(uid)
        self._addresses.pop(master.address, None)
        self._addresses[sender] = master
        master.address = sender
        self._ports.send(sender, 'welcome', self._info)
        if master.up or master.gone:   # it was connected before
            return
        _log.info('%s is up, process %d', uid, pid)
        master.listens = checked.address
        master.up = True
        master.last_result = time.monotonic()
        self._ports.master_is_up(task, checked.as_dict())
        workers = list(master.waiting.values())
        master.waiting.clear()
        ready = [worker for worker in workers if self._can_start(worker)]
        if ready:
            self.output(ready)
        self._ask(master)
        self._serve()

    def _on_credit(self, master: Master, number: int) -> None:
        master.credit += number
        self._serve()

    def _on_states(self, master: Master, state: str, uids: list[str]) -> None:
        if state == states.AGENT_EXECUTING:
            running = self._submissions.running
            held = [master.held[uid] for uid in uids if uid in master.held and uid not in running]
            self.advance([task for task in held if task.state != state], state)   # else it was begun again

    def _on_results(self, master: Master, uids: list[str], results: list[dict[str, Any] | bytes]) -> None:
        master.last_result = time.monotonic()
        tasks = []
        held, running = master.held, self._submissions.running
        for uid, result in zip(uids, results, strict=True):
            if uid in held and uid not in running:
                task = held.pop(uid)
                _apply(task, result)
                tasks.append(task)
        self._finish(tasks)

    def _finish(self, tasks: list[AgentTask]) -> None:
        """Let tasks go on that have their results."""
        executed = [task for task in tasks if has_run(task)]
        if executed:
            self.advance(executed, states.AGENT_STAGING_OUTPUT_PENDING)
            self._ports.stage_output(executed)
        if len(executed) < len(tasks):
            self._ports.leave([task for task in tasks if not has_run(task)])

    def _on_submit(self, master: Master, descriptions: list[dict[str, Any]]) -> None:
        task = self._tasks.get(master.uid)
        if task is not None:   # else it has ended
            back = self._submissions.take(master, descriptions, task.sandbox)
            if back:
                self.output(back)

    def _on_cancel(self, master: Master, uids: list[str]) -> None:
        self._ports.cancel(self._submissions.of(master, uids))

    def _on_rpc_result(self, master: Master, number: int, good: bool, value: Any) -> None:
        task = self._asked.pop(number, None)
        if task is None or master.requests.pop(task.uid, None) is None:
            return
        _apply(task, {'return_value': value} if good else {
            'exception': str(value), 'exception_detail': f'{master.uid} has refused it', 'target_state': states.FAILED})
        self._finish([task])

    def _on_bye(self, master: Master) -> None:
        master.up = False

    # what happens in the pipeline

    def visible(self, tasks: Sequence[AgentTask], state: str) -> Sequence[AgentTask]:
        """Those of the tasks whose new state the application is to hear of.

        Not what masters have submitted; and that a master is executing is said when it is up.
        """
        if self._submissions.own:
            tasks = self._submissions.visible(tasks, state)
        if state != states.AGENT_EXECUTING:
            return tasks
        return [task for task in tasks if task.uid not in self._tasks or self._registry.known(task.uid).up]

    def comes_back(self, task: AgentTask) -> bool:
        """Note that a task has been executed, or cannot be; whether it waits for what its master says about that."""
        mode = task.description['mode']
        if mode == RAPTOR_MASTER:
            self._ended(task)
        elif mode == RAPTOR_WORKER:
            master = self._registry.of(task)
            if master.workers.pop(task.uid, None) is not None:
                self._submissions.worker_ended(master, task)
        if task.uid not in self._submissions.running:
            return False
        if self._submissions.executed(task):
            return True
        holder = self._registry.holder(task.uid)
        if holder is not None:   # and it has ended
            del holder.held[task.uid]
        return False

    @property
    def has_own(self) -> bool:
        """Whether masters have submitted tasks of their own that have not left."""
        return bool(self._submissions.own)

    def was_own(self, task: AgentTask) -> bool:
        """Note that a task leaves; whether it was a master's own, which is told, and nobody else."""
        return self._submissions.left(task)

    # the end of a master

    def _ended(self, task: AgentTask) -> None:
        """The task of a master has ended; what it has said last may still be on its way."""
        master = self._registry.known(task.uid)
        if master.gone:
            return
        self._tasks.pop(task.uid, None)   # where it is not if it has never been started
        said_goodbye = master.address and not master.up
        master.gone = True
        self._ports.remove_leftovers(master.uid, master.listens)
        master.up = master.awaited = False
        how = how_it_ended(task)
        if said_goodbye or not master.address:
            self._end_master(master, how)
        else:
            self._ports.call_later(DRAIN, self._end_master, master, how)

    def _end_master(self, master: Master, how: str) -> None:
        """End what waits for a master that has ended, and what it had."""
        if self._stopped is not None:
            return
        master.ended = how
        _log.info('%s has ended: %s', master.uid, how)
        self._addresses.pop(master.address, None)
        self._ports.forget(master.address)
        lost = self._take_back(master)
        again, failed = [], []
        for task in lost:
            if self._may_go_elsewhere(task):
                task.extra[_GIVEN_AGAIN] = True
                again.append(task)
            else:
                fail(task, master)
                failed.append(task)
        if failed:
            self._ports.leave(failed)
        self._end(self._registry.given_up(master))
        self._registry.wait_again(again)
        self._serve()
        if master.workers or master.own:
            self._ports.call_later(GRACE, self._end_workers, master)

    def _take_back(self, master: Master) -> list[AgentTask]:
        """What a master has, but for what the agent executes; it has it no more."""
        uids = [uid for uid in master.held if uid not in self._submissions.running]
        return [master.held.pop(uid) for uid in uids]

    def _may_go_elsewhere(self, task: AgentTask) -> bool:
        return (task.description['raptor_id'] == ANY and not task.cancelled and not self._registry.all_ended()
                and _GIVEN_AGAIN not in task.extra)

    def _end_workers(self, master: Master) -> None:
        """End workers, and whatever else a master has submitted, that have outlived it."""
        left = {**master.workers, **master.own}
        if left and self._stopped is None:
            _log.warning('%s is cancelled: %s has ended', ', '.join(left), master.uid)
            self._ports.cancel(list(left.values()))

    # the pipeline ends tasks

    def cancel(self, uids: Iterable[str]) -> None:
        """End tasks that wait, and have masters end those that they have."""
        waiting: list[AgentTask] = []
        sent: dict[str, list[str]] = {}
        for uid in uids:
            holder = self._registry.holder(uid)
            if holder is not None:
                sent.setdefault(holder.uid, []).append(uid)
            elif (task := self._registry.waiting(uid)) is not None:
                task.cancelled = True
                waiting.append(task)
        for master, mine in sent.items():
            self._ports.send(self._registry.known(master).address, 'cancel', mine)
        self._end(waiting)

    def stop(self, reason: str) -> None:
        """End all tasks that the agent does not execute itself, for this reason, and have the masters end."""
        self._stopped = reason
        tasks = self._registry.clear()
        for master in self._registry.masters.values():
            tasks += self._take_back(master)
            master.held.clear()
            if master.up:
                self._ports.send(master.address, 'stop')
        self._submissions.running.clear()   # they end as any other task
        self._refuse(tasks, reason)

    def _refuse(self, tasks: list[AgentTask], reason: str) -> None:
        for task in tasks:
            task.target_state = states.CANCELED
            task.exception = reason
        if tasks:
            self._ports.leave(tasks)

    @property
    def held_back(self) -> int:
        """Number of tasks here that may have to wait until others come."""
        return self._registry.held_back

    def check(self) -> None:
        """Verify all invariants; raises AssertionError."""
        masters = self._registry.masters.values()
        own = {uid: master for master in masters for uid in master.own}
        assert own == self._submissions.own, 'tasks of masters are miscounted'
        places = [uid for master in masters for queue in (*master.queues, master.held) for uid in queue]
        places += self._registry.any
        assert len(places) == len(set(places)), 'a task is in two places'
        for master in masters:
            assert master.credit >= 0, f'{master.uid} was given too much'
            assert not (master.ended and (master.up or any(master.queues))), f'{master.uid} has ended, and has tasks'


def _apply(task: AgentTask, result: dict[str, Any] | bytes) -> None:
    """Fill in a task what its master tells, which may be whatever a user's code has made of it."""
    try:
        apply(task, with_told(task, result))
    except Exception as error:
        task.broke(error, 'reading what its master tells')

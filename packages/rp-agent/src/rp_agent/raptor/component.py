"""The RAPTOR component sends tasks to masters, and returns their results to the pipeline.

Rules of this file:

- Tasks come from the input stagers. Masters, and workers whose master is up, go to the scheduler like any other task.
  All others wait until a master asks for them, and need no resources of the agent.
- When a master ends, the tasks that it has or that wait for it fail with the reason. A task for any master goes to
  another one, once. Tasks that the agent executes continue.
- No message of a master ends the agent: invalid ones are dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rp_agent.components.isolation import unless
from rp_agent.components.stage import Flow, Owner, Stage, Tasks
from rp_agent.raptor import start
from rp_agent.raptor.dealing import Dealer
from rp_agent.raptor.master import Master, how_it_ended
from rp_agent.raptor.master_registry import MasterRegistry
from rp_agent.raptor.ports import RaptorPorts
from rp_agent.raptor.results import apply, apply_checked, has_run
from rp_agent.raptor.submissions import Submissions
from rp_agent.raptor.waits import Waits
from rp_agent.raptor.worker_parts import WorkerPart
from rp_agent.task import AgentTask, Description, divided
from rp_api import states
from rp_api.component import Component
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER
from rp_api.errors import CoordinationError
from rp_api.failures.kinds import LAUNCH
from rp_api.raptor_link import RPC
from rp_api.system.shared_directory import sweep
from rp_api.transport.access import Access
from rp_profiling.write.tracer import Tracer

_log = logging.getLogger('radical.pilot.agent.raptor')

DRAIN = 0.25
"""Seconds to wait for the last messages of a master that ended without `bye`."""

GRACE = 10.0
"""Seconds that workers have to end by themselves after the end of their master."""


class Raptor(Component, Stage):
    """The RAPTOR component, which takes tasks in AGENT_SCHEDULING_PENDING; masters receive `info` as `welcome`."""

    order = 3

    def __init__(self, uid: str, tracer: Tracer, ports: RaptorPorts, flow: Flow, owner: Owner,
                 info: dict[str, Any]) -> None:
        super().__init__(uid, tracer)
        self.advanced = flow.advanced
        self._ports = ports
        self._flow = flow
        self._owner = owner
        self._info = info
        self._registry = MasterRegistry()
        self._submissions = Submissions(ports, flow)
        self._addresses: dict[bytes, Master] = {}
        self._tasks: dict[str, AgentTask] = {}   # of the masters themselves
        self._waits = Waits(ports, owner, self._tasks, self._submissions.own)
        self._dealer = Dealer(ports, flow, self._registry, self.advance)
        self._stopped: str | None = None   # the reason why all tasks end
        self._handlers: Mapping[str, Callable[..., None]] = {
            'credit': self._on_credit, 'ranks': self._on_ranks, 'returned': self._on_returned,
            'states': self._on_states, 'results': self._on_results, 'submit': self._on_submit,
            'cancel': self._on_cancel, 'rpc_result': self._on_rpc_result, 'waits': self._waits.master_waits,
            'bye': self._on_bye}

    def __contains__(self, uid: object) -> bool:
        return self._registry.holder(str(uid)) is not None or self._registry.waiting(str(uid)) is not None

    # tasks for masters

    def staged(self, tasks: Tasks) -> Tasks:
        """Take the tasks that concern RAPTOR; return the others."""
        theirs, others = divided(tasks)
        if theirs:
            self.put(theirs)
        return others

    def put(self, tasks: Tasks) -> None:
        """Take masters, workers, and tasks for masters."""
        if self._stopped is not None:
            self._refuse(tasks, self._stopped)
            return
        self.received(tasks)
        ready, waiting = [], []
        asked: set[Master] = set()
        before: Description | None = None
        for task in tasks:
            if task.description is before:   # calls share theirs
                waiting.append(task)
                continue
            mode = task.description['mode']
            if mode == RAPTOR_MASTER:
                self._registry.known(task.uid).awaited = True
                self._tasks[task.uid] = task
            if mode != RAPTOR_MASTER and not (mode == RAPTOR_WORKER and self._registry.of(task).up):
                waiting.append(task)
                if mode == RPC:
                    asked.add(self._registry.of(task))
                elif mode != RAPTOR_WORKER:
                    before = task.description
            elif self._can_start(task):
                ready.append(task)
        self._schedule(ready)
        if waiting:
            self.advance(waiting, states.AGENT_SCHEDULING)
            self._end(self._registry.wait(waiting))
            for master in asked:
                self._dealer.ask(master)
            self._dealer.serve()

    def _schedule(self, tasks: list[AgentTask]) -> None:
        """Pass masters and workers to the scheduler."""
        if tasks:
            self._flow.admit(tasks)
            self._waits.watch(tasks)

    def _can_start(self, task: AgentTask) -> bool:
        """Return whether a master or worker has a program; if not, its task fails."""
        try:
            start.find_program(task.description, self._ports.environment)
        except Exception as error:   # concerns this task alone
            if not isinstance(error, ValueError):
                task.broke(error, 'starting')
            task.fail(str(error), f'{task.uid} cannot be started: {error}', LAUNCH)
            self._flow.leave([task])
            return False
        if task.description['mode'] == RAPTOR_WORKER:
            master = self._registry.of(task)
            task.beside = self._tasks.get(master.uid)
            master.workers[task.uid] = task
            self._submissions.worker_begins(master, task)
        return True

    def _end(self, tasks: list[AgentTask]) -> None:
        """End tasks that no master will run."""
        for task in tasks:
            self._registry.end(task)
        if tasks:
            self._flow.leave(tasks)

    # messages of masters

    def receive(self, sender: bytes, operation: str, arguments: list[Any]) -> None:
        """Handle a message whose form was checked."""
        if operation == 'hello':
            self._on_hello(sender, *arguments)
            return
        master = self._addresses.get(sender)
        if master is None:
            self._ports.refuse(f'{operation} of an unknown sender')
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
        master.begins(checked.address)
        self._owner.master_up(task, checked.as_dict())
        workers = list(master.waiting.values())
        master.waiting.clear()
        self._schedule([worker for worker in workers if self._can_start(worker)])
        self._dealer.ask(master)
        self._dealer.serve()

    def _on_credit(self, master: Master, number: int) -> None:
        master.credit += number
        self._dealer.serve()

    def _on_ranks(self, master: Master, number: int) -> None:
        master.ranks = number
        self._dealer.serve()

    def _on_returned(self, master: Master, uids: list[str]) -> None:
        """Take tasks back that a master has not started, for another one."""
        master.asked, master.exhausted = 0, not uids
        tasks = [master.held.pop(uid) for uid in uids if uid in master.held and uid not in self._submissions.running]
        self._end([task for task in tasks if task.cancelled])
        self._registry.wait_again([task for task in tasks if not task.cancelled])
        self._dealer.serve()

    def _on_states(self, master: Master, state: str, uids: list[str]) -> None:
        if state == states.AGENT_EXECUTING:
            running = self._submissions.running
            self.advance([task for task in map(master.held.get, uids)
                          if task is not None and task.state != state   # restarted tasks have it already
                          and not (running and task.uid in running)], state)

    def _on_results(self, master: Master, uids: list[str], results: list[dict[str, Any] | bytes]) -> None:
        master.last_result = time.monotonic()
        master.exhausted = False
        tasks = []
        take, running = master.held.pop, self._submissions.running
        for uid, result in zip(uids, results, strict=True):
            task = None if running and uid in running else take(uid, None)
            if task is not None:
                if type(result) is bytes and not task.extra:   # the usual case
                    apply(task, result)
                else:
                    apply_checked(task, result)
                tasks.append(task)
        self._finish(tasks)

    def _finish(self, tasks: list[AgentTask]) -> None:
        """Pass on tasks that have their results."""
        executed = [task for task in tasks if task.packed is not None or has_run(task)]
        if executed:
            self.advance(executed, states.AGENT_STAGING_OUTPUT_PENDING)
            self._flow.conclude(executed)
        if len(executed) < len(tasks):
            self._flow.leave([task for task in tasks if not has_run(task)])

    def _on_submit(self, master: Master, descriptions: list[dict[str, Any]]) -> None:
        task = self._tasks.get(master.uid)
        if task is not None:   # else it has ended
            back = self._submissions.take(master, descriptions, task.sandbox)
            if back:
                self._flow.admit(back)

    def _on_cancel(self, master: Master, uids: list[str]) -> None:
        self._flow.cancel(self._submissions.of(master, uids))

    def _on_rpc_result(self, master: Master, number: int, good: bool, value: Any) -> None:
        task = self._dealer.answered(master, number)
        if task is not None:
            apply_checked(task, {'return_value': value} if good else {
                'exception': str(value), 'exception_detail': f'{master.uid} has refused it',
                'target_state': states.FAILED})
            self._finish([task])

    def _on_bye(self, master: Master) -> None:
        master.up = False

    # calls from the pipeline

    def visible(self, tasks: Sequence[AgentTask], state: str) -> Sequence[AgentTask]:
        """Return the tasks whose new state is reported to the application.

        Tasks that masters have submitted are left out. AGENT_EXECUTING of a master is reported when the master is up.
        """
        if state == states.AGENT_EXECUTING:
            self._waits.placed(tasks)
        if self._submissions.own:
            tasks = self._submissions.visible(tasks, state)
        if state != states.AGENT_EXECUTING:
            return tasks
        return [task for task in tasks if task.uid not in self._tasks or self._registry.known(task.uid).up]

    def freed(self, tasks: Tasks) -> Tasks:
        """Handle the end of tasks' execution; return those that do not wait for the result that their master sends."""
        # tasks that masters have run (`packed`) come from here
        return unless(tasks, lambda task: task.packed is None and self._comes_back(task), 'ending its run')

    def _comes_back(self, task: AgentTask) -> bool:
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

    def part_ended(self, part: WorkerPart) -> None:
        """Report to a master the end of a part of a worker, whose other parts are still there."""
        master = self._registry.of(part.worker)
        if part.worker.uid in master.workers:
            self._submissions.part_ended(master, part)

    def left(self, tasks: Tasks) -> Tasks:
        """Return the tasks that no master has submitted, which alone receives their results."""
        return unless(tasks, self._submissions.left, 'leaving') if self._submissions.own else tasks

    # end of a master

    def _ended(self, task: AgentTask) -> None:
        """Handle the end of a master's task; its last messages may still arrive."""
        master = self._registry.known(task.uid)
        if master.gone:
            return
        self._tasks.pop(task.uid, None)   # missing if it was never started
        said_goodbye = master.address and not master.up
        master.gone = True
        self._ports.remove_leftovers(master.uid, master.listens)
        sweep()   # it may have been killed
        master.up = master.awaited = False
        how = how_it_ended(task)
        if said_goodbye or not master.address:
            self._end_master(master, how)
        else:
            self._ports.call_later(DRAIN, self._end_master, master, how)

    def _end_master(self, master: Master, how: str) -> None:
        """End the tasks that a master had when it ended, and those that wait for it."""
        if self._stopped is not None:
            return
        master.ended = how
        _log.info('%s has ended: %s', master.uid, how)
        self._addresses.pop(master.address, None)
        self._ports.forget(master.address)
        failed = self._registry.lost(master, master.take_held(self._submissions.running))
        if failed:
            self._flow.leave(failed)
        self._end(self._registry.given_up(master))
        self._dealer.serve()
        if master.workers or master.own:
            self._ports.call_later(GRACE, self._end_workers, master)

    def _end_workers(self, master: Master) -> None:
        """Cancel the workers and other tasks of a master that have outlived it."""
        left = {**master.workers, **master.own}
        if left and self._stopped is None:
            _log.warning('%s is cancelled: %s has ended', ', '.join(left), master.uid)
            self._flow.cancel(list(left.values()))

    # end of tasks

    def cancel(self, uids: Iterable[str]) -> None:
        """Cancel waiting tasks, and have masters cancel those that they have."""
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
        """End all tasks that the agent does not execute itself, and have the masters end."""
        self._stopped = reason
        tasks = self._registry.clear()
        for master in self._registry.masters.values():
            tasks += master.take_held(self._submissions.running)
            master.held.clear()
            if master.up:
                self._ports.send(master.address, 'stop', reason)
        self._submissions.running.clear()   # these end like other tasks
        self._refuse(tasks, reason)

    def _refuse(self, tasks: list[AgentTask], reason: str) -> None:
        for task in tasks:
            task.cancel(reason)
        if tasks:
            self._flow.leave(tasks)

    def end(self) -> None:
        """Close the link to masters."""
        self._ports.close()

    def close(self) -> None:
        """Close the trace and the link."""
        super().close()
        self._ports.close()

    @property
    def held_back(self) -> int:
        """Number of tasks that may have to wait until others arrive."""
        return self._registry.held_back

    def check(self) -> None:
        """Verify all invariants; raise AssertionError if one is violated."""
        own = {uid: master for master in self._registry.masters.values() for uid in master.own}
        assert own == self._submissions.own, 'tasks of masters are miscounted'
        self._registry.check()

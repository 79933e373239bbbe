"""Tasks that are launched into distributed virtual machines (DVMs), between executor and supervisor.

Rules of this file:

- A task waits here until its DVM can launch it; then it is given back, knows its DVM, and is started as any other task
  of a launch method. When its launcher has ended, `takes_back` says whether that was none.
- It was one if ranks tell how they ended, or if they ran and the DVM still does. What was none is launched again.
- Launchers hang now and then. One that has started no rank within `START_LIMIT` seconds is ended, and the task launched
  again. One whose ranks have all told their end, and that has not returned when one looks again, is ended as well; what
  the ranks have told counts. One looks after 5, 10, 20, 40, and every further 60 seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rp_agent.executor.backends.fleet import Demand
from rp_agent.executor.backends.instance_supervisor import InstanceSupervisor
from rp_agent.executor.backends.launcher import nodes_of
from rp_agent.executor.backends.prrte.instance import OrteDvm, Prrte
from rp_agent.executor.base import Ending
from rp_agent.executor.launching import rank_script
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.outcome import end_of_output, explain_code
from rp_agent.instance_nodes import parts
from rp_agent.launch_method.dvm import DVM_URI
from rp_agent.lookup import LaunchRefused
from rp_agent.task import DVM, AgentTask
from rp_api.loop.event_loop import Loop, Timer
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:
    from rp_agent.executor.launching.launchers import Launchers
    from rp_agent.executor.run import Run
    from rp_agent.launch_method.base import LaunchMethod

_MAKERS = {'ORTE': OrteDvm, 'ORTE_LIB': OrteDvm, 'PRTE': Prrte}

START_LIMIT = 60.0
_LOOKS = (5.0, 10.0, 20.0, 40.0)
_LATER = 60.0


class Hung(Ending):
    """A launcher is ended because it hangs, or because its DVM is gone; `complete` if all ranks have told their end."""

    __slots__ = ('complete', 'reason')

    def __init__(self, reason: str, *, complete: bool = False) -> None:
        super().__init__(RuntimeError(reason))
        self.reason = reason
        self.complete = complete


@dataclass(frozen=True, slots=True)
class Hooks:
    """What is called with decisions about tasks and nodes."""

    start: Callable[[AgentTask], object]
    """Start the launcher of a task, or let the task go."""
    refuse: Callable[[AgentTask, LaunchRefused], object]
    """Fail a task."""
    place_again: Callable[[AgentTask, str], object]
    """Have a task placed on other nodes, for this reason."""
    end: Callable[[Run, Ending], object]
    """End the launcher of a task."""
    sweep: Callable[[str], object]
    """Kill what is left of a task on this host."""
    nodes_lost: Callable[[range, str], object]
    """Use these nodes of the pilot no more, for this reason."""


class Dvms:
    """The DVMs of a pilot, started for a launch method and the first task that comes; `hooks` hear of decisions.

    Raises PlatformError if the platform says something about DVMs that makes no sense.
    """

    def __init__(self, loop: Loop, tracer: Tracer, context: PilotContext, launchers: Launchers, method: LaunchMethod,
                 hooks: Hooks) -> None:
        self._loop = loop
        self._hooks = hooks
        nodes = nodes_of(launchers.setting)
        self.parts = parts(launchers.platform, len(nodes))
        environment = launchers.environment(method)
        options = launchers.platform['launch_methods'].get(method.NAME) or {}
        self._limit = float(options.get('launch_timeout', START_LIMIT))
        launcher = _MAKERS[method.NAME](environment.get('UMS_OMPIX_PRRTE_DIR', ''))
        variables = {**environment, **context.belongs}
        self.supervisor = InstanceSupervisor(loop, tracer, context.pilot_id, launcher, self.parts, nodes,
                                             context.own_sandbox, variables, self)
        self.tasks: dict[str, AgentTask] = {}
        """Those that wait here, by their uid."""
        self._launched: dict[str, AgentTask] = {}
        self._runs: dict[str, Run] = {}
        self._timers: dict[str, Timer] = {}

    def take(self, task: AgentTask) -> bool:
        """Keep a task until its DVM can launch it; False if it can be started now, or not by a DVM at all."""
        if task.uid in self._launched:
            return False
        indices = {self.supervisor.index_of(slot['node_index']) for slot in task.slots or ()}
        if len(indices) != 1:
            return False   # other methods may do, and if not, the reason is told
        description = task.description
        self.tasks[task.uid] = task
        cores = description['ranks'] * description['cores_per_rank']
        self.supervisor.admit(Demand(task.uid, cores, indices.pop(), placed=not description['slots']))
        return True

    def drop(self, uid: str) -> None:
        """A task was ended before it ran, or while it waited."""
        self.tasks.pop(uid, None)
        self._launched.pop(uid, None)
        self.supervisor.forget(uid)

    def started(self, run: Run) -> None:
        """The launcher of a task runs."""
        uid = run.task.uid
        if uid in self._launched:
            self._runs[uid] = run
            self._look_later(run, 0, time.monotonic())

    def takes_back(self, run: Run) -> bool:
        """Whether the task of a launcher that has ended is launched again, or was refused; else the launch counts."""
        uid = run.task.uid
        if uid not in self._launched:
            return False
        del self._runs[uid], self._launched[uid]
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()
        ending = run.ending
        if isinstance(ending, Hung) and ending.complete:
            run.ending = None
            run.codes = {0: 0}   # whatever the launcher has made of its end
        elif isinstance(ending, Hung):
            self._failed(run, ending.reason)
            return True
        elif ending is not None:
            self.supervisor.forget(uid)
            return False
        elif not self._was_launch(run):
            self._failed(run, _why(run))
            return True
        self.supervisor.done(uid)
        return False

    def stop(self, stopped: Callable[[], object]) -> None:
        """End all DVMs."""
        self.supervisor.stop(stopped)

    def close(self) -> None:
        """Leave no process behind."""
        for timer in self._timers.values():
            timer.cancel()
        self.supervisor.close()

    def check(self, queued: Iterable[str]) -> None:
        """Verify all invariants; raises AssertionError. `queued` are the tasks that the executor is about to start."""
        self.supervisor.check()
        assert self._runs.keys() <= self._launched.keys(), 'launchers run that nobody has launched'
        for uid in (*self.tasks, *self._launched):
            assert uid in self.supervisor, f'{uid} is not known to the supervisor'
        unstarted = self._launched.keys() - self._runs.keys()
        assert unstarted <= set(queued), f'nobody will start {unstarted - set(queued)}'

    # what the supervisor decides

    def launch(self, uid: str, index: int, address: str) -> None:
        """The task can be launched."""
        task = self.tasks.pop(uid)
        self._launched[uid] = task
        task.extra[DVM] = {DVM_URI: address}
        self._hooks.start(task)

    def abandon(self, uid: str, reason: str) -> None:
        """The DVM of a task is gone."""
        run = self._runs.get(uid)
        if run is not None:
            self._hooks.end(run, Hung(reason))
        # else its launcher is about to be started, and will find nobody

    def displace(self, uid: str, reason: str) -> None:
        """The nodes of a task are lost."""
        self._hooks.place_again(self.tasks.pop(uid), reason)

    def refuse(self, uid: str, reason: str) -> None:
        """No DVM will launch the task."""
        self._hooks.refuse(self.tasks.pop(uid), LaunchRefused(reason))

    def lost(self, nodes: range, reason: str) -> None:
        """A DVM is lost, and its nodes with it."""
        self._hooks.nodes_lost(nodes, reason)

    # launchers

    def _was_launch(self, run: Run) -> bool:
        """Whether a launcher that has ended has done what it should, whatever became of the program."""
        task = run.task
        started, failed = rank_script.read_notes(task.sandbox, task.uid)
        if failed:
            return True
        if any(run.codes.values()):
            return started and self.supervisor.lives(task.uid)
        return started

    def _failed(self, run: Run, reason: str) -> None:
        task = run.task
        task.extra.pop(DVM, None)
        self._hooks.sweep(task.uid)   # ranks outlive a DVM that was killed on their host
        self.tasks[task.uid] = task
        self.supervisor.failed(task.uid, reason)

    def _look_later(self, run: Run, looks: int, since: float, *, ended: bool = False) -> None:
        delay = _LOOKS[looks] if looks < len(_LOOKS) else _LATER
        if not ended:
            delay = min(delay, max(0.0, since + self._limit - time.monotonic()) or delay)
        self._timers[run.task.uid] = self._loop.call_later(delay, self._look, run, looks, since, ended)

    def _look(self, run: Run, looks: int, since: float, had_ended: bool) -> None:
        """See whether a launcher hangs."""
        task = run.task
        self._timers.pop(task.uid, None)
        if run.ending is not None:
            return
        launch = run.plan.launch
        assert launch is not None
        started, _ = rank_script.read_notes(task.sandbox, task.uid)
        ended = started and rank_script.have_ended(task.sandbox, task.uid) >= launch.ranks
        waited = time.monotonic() - since
        if not started and waited >= self._limit:
            self._hooks.end(run, Hung(f'the launcher has started no rank within {self._limit:g} s'))
        elif ended and had_ended:
            self._hooks.end(run, Hung('all ranks have ended, but not the launcher', complete=True))
        else:
            self._look_later(run, 0 if ended else looks + 1, since, ended=ended)


def _why(run: Run) -> str:
    """What to say of a launcher that has launched nothing."""
    code = next((code for code in run.codes.values() if code), 0)
    launch = run.plan.launch
    assert launch is not None
    return f'{explain_code(code, False)} of `{launch.line}`, {end_of_output(run.plan.output[1])}'

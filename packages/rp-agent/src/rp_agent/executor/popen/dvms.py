"""DVM tasks: launches tasks into distributed virtual machines (DVMs), between executor and supervisor.

Rules of this file:

- A task waits here until its DVM can launch it. Then it has the address of its DVM, and the executor starts it like any
  other task of a launch method. When its launcher has ended, `takes_back` decides whether the launch has failed.
- A launch has succeeded if ranks have noted exit codes, or if ranks have run and the DVM still runs. Otherwise the task
  is launched again.
- Some launchers hang. A launcher that has started no rank within `START_LIMIT` seconds is ended, and the task is
  launched again. A launcher that does not return between two polls after all ranks have noted their ends is ended as
  well, and the notes of the ranks count. Polls follow after 5, 10, 20, 40, and then every 60 seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

from rp_agent.executor.backends.fleet import Demand
from rp_agent.executor.backends.instance_supervisor import InstanceSupervisor
from rp_agent.executor.backends.launcher import InstanceLauncher, InstanceNode, Startup, nodes_of
from rp_agent.executor.base import Ending
from rp_agent.executor.launching import rank_script
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launchers import Launchers
from rp_agent.executor.launching.outcome import end_of_output, explain_code
from rp_agent.executor.popen.reaper import Reaper
from rp_agent.executor.run import Run
from rp_agent.instance_nodes import parts
from rp_agent.launch_method.base import LaunchMethod
from rp_agent.launch_method.dvm import DVM_URI
from rp_agent.task import DVM, AgentTask
from rp_api.backoff import backoff
from rp_api.loop.event_loop import Loop, Timer
from rp_profiling.write.tracer import Tracer

MESSAGE_SIZE = 1 << 30
"""Maximum size of a message between daemons, in bytes; the default is too small for the map of a job on many nodes."""

# namespace@vpid.rank;transport://address...
_URI = re.compile(r'\S+@\S+;\S+://\S+$')

_SMALL = 32
"""Maximum number of nodes for which the first daemon connects to all others directly."""


class Prrte(InstanceLauncher):
    """DVMs of the `prte` in PATH; `prefix` is the installation directory on the nodes, if it differs."""

    NAME: ClassVar[str] = 'PRTE'

    def __init__(self, prefix: str = '') -> None:
        self._prefix = ('--prefix', prefix) if prefix else ()

    def startup(self, number: int, nodes: Sequence[InstanceNode]) -> Startup:
        """Return the start of a DVM that prints its address to standard output."""
        hosts = f'prrte.{number:04d}.hosts'
        width = str(len(nodes) if len(nodes) <= _SMALL else _SMALL)
        argv = ('prte', *self._prefix, '--report-uri', '-', '--hostfile', hosts,
                '--pmixmca', 'ptl_base_max_msg_size', str(MESSAGE_SIZE),
                '--prtemca', 'routed_radix', width, '--prtemca', 'plm_rsh_num_concurrent', width)
        text = ''.join(f'{node.name} slots={node.cores}\n' for node in nodes)
        return Startup(argv, {hosts: text})

    def address(self, line: str) -> str:
        """Return the line if it is the URI of the DVM."""
        return line if _URI.fullmatch(line) else ''

    def is_ready(self, line: str) -> bool:
        """Return whether the line is the one that the DVM prints when all daemons have reported."""
        return line == 'DVM ready'


class OrteDvm(Prrte):
    """DVMs of the `orte-dvm` in PATH."""

    NAME: ClassVar[str] = 'ORTE'

    def startup(self, number: int, nodes: Sequence[InstanceNode]) -> Startup:
        """Return the start of a DVM that prints its address to standard output, unbuffered."""
        hosts = f'orte.{number:04d}.hosts'
        text = ''.join(f'{node.name} slots={node.cores}\n' for node in nodes)
        return Startup(('stdbuf', '-oL', 'orte-dvm', '--hostfile', hosts), {hosts: text})

    def address(self, line: str) -> str:
        """Return the URI of the DVM if the line contains it."""
        return line.removeprefix('VMURI: ') if line.startswith('VMURI: ') else ''


_MAKERS = {'ORTE': OrteDvm, 'ORTE_LIB': OrteDvm, 'PRTE': Prrte}

START_LIMIT = 60.0
"""Seconds within which a launcher must start a rank (`launch_timeout` of the launch method)."""
_POLL_S = 5.0, 60.0
"""The first and the longest interval between polls of a launcher."""


class Hung(Ending):
    """The end of a launcher that hangs, or whose DVM has ended; `complete` if all ranks have noted their ends."""

    __slots__ = ('complete', 'reason')

    def __init__(self, reason: str, *, complete: bool = False) -> None:
        super().__init__(RuntimeError(reason))
        self.reason = reason
        self.complete = complete


class LaunchUser(Protocol):
    """The executor, which gets tasks that have waited."""

    def launch(self, tasks: Iterable[AgentTask]) -> None:
        """Start tasks; hand on those that were cancelled."""

    def refuse(self, task: AgentTask, reason: str) -> None:
        """Fail a task."""


class Dvms:
    """The DVMs of a pilot for one launch method; the first task starts them. `user` gets the tasks.

    Raise PlatformError if the platform's options for DVMs are invalid.
    """

    def __init__(self, loop: Loop, tracer: Tracer, context: PilotContext, launchers: Launchers, method: LaunchMethod,
                 reaper: Reaper, user: LaunchUser) -> None:
        self._loop = loop
        self._ports = context.ports
        self._reaper = reaper
        self._user = user
        nodes = nodes_of(launchers.setting)
        self.parts = parts(launchers.platform, len(nodes))
        environment = launchers.environment(method)
        options = launchers.platform['launch_methods'].get(method.NAME) or {}
        self._limit = float(options.get('launch_timeout', START_LIMIT))
        launcher = _MAKERS[method.NAME](environment.get('UMS_OMPIX_PRRTE_DIR', ''))
        variables = {**environment, **context.belongs}
        self.supervisor = InstanceSupervisor(loop, tracer, context.pilot_id, launcher, self.parts, nodes,
                                             context.own_sandbox, variables, context.ports, self)
        self.tasks: dict[str, AgentTask] = {}
        """Waiting tasks, by uid."""
        self._launched: dict[str, AgentTask] = {}
        self._runs: dict[str, Run] = {}
        self._timers: dict[str, Timer] = {}

    def take(self, task: AgentTask) -> bool:
        """Hold a task until its DVM can launch it; return False if it can start now, or cannot use a DVM."""
        if task.uid in self._launched:
            return False
        indices = {self.supervisor.index_of(slot['node_index']) for slot in task.slots or ()}
        if len(indices) != 1:
            return False   # another launch method may accept it; otherwise it is refused with the reason
        description = task.description
        self.tasks[task.uid] = task
        cores = description['ranks'] * description['cores_per_rank']
        self.supervisor.admit(Demand(task.uid, cores, indices.pop(), placed=not description['slots']))
        return True

    def drop(self, uid: str) -> None:
        """Remove a task that was ended before it ran."""
        self.tasks.pop(uid, None)
        self._launched.pop(uid, None)
        self.supervisor.forget(uid)

    def started(self, run: Run) -> None:
        """Watch the launcher of a task."""
        uid = run.task.uid
        if uid in self._launched:
            self._runs[uid] = run
            self._look_later(run, 0, time.monotonic())

    def takes_back(self, run: Run) -> bool:
        """Retry or refuse the task of an ended launcher whose launch has failed; return False if it has succeeded."""
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
            run.codes = {0: 0}   # the launcher's own exit code does not count
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
        """Kill the processes of all DVMs."""
        for timer in self._timers.values():
            timer.cancel()
        self.supervisor.close()

    def check(self, queued: Iterable[str]) -> None:
        """Verify all invariants; raise AssertionError. `queued` are the uids of the executor's queued tasks."""
        self.supervisor.check()
        assert self._runs.keys() <= self._launched.keys(), 'launchers run for unknown tasks'
        for uid in (*self.tasks, *self._launched):
            assert uid in self.supervisor, f'{uid} is not known to the supervisor'
        unstarted = self._launched.keys() - self._runs.keys()
        assert unstarted <= set(queued), f'launched, but not queued: {unstarted - set(queued)}'

    # decisions of the supervisor

    def launch(self, uid: str, index: int, address: str) -> None:
        """Start the launcher of a task."""
        task = self.tasks.pop(uid)
        self._launched[uid] = task
        task.extra[DVM] = {DVM_URI: address}
        self._user.launch([task])

    def abandon(self, uid: str, reason: str) -> None:
        """End the launcher of a task whose DVM has ended."""
        run = self._runs.get(uid)
        if run is not None:
            self._reaper.end([run], Hung(reason))
        # otherwise its launcher is about to start, and will fail to connect

    def displace(self, uid: str, reason: str) -> None:
        """Place a task again whose nodes are lost."""
        task = self.tasks.pop(uid)
        if not self._ports.place_again(task, reason):
            self._user.refuse(task, reason)

    def refuse(self, uid: str, reason: str) -> None:
        """Fail a task that no DVM will launch."""
        self._user.refuse(self.tasks.pop(uid), reason)

    # launchers

    def _was_launch(self, run: Run) -> bool:
        """Return whether an ended launcher has launched the task, whatever the outcome of the program."""
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
        self._reaper.sweep({task.uid})   # ranks outlive a DVM that was killed on their host
        self.tasks[task.uid] = task
        self.supervisor.failed(task.uid, reason)

    def _look_later(self, run: Run, looks: int, since: float, *, ended: bool = False) -> None:
        delay = backoff(looks + 1, *_POLL_S)
        if not ended:
            delay = min(delay, max(0.0, since + self._limit - time.monotonic()) or delay)
        self._timers[run.task.uid] = self._loop.call_later(delay, self._look, run, looks, since, ended)

    def _look(self, run: Run, looks: int, since: float, had_ended: bool) -> None:
        """Check whether a launcher hangs."""
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
            self._reaper.end([run], Hung(f'the launcher has started no rank within {self._limit:g} s'))
        elif ended and had_ended:
            self._reaper.end([run], Hung('all ranks have ended, but the launcher has not', complete=True))
        else:
            self._look_later(run, 0 if ended else looks + 1, since, ended=ended)


def _why(run: Run) -> str:
    """Return the reason for a failed launch."""
    code = next((code for code in run.codes.values() if code), 0)
    launch = run.plan.launch
    assert launch is not None
    return f'{explain_code(code, False)} of `{launch.line}`, {end_of_output(run.plan.output[1])}'

"""Base of the executors FLUX and DRAGON: tasks become jobs of instances, which start and watch the processes.

Rules of this file:

- `supervisor` assigns tasks to instances. The runner of each instance submits the tasks and reports their ends. A
  `JobKind` has the parts that are specific to Flux or Dragon.
- Each rank runs the exec script of the task by `rp-rank`, as with launchers that start ranks (`rank_script`).
- A task leaves only when its runner has reported its end, or when both runner and instance have ended.
- A task that an instance does not start within `startup_timeout`, or end within `timeout`, is cancelled there. A
  cancelled task of which the runner reports no end leaves after `CANCEL_TIMEOUT` seconds.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from rp_agent.executor.backends.fleet import Demand
from rp_agent.executor.backends.instance_supervisor import InstanceSupervisor
from rp_agent.executor.backends.launcher import InstanceNode
from rp_agent.executor.backends.process import Processes
from rp_agent.executor.backends.runner import JobKind, Runner
from rp_agent.executor.base import BaseExecutor, Ending, TimedRun, TimeLimits
from rp_agent.executor.launching import rank_program, rank_script, script
from rp_agent.executor.launching.containers import contained
from rp_agent.executor.launching.environment import PilotContext, TaskEnvironment, uses_gpus
from rp_agent.executor.launching.launched import WITHOUT_GPUS, process_places, share_of
from rp_agent.executor.launching.launchers import without_inputs
from rp_agent.executor.launching.outcome import not_killed, usage_by_notes
from rp_agent.executor.launching.plan import check, script_variables, stdio, variables_of
from rp_agent.executor.launching.rank_script import RankShare
from rp_agent.executor.starter import make_sandbox, write_script
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_api.system import processes
from rp_api.system.shell_text import literal
from rp_api.units import MB
from rp_profiling.write.tracer import Tracer

RUNNERS = 3
"""Number of runners that may end, one after the other, before their instance counts as unreachable."""

CANCEL_TIMEOUT = 30.0
"""Seconds after which a cancelled task leaves without a report of its end."""


class _Run(TimedRun):
    """The record of a task: its request, its instance, and its end."""

    __slots__ = ('index', 'lost', 'ranks', 'request', 'started', 'started_at')

    def __init__(self, task: AgentTask, request: dict[str, Any]) -> None:
        super().__init__(task)
        self.request = request
        self.ranks = range(task.processes)
        self.index = -1
        self.lost = ''
        """Reason for the loss of the runner that was to report its end."""
        self.started = False
        self.started_at = math.nan


class JobExecutor(BaseExecutor):
    """Runs tasks as jobs of instances of one kind, on these parts of the pilot's nodes."""

    def __init__(self, uid: str, tracer: Tracer, loop: Loop, context: PilotContext, kind: JobKind,
                 parts: tuple[range, ...], nodes: Sequence[InstanceNode]) -> None:
        super().__init__(uid, tracer, loop)
        self._context = context
        self._environment = TaskEnvironment(context)
        self._kind = kind
        self._parts = parts
        self._limits = TimeLimits(loop, tracer, self._end)
        self._runs: dict[str, _Run] = {}
        self._runners: dict[int, Runner] = {}
        self._addresses: dict[int, str] = {}
        self._unready: dict[int, int] = {}
        """Runners of an instance that have ended since one was ready."""
        variables = {**without_inputs(context.base_env), **context.belongs}
        self._processes = Processes(loop, context.own_sandbox, variables)
        self.supervisor = InstanceSupervisor(loop, tracer, context.pilot_id, kind.launcher, parts, nodes,
                                             context.own_sandbox, variables, context.ports, self)
        kind.begin(self.supervisor)

    @cached_property
    def _host(self) -> str:
        """The shell word for the name of a rank's host; other executors know it from the slots."""
        names = {node.name for node in self.supervisor.nodes}
        return literal(names.pop()) if len(names) == 1 else '"$(cat /proc/sys/kernel/hostname)"'

    @cached_property
    def _rank_program(self) -> str:
        return rank_program.installed(self._context.pilot_sandbox)

    def stop(self, on_empty: Callable[[], Any], reason: str) -> None:
        """End all tasks, then the instances, then call `on_empty`."""
        def stop_instances() -> None:
            self._close_runners()
            self.supervisor.stop(on_empty)

        super().stop(stop_instances, reason)

    def close(self) -> None:
        """Kill all processes of instances and runners; called when the executor has no tasks."""
        self._close_runners()
        self.supervisor.close()
        self._processes.close()
        self._kind.close()
        super().close()

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""
        super().check()
        self.supervisor.check()
        for uid, run in self._runs.items():
            assert run.task.uid == uid, f'{run.task.uid} runs as {uid}'
            assert uid in self.supervisor, f'{uid} is not known to the supervisor'

    def __contains__(self, uid: object) -> bool:
        return uid in self._runs

    def _uids(self) -> list[str]:
        return list(self._runs)

    # new tasks

    def _begin(self, tasks: list[AgentTask]) -> None:
        for task in tasks:
            uid = task.uid
            try:
                demand, run = self._demand(task), _Run(task, self._prepare(task))
            except Exception as error:   # fails only this task
                self._refuse(task, error)
                continue
            self._runs[uid] = run
            self._record(uid, 'task_run_ok', 'launch_start', 'launch_pre', 'launch_submit')
            self._limits.start(run)
            self.supervisor.admit(demand)

    def _demand(self, task: AgentTask) -> Demand:
        description = task.description
        # an agent that has only one partition of the pilot gets only the tasks of that partition
        partition = description['partition'] if self._context.partition is None else None
        if partition is not None and not 0 <= partition < len(self._parts):
            raise LaunchRefused(f'partition is {partition}, the pilot has {len(self._parts)} instance(s) of '
                                f'{self._kind.NAME}, numbered from 0')
        cores = description['ranks'] * description['cores_per_rank']
        slots = task.slots
        if slots:
            found = {self.supervisor.index_of(slot['node_index']) for slot in slots}
            if len(found) == 1:
                return Demand(task.uid, cores, found.pop(), placed=True)
            raise LaunchRefused(f'the nodes of the task belong to {len(found)} instances of {self._kind.NAME}')
        return Demand(task.uid, cores, partition)

    def _prepare(self, task: AgentTask) -> dict[str, Any]:
        """Create sandbox and script of a task, and return the request for its runner."""
        description, uid, sandbox = task.description, task.uid, task.sandbox
        self._record(uid, 'task_start', 'task_mkdir')
        make_sandbox(sandbox)
        self._record(uid, 'task_mkdir_done', 'task_run_start')
        check(task)
        if description['pre_launch'] or description['post_launch']:
            raise LaunchRefused(f'pre_launch and post_launch need a launch script, which agent_spawner '
                                f'{self._kind.NAME} does not have: use pre_exec and post_exec')
        own = variables_of(task, self._environment)
        inside = contained(task, self._environment) if description['container'] else task
        ranks = task.processes
        shares = [RankShare() if uses_gpus(task) else WITHOUT_GPUS] * ranks
        if task.slots and not self._kind.BINDS:
            shares = [share_of(place, description['gpu_type'], self._environment) for place in process_places(task)]
        context = rank_script.started_by_launcher(
            uid, sandbox, shares, self._kind.RANK_VARIABLES, launcher=self._kind.NAME,
            shell=self._context.shell, memory=description['mem_per_rank'] * MB,
            sync=bool(description['pre_exec_sync']) and ranks > 1, host=self._host)
        text = script.exec_script(inside, script_variables(self._environment, own), context,
                                  detail=self._context.in_scripts)
        path = f'{sandbox}/{uid}.exec.sh'
        write_script(path, text.encode(errors='surrogateescape'))
        argv = rank_program.of_script(self._rank_program, path, f'{sandbox}/{uid}{rank_script.NOTES}')
        return {'run': uid, **self._kind.request(task, argv, {**self._environment.base, **own}, stdio(task))}

    # decisions of the supervisor

    def launch(self, uid: str, index: int, address: str) -> None:
        """Send a task to the runner of an instance."""
        run = self._runs[uid]
        run.index = index
        run.started = False
        self._addresses[index] = address
        try:
            # ranks of an earlier launch may have left notes
            rank_script.prepare(run.task.sandbox, uid, bool(run.task.description['pre_exec_sync']))
        except OSError as error:
            self._loop.call_soon(self._decline, run, f'cannot write {error.filename}: {error.strerror}')
            return
        runner = self._runners.get(index) or self._start_runner(index)
        if runner is not None:
            runner.send(run.request)

    def abandon(self, uid: str, reason: str) -> None:
        """End the processes of a task whose instance has ended, and retry it."""
        run = self._runs[uid]
        self._drop_runner(run.index)
        run.index = -1
        self._loop.call_soon(self._launch_failed, run, reason)

    def displace(self, uid: str, reason: str) -> None:
        """Place a task again whose nodes are lost."""
        run = self._runs[uid]
        if run.ending is not None:
            self.refuse(uid, reason)
            return
        del self._runs[uid]
        run.stop_timer()
        if not self._context.ports.place_again(run.task, reason):
            self._refuse(run.task, LaunchRefused(reason))

    def refuse(self, uid: str, reason: str) -> None:
        """Fail a task that no instance will run."""
        run = self._runs.pop(uid)
        run.stop_timer()
        if run.ending is not None:
            self._leave(run.task, {}, run.ending)
        else:
            self._refuse(run.task, LaunchRefused(reason))

    # reports of runners

    def _start_runner(self, index: int) -> Runner | None:
        """Start a runner for an instance; if that fails, return None and report it in a later turn of the loop."""
        try:
            self._runners[index] = self._kind.runner(
                self._processes, self._addresses[index], partial(self._take_news, index),
                partial(self._runner_broken, index))
        except OSError as error:
            self._loop.call_soon(self._runner_broken, index, f'cannot be started: {error}')
        return self._runners.get(index)

    def _drop_runner(self, index: int) -> None:
        runner = self._runners.pop(index, None)
        if runner is not None:
            runner.close()

    def _take_news(self, index: int, message: Mapping[str, Any]) -> None:
        if 'ready' in message:
            self._unready[index] = 0
            # the jobs of a lost runner have ended: launch its tasks again, which counts one fault of the instance
            lost = [run for run in self._runs.values() if run.index == index and run.lost]
            for each in lost:
                self._not_launched(each, each.lost, blame=each is lost[0])
            return
        if 'unreachable' in message:
            self._unreachable(index, str(message['unreachable']))
            return
        uid = next((message[key] for key in ('started', 'ended', 'refused', 'failed') if key in message), '')
        run = self._runs.get(uid)
        if run is None or run.index != index:
            return
        if 'started' in message:
            run.started, run.started_at = True, time.time()
            self._limits.runs(run)
        elif 'ended' in message:
            self._ended(run, os.waitstatus_to_exitcode(message['status']), message.get('why', ''))
        elif 'refused' in message and run.ending is None:
            self._decline(run, f'{self._kind.NAME} does not accept the task: {message["why"]}')
        else:
            self._launch_failed(run, str(message['why']))

    def _decline(self, run: _Run, reason: str) -> None:
        """Refuse a task that cannot be run, without counting a fault of the instance."""
        if self._runs.get(run.task.uid) is run:
            self.supervisor.done(run.task.uid)
            self.refuse(run.task.uid, reason)

    def _ended(self, run: _Run, code: int, why: str) -> None:
        uid = run.task.uid
        started, noted = rank_script.read_notes(run.task.sandbox, uid)
        if why and not started:
            self._launch_failed(run, why)
            return
        self.supervisor.done(uid)
        all_well = dict.fromkeys(run.ranks, 0)
        self._let_go(run, {**all_well, **not_killed(noted)} if noted else all_well if code == 0 else {0: code})

    def _launch_failed(self, run: _Run, reason: str) -> None:
        """Retry a task that did not run to its end for a reason outside of the task."""
        if self._runs.get(run.task.uid) is run:
            self._sweep(run.task.uid)
            self._not_launched(run, reason)

    def _not_launched(self, run: _Run, reason: str, *, blame: bool = True) -> None:
        """Launch a task again, unless it is being ended; `blame` counts a fault of the instance."""
        run.index, run.lost = -1, ''
        if run.ending is not None:
            self._give_up(run)
        else:
            self.supervisor.failed(run.task.uid, reason, blame=blame, started=run.started)

    def _runner_broken(self, index: int, how: str) -> None:
        """Replace a runner that has ended; the new one ends the jobs of its tasks."""
        self._drop_runner(index)
        reason = f'the runner of instance {index} {how}'
        runs = [run for run in self._runs.values() if run.index == index]
        self._unready[index] = self._unready.get(index, 0) + 1   # until it says that it is ready
        if self._unready[index] > RUNNERS:
            self._unreachable(index, reason)
        elif runs:
            for run in runs:
                run.lost = run.lost or reason
            self._start_runner(index)

    def _unreachable(self, index: int, reason: str) -> None:
        """End an instance that runners cannot reach; its tasks are launched again when it has ended."""
        self._drop_runner(index)
        self._unready[index] = 0
        self.supervisor.unreachable(index, f'instance {index} cannot be reached: {reason}')

    # ends of tasks

    def _end(self, uids: list[str], ending: Ending) -> None:
        for uid in uids:
            run = self._runs[uid]
            if run.ending is not None:
                continue
            run.ending = ending
            run.stop_timer()
            self._record(uid, 'task_run_cancel_start')
            runner = self._runners.get(run.index)
            if runner is None:
                self._give_up(run)
            else:
                runner.send({'cancel': uid})
                run.timer = self._loop.call_later(CANCEL_TIMEOUT, self._give_up, run)

    def _give_up(self, run: _Run) -> None:
        """Hand on a task that is being ended, without a report of its end."""
        self.supervisor.forget(run.task.uid)
        self._let_go(run, {})

    def _let_go(self, run: _Run, codes: Mapping[int, int]) -> None:
        uid = run.task.uid
        del self._runs[uid]
        run.stop_timer()
        self._record(uid, 'launch_collect', 'launch_post', 'launch_stop')
        if run.started:
            run.task.note_run(run.started_at, time.time(), *usage_by_notes(run.task, len(run.ranks)))
        if run.ending is not None:
            self._sweep(uid)
        self._leave(run.task, codes, run.ending)

    def _sweep(self, uid: str) -> None:
        """Kill processes that a task has left on this host."""
        processes.sweep({**self._context.belongs, 'RP_TASK_ID': {uid}}, signal.SIGKILL)

    def _close_runners(self) -> None:
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()

"""The executors FLUX and DRAGON: tasks become jobs of instances, which start and watch the processes themselves.

Rules of this file:

- `supervisor` says which instance a task goes to; a runner for each instance takes the tasks there and tells what
  becomes of them. What is particular to Flux or Dragon is a `Kind`.
- Each rank runs the exec script of the task by `rp-rank`, as with launchers that start ranks (`rank_script`).
- A task is given up only when its runner has told its end, or when runner and instance are gone.
- What an instance does not start within `startup_timeout`, or end within `timeout`, is cancelled there. If nothing is
  heard of a cancelled task for `CANCEL_TIMEOUT` seconds, it leaves all the same.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

from rp_agent.executor.backends.fleet import Demand
from rp_agent.executor.backends.instance_supervisor import InstanceSupervisor
from rp_agent.executor.backends.launcher import InstanceLauncher, Node
from rp_agent.executor.backends.process import Processes
from rp_agent.executor.backends.runner import Broken, News, Runner
from rp_agent.executor.base import BaseExecutor, Ending
from rp_agent.executor.launching import rank_program, rank_script, script
from rp_agent.executor.launching.environment import PilotContext, TaskEnvironment
from rp_agent.executor.launching.job import places, share_of
from rp_agent.executor.launching.outcome import explain, not_killed
from rp_agent.executor.launching.rank_script import RankShare
from rp_agent.executor.starter import make_sandbox
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop, Timer
from rp_api.system import processes
from rp_profiling.write.tracer import Tracer

CANCEL_TIMEOUT = 30.0
"""Seconds after which a cancelled task leaves of which nothing is heard."""

_MB = 2**20


class Job:
    """What a kind of instance is told about a task, each rank of which runs `argv`."""

    __slots__ = ('argv', 'environment', 'output', 'task')

    def __init__(self, task: AgentTask, argv: tuple[str, ...], environment: Mapping[str, str],
                 output: tuple[str, str]) -> None:
        self.task = task
        self.argv = argv
        self.environment = environment
        self.output = output


class Kind(Protocol):
    """What is particular to the instances of one kind."""

    NAME: str
    RANK_VARIABLES: tuple[str, ...]
    BINDS: bool
    """Whether ranks are bound to their cores, and shown their GPUs; else they do it themselves."""
    launcher: InstanceLauncher

    def request(self, job: Job) -> dict[str, Any]:
        """What a runner has to know to run the job; raises LaunchRefused if that cannot be run."""

    def runner(self, started: Processes, address: str, news: News, broken: Broken) -> Runner:
        """A runner for the instance at this address; OSError if it cannot be started."""

    def begin(self, heard: Callable[[int, str], object]) -> None:
        """Call `heard(number, line)` with what the instance of a number says otherwise than by its output."""

    def close(self) -> None:
        """Free what it holds."""


class _Run:
    """A task that is here: as what it is to be run, with which instance, and how it is going to end."""

    __slots__ = ('ending', 'index', 'limit', 'lost', 'ranks', 'request', 'start_limit', 'started', 'task', 'timer')

    def __init__(self, task: AgentTask, request: dict[str, Any]) -> None:
        self.task = task
        self.request = request
        self.ranks = range(task.description['ranks'])
        self.limit = float(task.description['timeout'])
        self.start_limit = float(task.description['startup_timeout'])
        self.index = -1
        self.lost = ''
        """Why its runner is gone, which was to tell its end."""
        self.started = False
        self.ending: Ending | None = None
        self.timer: Timer | None = None


class JobExecutor(BaseExecutor):
    """Runs tasks as jobs of instances of this kind, on these parts of the nodes of the pilot."""

    def __init__(self, uid: str, tracer: Tracer, loop: Loop, context: PilotContext, kind: Kind,
                 parts: tuple[range, ...], nodes: Sequence[Node]) -> None:
        super().__init__(uid, tracer, loop)
        self._context = context
        self._environment = TaskEnvironment(context)
        self._kind = kind
        self._parts = parts
        self._runs: dict[str, _Run] = {}
        self._runners: dict[int, Runner] = {}
        self._addresses: dict[int, str] = {}
        variables = {**context.base_env, **context.belongs}
        self._processes = Processes(loop, context.own_sandbox, variables)
        self.supervisor = InstanceSupervisor(loop, tracer, context.pilot_id, kind.launcher, parts, nodes,
                                             context.own_sandbox, variables, self)
        self._place_again = context.ports.place_again or self._cannot_place_again
        kind.begin(self.supervisor.hear)

    @cached_property
    def _rank_program(self) -> str:
        return rank_program.installed(self._context.pilot_sandbox)

    def stop(self, on_empty: Callable[[], Any], reason: str) -> None:
        """As of all executors; instances are ended before `on_empty` is called."""
        super().stop(partial(self._stop_instances, on_empty), reason)

    def close(self) -> None:
        """Leave no process behind; to be called when no task is left."""
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()
        self.supervisor.close()
        self._processes.close()
        self._kind.close()
        super().close()

    def check(self) -> None:
        """Verify all invariants; raises AssertionError."""
        super().check()
        self.supervisor.check()
        for uid, run in self._runs.items():
            assert run.task.uid == uid, f'{run.task.uid} runs as {uid}'
            assert uid in self.supervisor, f'{uid} is not known to the supervisor'

    def __contains__(self, uid: object) -> bool:
        return uid in self._runs

    def _uids(self) -> list[str]:
        return list(self._runs)

    # tasks come

    def _begin(self, tasks: list[AgentTask]) -> None:
        for task in tasks:
            uid = task.uid
            try:
                demand, run = self._demand(task), _Run(task, self._prepare(task))
            except Exception as error:   # which concerns this task alone
                self._refuse(task, error)
                continue
            self._runs[uid] = run
            self._record(uid, 'task_run_ok', 'launch_start', 'launch_pre', 'launch_submit')
            seconds = run.start_limit
            if seconds > 0:
                reason = f'startup_timeout: the task did not start to execute within {seconds:g} s'
                run.timer = self._loop.call_later(seconds, self._timed_out, run, reason)
            self.supervisor.admit(demand)

    def _demand(self, task: AgentTask) -> Demand:
        description = task.description
        # that of a divided pilot has been heeded: the agent has no other
        partition = description['partition'] if self._context.partition is None else None
        if partition is not None and not 0 <= partition < len(self._parts):
            raise LaunchRefused(f'partition is {partition}, the pilot has {len(self._parts)} instance(s) of '
                                f'{self._kind.NAME}, numbered from 0')
        slots = task.slots
        if slots:
            found = {self.supervisor.index_of(slot['node_index']) for slot in slots}
            if len(found) == 1:
                return Demand(task.uid, self._cores(task), found.pop(), placed=True)
            raise LaunchRefused(f'the nodes of the task belong to {len(found)} instances of {self._kind.NAME}')
        return Demand(task.uid, self._cores(task), partition)

    @staticmethod
    def _cores(task: AgentTask) -> int:
        cores: int = task.description['ranks'] * task.description['cores_per_rank']
        return cores

    def _prepare(self, task: AgentTask) -> dict[str, Any]:
        """Make sandbox and script of a task; gives what its runner has to know."""
        description, uid, sandbox = task.description, task.uid, task.sandbox
        self._record(uid, 'task_start', 'task_mkdir')
        make_sandbox(sandbox)
        self._record(uid, 'task_mkdir_done', 'task_run_start')
        if not description['executable']:
            raise LaunchRefused(f'{uid} has no executable: tasks of mode {description["mode"]} are run by a RAPTOR '
                                f'master, set raptor_id')
        if description['pre_launch'] or description['post_launch']:
            raise LaunchRefused(f'pre_launch and post_launch need a launch script, and there is none with '
                                f'{self._kind.NAME}: use pre_exec and post_exec')
        own = self._environment.of_task(task)
        ranks = description['ranks']
        shares = [RankShare()] * ranks
        if task.slots and not self._kind.BINDS:
            shares = [share_of(place, description['gpu_type'], self._environment) for place in places(task)]
        context = rank_script.started_by_launcher(
            uid, sandbox, shares, self._kind.RANK_VARIABLES, launcher=self._kind.NAME,
            memory=description['mem_per_rank'] * _MB, sync=bool(description['pre_exec_sync']) and ranks > 1)
        told = {**self._context.variables(), **{name: value for name, value in own.items() if name != 'PWD'}}
        text = script.exec_script(task, told, context, detail=self._context.in_scripts)
        path = f'{sandbox}/{uid}.exec.sh'
        try:
            with open(path, 'w', encoding='utf-8', errors='surrogateescape') as file:
                file.write(text)
        except OSError as error:
            error.filename = error.filename or path   # which that of a write that fails lacks
            raise LaunchRefused(f'cannot write {error.filename}: {error.strerror}') from error
        argv = rank_program.of_script(self._rank_program, path)
        job = Job(task, argv, {**self._environment.base, **own}, _output(task))
        return {'run': uid, **self._kind.request(job)}

    # what the supervisor decides

    def launch(self, uid: str, index: int, address: str) -> None:
        """Hand a task to the runner of an instance."""
        run = self._runs[uid]
        run.index = index
        run.started = False
        self._addresses[index] = address
        try:
            # ranks of an earlier launch may have told something
            rank_script.prepare(run.task.sandbox, uid, bool(run.task.description['pre_exec_sync']))
        except OSError as error:
            self._loop.call_soon(self._decline, run, f'cannot write {error.filename}: {error.strerror}')
            return
        runner = self._runners.get(index) or self._start_runner(index)
        if runner is not None:
            runner.send(run.request)

    def abandon(self, uid: str, reason: str) -> None:
        """The instance of a task is gone: its processes went with it, or go now."""
        run = self._runs[uid]
        self._drop_runner(run.index)
        run.index = -1
        self._loop.call_soon(self._launch_failed, run, reason)

    def displace(self, uid: str, reason: str) -> None:
        """The nodes of a task are lost."""
        run = self._runs[uid]
        if run.ending is not None:
            self.refuse(uid, reason)
            return
        del self._runs[uid]
        self._stop_timer(run)
        self._place_again(run.task, reason)

    def refuse(self, uid: str, reason: str) -> None:
        """Fail a task that no instance will run."""
        run = self._runs.pop(uid)
        self._stop_timer(run)
        if run.ending is not None:
            self._leave(run.task, {}, run.ending, str)
        else:
            self._refuse(run.task, LaunchRefused(reason))

    def lost(self, nodes: range, reason: str) -> None:
        """An instance is lost, and its nodes with it."""
        self._context.ports.nodes_lost(nodes, reason)

    # what runners tell

    def _start_runner(self, index: int) -> Runner | None:
        """A runner for an instance; None if that is impossible, which is told later."""
        try:
            self._runners[index] = self._kind.runner(
                self._processes, self._addresses[index], partial(self._heard, index),
                partial(self._runner_broken, index))
        except OSError as error:
            self._loop.call_soon(self._runner_broken, index, f'cannot be started: {error}')
        return self._runners.get(index)

    def _drop_runner(self, index: int) -> None:
        runner = self._runners.pop(index, None)
        if runner is not None:
            runner.close()

    def _heard(self, index: int, message: Mapping[str, Any]) -> None:
        if 'ready' in message:
            self._launch_again(index)
            return
        uid = next((message[key] for key in ('started', 'ended', 'refused', 'failed') if key in message), None)
        run = self._runs.get(uid) if uid is not None else None
        if run is None or run.index != index:
            return
        if 'started' in message:
            self._started(run)
        elif 'ended' in message:
            self._ended(run, os.waitstatus_to_exitcode(message['status']), message.get('why', ''))
        elif 'refused' in message and run.ending is None:
            self._decline(run, f'{self._kind.NAME} does not take the task: {message["why"]}')
        else:
            self._launch_failed(run, str(message['why']))

    def _decline(self, run: _Run, reason: str) -> None:
        """The task cannot be run, and that is its own fault."""
        if self._runs.get(run.task.uid) is run:
            self.supervisor.done(run.task.uid)
            self.refuse(run.task.uid, reason)

    def _started(self, run: _Run) -> None:
        run.started = True
        if run.ending is not None:
            return
        self._stop_timer(run)
        seconds = run.limit
        if seconds > 0:
            reason = f'timeout: the task ran longer than {seconds:g} s'
            run.timer = self._loop.call_later(seconds, self._timed_out, run, reason)

    def _ended(self, run: _Run, code: int, why: str) -> None:
        uid = run.task.uid
        started, codes = rank_script.read_notes(run.task.sandbox, uid)
        if why and not started:
            self._launch_failed(run, why)
            return
        self.supervisor.done(uid)
        self._let_go(run, self._codes(run, code, codes))

    @staticmethod
    def _codes(run: _Run, code: int, told: Mapping[int, int]) -> Mapping[int, int]:
        """The exit codes of the ranks of a job that has ended with `code`, as far as those that failed have told."""
        if told:
            return {**dict.fromkeys(run.ranks, 0), **not_killed(told)}
        return dict.fromkeys(run.ranks, 0) if code == 0 else {0: code}

    def _launch_failed(self, run: _Run, reason: str) -> None:
        """The task was not run to its end, through no fault of its own."""
        if self._runs.get(run.task.uid) is run:
            self._sweep(run.task.uid)
            self._not_launched(run, reason)

    def _not_launched(self, run: _Run, reason: str, *, blame: bool = True) -> None:
        """The task is to be launched again, unless it is to end; `blame` the instance for it."""
        uid = run.task.uid
        run.index, run.lost = -1, ''
        if run.ending is not None:
            self.supervisor.forget(uid)
            self._let_go(run, {})
        else:
            self.supervisor.failed(uid, reason, blame=blame)

    def _runner_broken(self, index: int, how: str) -> None:
        """A runner is gone, and with it the word on its tasks."""
        self._drop_runner(index)
        reason = f'the runner of instance {index} {how}'
        theirs = [run for run in self._runs.values() if run.index == index]
        if any(run.lost for run in theirs):   # the one before has not ended their jobs
            self._launch_again(index, reason)
        elif theirs:
            for run in theirs:
                run.lost = reason
            self._start_runner(index)

    def _launch_again(self, index: int, reason: str = '') -> None:
        """Launch tasks again whose runner is gone; if there is no `reason`, the next one has ended their jobs."""
        lost = [run for run in self._runs.values() if run.index == index and run.lost]
        for run in lost:   # the instance is to blame once, if it is
            self._not_launched(run, reason or run.lost, blame=run is lost[0])

    # tasks are ended

    def _end(self, uids: list[str], ending: Ending) -> None:
        for uid in uids:
            run = self._runs[uid]
            if run.ending is not None:
                continue
            run.ending = ending
            self._stop_timer(run)
            self._record(uid, 'task_run_cancel_start')
            runner = self._runners.get(run.index)
            if runner is None:
                self.supervisor.forget(uid)
                self._let_go(run, {})
            else:
                runner.send({'cancel': uid})
                run.timer = self._loop.call_later(CANCEL_TIMEOUT, self._give_up, run)

    def _give_up(self, run: _Run) -> None:
        """Nothing was heard of a cancelled task."""
        self.supervisor.forget(run.task.uid)
        self._let_go(run, {})

    def _timed_out(self, run: _Run, reason: str) -> None:
        self._record(run.task.uid, 'task_timeout')
        self._end([run.task.uid], Ending(TimeoutError(reason)))

    def _let_go(self, run: _Run, codes: Mapping[int, int]) -> None:
        uid = run.task.uid
        del self._runs[uid]
        self._stop_timer(run)
        self._record(uid, 'launch_collect', 'launch_post', 'launch_stop')
        if run.ending is not None:
            self._sweep(uid)
        self._leave(run.task, codes, run.ending, partial(explain, shell=True))

    def _sweep(self, uid: str) -> None:
        """Kill what is left of a task on this host."""
        processes.sweep({**self._context.belongs, 'RP_TASK_ID': {uid}}, signal.SIGKILL)

    def _stop_instances(self, on_empty: Callable[[], Any]) -> None:
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()
        self.supervisor.stop(on_empty)

    @staticmethod
    def _stop_timer(run: _Run) -> None:
        if run.timer is not None:
            run.timer.cancel()
            run.timer = None


def _output(task: AgentTask) -> tuple[str, str]:
    """The files that the output and the error output of all ranks go to."""
    names = task.description['stdout'] or f'{task.uid}.out', task.description['stderr'] or f'{task.uid}.err'
    return os.path.join(task.sandbox, names[0]), os.path.join(task.sandbox, names[1])

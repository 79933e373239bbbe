"""The agent: runs the tasks that are bound to one pilot on the pilot's nodes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rp_agent import sandbox
from rp_agent.alone import Alone
from rp_agent.backlog import Backlog
from rp_agent.build import HOST_CLOCK, make_tracer
from rp_agent.farewell import Farewell
from rp_agent.intake import Intake
from rp_agent.killed import is_killed
from rp_agent.launch_method.base import Setting
from rp_agent.lifetime import Lifetime
from rp_agent.partitions import from_plain
from rp_agent.pipeline import Pipeline
from rp_agent.reporter import Reporter
from rp_agent.resource_manager.base import Request
from rp_agent.resource_manager.find import allocate
from rp_agent.runs import Runs
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.connect import agent_connection
from rp_api.coordination.contract import BULK, Update
from rp_api.errors import CoordinationError
from rp_api.host import host_id
from rp_api.mesh.loop import Loop, Timer
from rp_api.mesh.offload import Helpers
from rp_api.standing import STANDING
from rp_profiling.host_clock import Reading

_log = logging.getLogger('radical.pilot.agent')

FLUSH = 1.0
"""Seconds after which traces are written to their files, if there is anything new."""

PATIENCE = 8.0
"""Seconds that tasks have to end when the pilot does."""


class Agent:
    """One agent: connection to its coordinator, components, and the rules by which the pilot ends."""

    def __init__(self, config: Mapping[str, Any], loop: Loop) -> None:
        self._config = config
        self._loop = loop
        self.pilot: str = config['pilot']
        self._helpers = Helpers(loop)
        self._tasks: dict[str, AgentTask] = {}
        self._lost_nodes: set[int] = set()
        self._by_signal = False
        self._interrupted = False
        self._runs = Runs(config) if config.get('requeue') else None
        self._ending: tuple[str, str] | None = None
        self._alone = Alone(loop, config['orphan_timeout'], self._unfinished, self._give_up)
        self._drain_timer: Timer | None = None
        self._farewell: Farewell | None = None
        self._forsaken = False
        self._refusal = ''
        self.on_ending: Callable[[str, str], object] = lambda state, reason: None
        self._lifetime = Lifetime(config)
        uid: str = config['agent_uid']
        self._tracer = make_tracer(config, uid)
        self._tracer.record('hostname', self.pilot, msg=os.uname().nodename)
        request = Request(config['nodes'], config['cores'], config['gpus'], config.get('backup_nodes', 0))
        self._allocation = (from_plain(config['allocation']) if 'allocation' in config else
                            allocate(request, config['platform']))
        self._tracer.record('resources', self.pilot, msg=self._allocation.trace())
        self._notices = [self._allocation.hint] if self._allocation.hint else []
        if self._runs is not None and self._runs.earlier is not None:
            self._notices.append(self._runs.told)
        config = {**config, 'cpus': self._allocation.cpus, 'gpu_ids': self._allocation.gpu_ids,
                  'setting': asdict(Setting.of(self._allocation, config['platform'])), 'here': self._allocation.here}
        self._pipeline = Pipeline(config, loop, self._allocation, self._helpers.run, self._left, self._broken)
        self._backlog = Backlog(sandbox.updates(config))
        self._connection = agent_connection(loop, config['coordination'], self.pilot, uid)
        self._intake = Intake(self._connection.hold, self._allocation.cores)
        self._reporter = Reporter(loop, self._connection, self._backlog)
        self._pipeline.on_advanced = self._advanced
        self._pipeline.on_master_up = self._master_is_up
        self._pipeline.on_moment = self._tracer.relate
        self._pipeline.on_sub_agent_stop = lambda name: self._tracer.record('sub_agent_stop', self.pilot, msg=name)
        self._pipeline.on_nodes_lost = self._nodes_lost
        self._reporter.on_pushed = lambda count: self._tracer.record('update_pushed', msg=f'bulk size: {count}')
        self._pipeline.knows = self._tasks.__contains__
        self._connect()
        if self._runs is not None and self._runs.earlier is not None:
            self._go_on(self._runs)

    def _connect(self) -> None:
        connection = self._connection
        connection.on_tasks = self._on_tasks
        connection.on_command = self._on_command
        connection.on_lost = self._coordinator_lost
        connection.on_found = self._coordinator_found
        connection.on_refused = self._refused
        connection.on_clock = self._read_clock
        self._tell_resources()
        self._loop.call_later(self._lifetime.left, self.finish, states.DONE, self._lifetime.over)
        self._loop.call_later(FLUSH, self._flush_traces)

    def finish(self, state: str, reason: str) -> None:
        """End the pilot in that state: its tasks first, then the agent. Asking again changes nothing."""
        if self._ending:
            return
        self._ending = (state, reason)
        self.on_ending(state, reason)
        _log.info('the pilot ends as %s: %s', state, reason)
        for task in self._tasks.values():
            task.cancelled = True
        deadline = time.monotonic() + PATIENCE
        self._pipeline.stop(f'{self.pilot} {reason}', lambda: self._drain(deadline))

    def when_known(self, callback: Callable[[], object]) -> None:
        """Call back when all that was told until now, such as that the pilot is active, is known to the coordinator."""
        self._connection.when_settled(callback)

    def told_to_end(self) -> None:
        """End the pilot, as a signal wants it."""
        if self._ending:   # batch systems signal all processes of a job, of which some pass it on
            return
        state, reason = self._lifetime.told_to_end()
        self._by_signal = True
        self._interrupted = state == states.FAILED and self._runs is not None
        self.finish(state, reason)

    def close(self) -> None:
        """Free what the agent holds."""
        self._helpers.close(0)
        self._reporter.close()
        self._connection.close()
        self._pipeline.close()
        self._tracer.close()
        if self._runs is not None:
            self._runs.close()
        if self._forsaken:
            self._connection.remove_endpoint()

    def _tell_resources(self) -> None:
        """Tell what the pilot has, with all that is noteworthy about it."""
        self._connection.update_pilots([Update(self.pilot, states.PMGR_ACTIVE, {
            **self._resources(), 'agent': {'pid': os.getpid(), 'host': host_id()}})])

    def _go_on(self, runs: Runs) -> None:
        """Say that this is not the first agent of the pilot, and deliver what that could not."""
        _log.warning('%s', runs.told)
        self._intake.new([{'uid': uid} for uid, _, _ in runs.results])
        for first in range(0, len(runs.results), BULK):
            self._connection.update_tasks(runs.results[first:first + BULK])

    def _resources(self) -> dict[str, Any]:
        return {'resource_details': self._allocation.details(self._lost_nodes), 'notices': self._notices}

    def _nodes_lost(self, positions: Sequence[int], reason: str) -> None:
        """Nodes cannot be used any more; the components see to their tasks."""
        self._lost_nodes.update(positions)
        names = [self._allocation.names[position] for position in positions]
        self._notices.append(f'{self.pilot} has lost {", ".join(names)}: {reason}')
        _log.error('%s', self._notices[-1])
        for name in names:
            self._tracer.record('node_lost', self.pilot, msg=name)
        if self._ending is None:
            self._tell_resources()

    # what comes from the coordinator

    def _on_tasks(self, descriptions: list[dict[str, Any]]) -> None:
        tasks = [self._task(description) for description in self._intake.new(descriptions)]
        self._tracer.record('get', self.pilot, msg=f'bulk size: {len(tasks)}')
        self._tracer.record_bulk('get', [task.uid for task in tasks], states.AGENT_STAGING_INPUT_PENDING)
        self._tasks.update((task.uid, task) for task in tasks)
        self._count()
        if self._ending:
            self._pipeline.refuse(tasks, f'{self.pilot} has ended')
            return
        late = [task for task in tasks if self._intake.cancelled(task.uid)]
        if late:
            self._pipeline.refuse(late, f'cancelled before it came to {self.pilot}')
            tasks = [task for task in tasks if task.uid in self._tasks]
        odd = [task for task in tasks if task.target_state is not None]
        if odd:
            self._left(odd)
            tasks = [task for task in tasks if task.uid in self._tasks]
        if tasks:
            self._pipeline.put(tasks)

    def _task(self, description: dict[str, Any]) -> AgentTask:
        uid = description.pop('uid')   # which is all that many tasks have of their own
        try:
            task = AgentTask(uid, description, self.pilot, sandbox.of_task(self._config, uid, description))
            if self._runs is not None:
                self._runs.refuse(task)
            return task
        except Exception as error:
            task = AgentTask(uid, {}, self.pilot, '')
            task.broke(error, 'taking its description')
            return task

    def _count(self) -> None:
        """Tell everybody how many tasks are in hand now."""
        self._reporter.tasks = tasks = len(self._tasks)
        self._intake.in_hand(tasks - self._pipeline.held_back)

    def _on_command(self, command: dict[str, Any]) -> None:
        name = command.get('cmd')
        self._tracer.record('cmd', self.pilot, msg=f'{name} : {len(command.get("uids", ()))}')
        if name == 'cancel_tasks':
            self._intake.cancel(command['uids'])
            self._pipeline.cancel([self._tasks[uid] for uid in command['uids'] if uid in self._tasks])
        elif name == 'cancel_pilot':
            self.finish(command.get('state', states.CANCELED), command['reason'])
        else:
            _log.error('command %r is unknown', name)

    def _refused(self, reason: str) -> None:
        """The coordinator wants to hear no more of this agent: what it runs has to end, and then the agent itself."""
        self._refusal = reason
        self._alone.lost = True
        if self._farewell is not None:
            self._farewell.lost()
        self.finish(states.FAILED, f'was refused: {reason}')

    def _read_clock(self, reading: Reading) -> None:
        moment = HOST_CLOCK.read(reading)
        if moment:
            self._tracer.relate(moment.message, moment.here, self.pilot)
            self._connection.tell_moment(moment)

    # what the components report

    def _advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        if self._runs is not None and state == states.AGENT_EXECUTING_PENDING:
            self._runs.note(tasks)
        self._reporter.changed(tasks, state)
        if self._intake.holding:   # what waits for other tasks now is no reason to have no more sent
            self._count()

    def _master_is_up(self, task: AgentTask, access: dict[str, str]) -> None:
        self._reporter.changed([task], states.AGENT_EXECUTING, {'raptor': access})

    def _left(self, tasks: Sequence[AgentTask]) -> None:
        """Tasks have left the last component that deals with them."""
        failed = self._ending is not None and self._ending[0] == states.FAILED
        for task in tasks:
            self._tasks.pop(task.uid, None)
        if self._by_signal:
            tasks = self._after_signal(tasks)
        for task in tasks:
            if failed and task.target_state == states.CANCELED:   # nobody has asked for it
                task.target_state = states.FAILED
        self._count()
        self._reporter.finished(tasks)
        self._alone.left()
        if not self._tasks and self._drain_timer is not None:
            self._drained()

    def _after_signal(self, tasks: Sequence[AgentTask]) -> list[AgentTask]:
        """Those of the tasks that have ended for good, of a pilot that was told to end and perhaps goes on.

        A batch system also signals the tasks, which may end before the agent has ended them.
        """
        assert self._ending is not None
        left = []
        for task in tasks:
            killed = is_killed(task)
            if killed:
                task.exception = repr(RuntimeError(f'{self.pilot} {self._ending[1]}'))
            ended = killed or task.target_state == states.CANCELED
            if not (self._interrupted and ended and self._runs is not None and self._runs.goes_on(task)):
                left.append(task)
        self._reporter.drop([task for task in tasks if task not in left])
        return left

    def _unfinished(self) -> bool:
        """Whether there are tasks that will end by themselves."""
        return any(task.description['mode'] not in STANDING for task in self._tasks.values())

    def _broken(self, reason: str) -> None:
        """A component is gone that tasks cannot do without."""
        _log.error('the pilot %s', reason)
        self.finish(states.FAILED, reason)

    # how it ends

    def _coordinator_lost(self, how: str) -> None:
        self._alone.coordinator_lost(how)
        if self._farewell is not None:
            self._farewell.lost()

    def _coordinator_found(self) -> None:
        self._alone.coordinator_found()
        if self._farewell is not None:
            self._farewell.found()

    def _give_up(self) -> None:
        self._forsaken = True
        self.finish(states.CANCELED, 'lost its coordinator')

    def _drain(self, deadline: float) -> None:
        """Nothing runs any more: wait for what is still being staged, but not for ever."""
        self._drain_timer = self._loop.call_at(deadline, self._drained)
        if not self._tasks:
            self._drained()

    def _drained(self) -> None:
        assert self._drain_timer is not None
        self._drain_timer.cancel()
        self._drain_timer = None
        self._pipeline.end(self._say_goodbye)

    def _say_goodbye(self) -> None:
        assert self._ending is not None
        state, reason = self._ending
        self._reporter.flush(sending=not self._alone.lost)
        self._flush_traces()
        if self._refusal:
            self._loop.call_soon(self._fail)
            return
        if self._interrupted:
            self._notices.append(f'{self.pilot} {reason}; it goes on if the batch system starts its job again')
            self._say_last(states.PMGR_ACTIVE, self._resources(), self._loop.stop)
            return
        sandbox.wrap_up(self._config)
        # with all that was said before: of several updates at once, the client may get only the last one
        sentence = f'{self.pilot} {reason}'
        info = {'reason': sentence, **self._resources()}
        if state == states.FAILED:
            info |= {'exception': sentence.partition('\n')[0], 'exception_detail': sentence,
                     'by_signal': self._by_signal}
        self._say_last(state, info, self._over)

    def _say_last(self, state: str, info: Mapping[str, Any], over: Callable[[], object]) -> None:
        self._farewell = Farewell(self._loop, self._connection, self._reporter, Update(self.pilot, state, info), over)
        if not self._alone.lost:
            self._farewell.found()

    def _over(self) -> None:
        sandbox.remove(self._config)
        self._loop.stop()

    def _fail(self) -> None:
        """End with the reason on standard error, and keep all files: the coordinator cannot be told."""
        raise CoordinationError(self._refusal)

    def _flush_traces(self) -> None:
        self._tracer.flush()
        self._pipeline.flush_traces()
        self._count()   # what tasks wait for may have become something else only because time has passed
        self._loop.call_later(FLUSH, self._flush_traces)

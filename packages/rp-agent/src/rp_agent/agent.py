"""The agent: runs the tasks of one pilot on the pilot's nodes."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from rp_agent import __version__, sandbox
from rp_agent.calls import Call, Calls, answer_task
from rp_agent.components import layout
from rp_agent.components.build import HOST_CLOCK, base_environment, make_tracer
from rp_agent.components.isolation import unless
from rp_agent.components.stage import Owner
from rp_agent.executor.launching.text_notices import TextNotices
from rp_agent.features import Features
from rp_agent.launch_method.base import Setting
from rp_agent.lifetime import Lifetime
from rp_agent.pipeline.job_end import PilotEnd
from rp_agent.pipeline.pipeline import Pipeline
from rp_agent.pipeline.progress import Progress
from rp_agent.pipeline.runs import Runs
from rp_agent.raptor.task_kind import is_call
from rp_agent.reporting.coordinator_link import CoordinatorLink
from rp_agent.reporting.task_intake import Intake
from rp_agent.resource_manager.pilot import allocation_of, platform_of
from rp_agent.task import DEFAULTS, HISTORY, UNSTARTED, AgentTask, Description
from rp_api import states
from rp_api.constants import AGENT_SERVICE, TASK_SERVICE
from rp_api.coordination.contract import BULK, NewTask, Update
from rp_api.description.task import AFTER
from rp_api.failures.kinds import DEPENDENCY, DESCRIPTION
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.offload import Helpers
from rp_api.system.signals import name_of
from rp_api.task_modes import PILOT_RPC, SERVICE_MODES
from rp_profiling.write.host_clock import Reading

if TYPE_CHECKING:
    from rp_agent.app_comm.channels import Channels
    from rp_agent.dependencies.gate import DependencyGate

_log = logging.getLogger('radical.pilot.agent')

FLUSH = 1.0
"""Seconds between two writes of traces to their files."""

TASK_END_TIMEOUT = 8.0
"""Seconds until tasks that are still in the agent are given up when the pilot ends."""

SAME_WARNING = 1.0
"""Seconds within which processes of a job get the same signal."""

_OWN = 'agent.own'

_SERVICES = frozenset({TASK_SERVICE, AGENT_SERVICE})

_STARTS = states.TASK.value(states.AGENT_EXECUTING_PENDING)
"""Value of the state from which a task may have started."""


class Agent(Owner):
    """An agent: the connection to its coordinator, its pipeline of components, and the end of its pilot."""

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
        self._ending: PilotEnd | None = None
        self._warnings: dict[int, float] = {}   # when each came last
        self._returns = False            # whether a user who ends the pilot wants back what has not started
        self._unstarted: set[str] = set()   # tasks that are returned, or were
        self._kept: list[str] = []   # at the first sign of the end: other tasks
        self._histories: dict[str, list[dict[str, Any]]] = {}   # failed attempts of tasks that have not come yet
        self._drain_timer: Timer | None = None
        self.on_ending: Callable[[str, str], object] = lambda state, reason: None
        self._lifetime = Lifetime(config)
        uid: str = config['agent_uid']
        self._tracer = make_tracer(config, uid)
        self._tracer.record('hostname', self.pilot, msg=os.uname().nodename)
        whole = allocation_of(config)
        self._allocation = whole.reserve(layout.reserved_nodes(config['agent'], len(whole.names)))
        self._tracer.record('resources', self.pilot, msg=self._allocation.trace())
        config = {**config, 'platform': platform_of(config['platform'], self._allocation)}
        self._notices: list[str] = []
        if self._runs is not None and self._runs.earlier is not None:
            self._notices.append(self._runs.told)
        self._channels = self._open_channels(config)
        config = {**config, 'channels': self._channels.variables if self._channels else config.get('channels', {}),
                  'cpus': self._allocation.cpus, 'gpu_ids': self._allocation.gpu_ids,
                  'setting': asdict(Setting.of(self._allocation, config['platform'])), 'here': self._allocation.here}
        self._pipeline = Pipeline(config, loop, self._allocation, self._helpers.run, self)
        self._progress = Progress(loop, self._tasks, lambda: self._pipeline.expects, self._progress_changed)
        self._link = CoordinatorLink(config, loop, self._unfinished, self.finish, self._tracer)
        self._connection = self._link.connection
        self._reporter = self._link.reporter
        self._text_notices = TextNotices(partial(base_environment, config), self.notice)
        self._intake = Intake(self._connection.hold, self._allocation.cores)
        self._calls = Calls()
        self._description: tuple[dict[str, Any], dict[str, Any]] = {}, {}   # the last one as it came, and for its tasks
        self._unknown: list[str] = []   # its attributes that this version does not have
        self._gate: DependencyGate | None = None   # made for the first task with dependencies
        self._own: dict[str, Callable[[AgentTask], object]] = {}   # tasks that only a part of the agent knows
        self._features = Features(config, loop, self._helpers.run, self._allocation, self._calls, self._pipeline, self)
        self._endpoint = self._features.endpoint.address if config.get('enable_ep') else ''
        self._connect()
        self._features.start()
        if self._runs is not None and self._runs.earlier is not None:
            self._go_on(self._runs)

    def _open_channels(self, config: Mapping[str, Any]) -> Channels | None:
        """Open the channels of the application; the supervisor of a pilot with partitions has opened them already."""
        if not config.get('app_comm') or 'channels' in config:
            return None
        from rp_agent.app_comm.channels import Channels  # few pilots have channels

        return Channels(config, self._loop, self._allocation, self.broken)

    def _connect(self) -> None:
        self._connection.on_tasks = self._on_tasks
        self._connection.on_command = self._on_command
        self._connection.on_followed = self._on_followed
        self._connection.on_clock = self._read_clock
        again = self._runs is not None and self._runs.earlier is not None   # what that run has told is no longer true
        self._link.report_active(self._resources() | ({'kept': None, 'announced': False} if again else {}))
        self._loop.call_later(self._lifetime.left, self.finish, states.DONE, self._lifetime.over)
        self._loop.call_later(FLUSH, self._flush_traces)

    def finish(self, state: str, reason: str, *, by_user: bool = False) -> None:
        """End the pilot in a state: first its tasks, then the agent. Only the first call counts.

        Its tasks end with it if a user ends it. Otherwise those that may run elsewhere are returned.
        """
        if self._ending:
            return
        self._returns |= not by_user
        cancelled = [task.uid for task in self._tasks.values() if task.cancelled]
        self._ending = PilotEnd(
            self.pilot, state, reason, cancelled, by_user=by_user, again=self._interrupted,
            by_death=state == states.FAILED and not self._by_signal)
        self.on_ending(state, reason)
        _log.info('the pilot ends as %s: %s', state, reason)
        if self._returns:
            self._unstarted.update(task.uid for task in self._tasks.values() if _can_return(task))
            self._tell_kept()
        for task in self._tasks.values():
            task.cancelled = True
        sentence = self._ending.sentence
        self._refuse_waiting(sentence)
        deadline = time.monotonic() + TASK_END_TIMEOUT
        self._calls.cancel_all(sentence)
        self._features.stop(sentence)
        self._pipeline.stop(sentence, lambda: self._drain(deadline), job_ends=not by_user)

    def _tell_kept(self) -> None:
        """Report which tasks may have started: the batch system may kill this process before its final report."""
        self._kept = [uid for uid in self._tasks if uid not in self._unstarted]
        if self._link.lost:
            return
        self._reporter.flush()   # before, as tasks that are neither final nor kept run elsewhere
        self._link.report_active({**self._resources(), **self._end_info()})

    def _end_info(self) -> dict[str, Any]:
        """Return what the application has to know about the end of the pilot and the tasks that it does not return.

        If the job may be started again, these are all that have started: it may be cancelled instead.
        """
        assert self._ending is not None
        info: dict[str, Any] = {'announced': not self._ending.by_death}
        if self._returns:
            mine = self._kept if self._interrupted else self._tasks
            info['kept'] = [uid for uid in mine if uid not in self._unstarted]
        return info

    def when_known(self, callback: Callable[[], object]) -> None:
        """Call back when the coordinator has acknowledged all updates so far, such as that the pilot is active."""
        self._connection.when_settled(callback)

    def told_to_end(self) -> None:
        """End the pilot because of a signal."""
        if self._ending:   # batch systems signal all processes of a job, and some of these forward the signal
            return
        state, reason = self._lifetime.told_to_end()
        self._by_signal = True
        self._interrupted = state == states.FAILED and self._runs is not None
        if self._runs is not None:
            self._runs.note_end()
        self.finish(state, reason)

    def signalled(self, number: int) -> None:
        """Handle a signal that sub-agents of the job have got."""
        if number == signal.SIGTERM:
            self.told_to_end()
        else:
            self.warned(number)

    def warned(self, number: int) -> None:
        """Note a warning of the batch system or a user, and pass it on to the tasks that want it.

        Batch systems send it to several processes of a job, which report it here.
        """
        now, before = time.monotonic(), self._warnings.get(number, -math.inf)
        if now - before < SAME_WARNING:
            return
        self._warnings[number] = now
        _log.warning('the job got a signal: %s', name_of(number))
        self._tracer.record('signal', self.pilot, msg=name_of(number))
        self._pipeline.forward_signal(number)

    def close(self) -> None:
        """Release all resources of the agent."""
        self._helpers.close(0)
        self._features.close()
        self._link.close()
        self._pipeline.close()
        if self._channels is not None:
            self._channels.close()
        self._tracer.close()
        if self._runs is not None:
            self._runs.close()
        self._link.remove_endpoint()

    def _go_on(self, runs: Runs) -> None:
        """Deliver the results of an earlier run of the pilot's job."""
        _log.warning('%s', runs.told)
        self._histories.update(runs.histories)
        self._intake.new([(uid, {}) for uid, _, _ in runs.results])
        self._intake.not_done([uid for uid, _, _ in runs.results])   # or so: the coordinator knows
        for first in range(0, len(runs.results), BULK):
            self._connection.update_tasks(runs.results[first:first + BULK])

    def _resources(self) -> dict[str, Any]:
        return {'resource_details': self._allocation.details(self._lost_nodes), 'notices': self._notices,
                'hint': self._allocation.hint, 'endpoint': self._endpoint, 'stuck': self._progress.stuck}

    def _progress_changed(self) -> None:
        if self._ending is None:
            self._link.report_active(self._resources())
        self._link.left()

    def notice(self, sentence: str) -> None:
        """Tell the application a sentence about the pilot."""
        self._notices.append(sentence)
        if self._ending is None:
            self._link.report_active(self._resources())

    def nodes_lost(self, positions: Sequence[int], reason: str) -> None:
        """Report lost nodes; the pipeline handles their tasks."""
        self._lost_nodes.update(positions)
        names = [self._allocation.names[position] for position in positions]
        told = f'{self.pilot} has lost {", ".join(names)}: {reason}'
        _log.error('%s', told)
        for name in names:
            self._tracer.record('node_lost', self.pilot, msg=name)
        self.notice(told)

    def trace_part(self, event: str, name: str) -> None:
        """Trace an event of a sub-agent, of a component in another process, or of the bridge to it."""
        uid, msg = (self.pilot, name) if event == 'sub_agent_stop' else (name, '')
        self._tracer.record(event, uid, msg=msg)

    # messages of the coordinator

    def _on_tasks(self, arrived: list[NewTask]) -> None:
        new = self._intake.new(arrived)
        self._tracer.record('get', self.pilot, msg=f'bulk size: {len(new)}')
        self._tracer.record_bulk('get', [uid for uid, _ in new], states.AGENT_STAGING_INPUT_PENDING)
        if self._ending is not None or not any(AFTER in description for _, description in new):
            self._take(new)
            return
        waits = [bool(each.get(AFTER)) and not self._intake.is_cancelled(uid) for uid, each in new]
        self._take([task for task, held in zip(new, waits, strict=True) if not held])   # others may be after them
        self._dependencies.put(list(compress(new, waits)))

    def _take(self, new: list[NewTask]) -> None:
        """Take tasks that depend on no others, or not any more."""
        tasks = self._make(new)
        self._tasks.update((task.uid, task) for task in tasks)
        self._count()
        self._text_notices.look(tasks)
        if self._ending:
            if self._returns:
                self._unstarted.update(task.uid for task in tasks if _can_return(task))
            self._pipeline.refuse(tasks, f'{self.pilot} has ended')
            return
        late = [task for task in tasks if self._intake.cancelled(task.uid)] if self._intake.expects_cancelled else []
        if late:
            self._pipeline.refuse(late, f'cancelled before it came to {self.pilot}')
            tasks = [task for task in tasks if task.uid in self._tasks]
        modes = {task.description['mode'] for task in tasks if 'mode' in task.description}   # most have none
        if not modes.isdisjoint(_SERVICES):
            self._features.add_services([
                task for task in tasks if task.description['mode'] in _SERVICES and task.target_state is None])
        odd = [task for task in tasks if task.target_state is not None]
        if odd:
            self.left(odd)
            tasks = [task for task in tasks if task.uid in self._tasks]
        if PILOT_RPC in modes:
            for task in tasks:
                if task.description['mode'] == PILOT_RPC:
                    self._call(task)
            tasks = [task for task in tasks if task.description['mode'] != PILOT_RPC]
        if tasks:
            self._pipeline.put(tasks)

    @property
    def _dependencies(self) -> DependencyGate:
        """The gate for tasks with dependencies; the first use makes it."""
        if self._gate is None:
            from rp_agent.dependencies.gate import DependencyGate, DependencyPorts

            self._gate = DependencyGate(DependencyPorts(
                self._tasks.__contains__, self._intake.is_done, self._connection.follow_tasks, self._other_sandbox,
                self._take, self._doomed, self._loop.call_soon), self._tracer)
        return self._gate

    def find(self, uid: str) -> AgentTask | None:
        return self._tasks.get(uid)

    def has_seen(self, uid: str) -> bool:
        return self._intake.has_seen(uid)

    def moment(self, message: str, when: int, name: str) -> None:
        self._tracer.relate(message, when, name)

    @property
    def awaited(self) -> bool:
        return bool(self._gate)

    @property
    def left_s(self) -> float:
        return self._lifetime.left

    def knows(self, uid: str) -> bool:
        return uid in self._tasks or (self._gate is not None and uid in self._gate)

    def _other_sandbox(self, pilot: str) -> str:
        return sandbox.of_other_pilot(self._config, pilot)

    def _on_followed(self, outcomes: Sequence[Update]) -> None:
        if self._gate is not None:
            self._gate.followed(outcomes)

    def _doomed(self, tasks: Sequence[tuple[NewTask, str]]) -> None:
        """End tasks whose dependencies have ended otherwise than they request."""
        for new, reason in tasks:
            task, = self._make([new])
            task.error = {'kind': DEPENDENCY}
            self._refuse([task], reason)

    def _refuse(self, tasks: list[AgentTask], reason: str) -> None:
        """End tasks that have not entered the pipeline as CANCELED."""
        self._tasks.update((task.uid, task) for task in tasks)
        self._pipeline.refuse(tasks, reason)

    def _refuse_waiting(self, reason: str) -> None:
        """End the tasks that wait for others, as the pilot ends."""
        tasks = self._make(self._gate.take_all()) if self._gate is not None else []
        if self._returns:
            self._unstarted.update(task.uid for task in tasks if _can_return(task))
        self._refuse(tasks, reason)

    def _call(self, task: AgentTask) -> None:
        """Answer a call of the application."""
        def answered(call: Call, value: Any, reason: str | None, detail: str) -> None:
            answer_task(task, value, reason, detail)
            self.left([task])

        description = task.description
        self._calls.call(task.uid, description['method'], description['args'], description['kwargs'], answered,
                         description['name'])

    def run_own(self, descriptions: list[dict[str, Any]], ended: Callable[[AgentTask], object]) -> None:
        """Run tasks that the coordinator does not know; `ended` gets each at its end."""
        self._own.update((description['uid'], ended) for description in descriptions)
        self._on_tasks([_new_task(description) for description in descriptions])

    def _make(self, new: list[NewTask]) -> list[AgentTask]:
        """Return the records of new tasks; RAPTOR's calls share their descriptions if these are one object."""
        tasks: list[AgentTask] = []
        for uid, description in new:
            if description is not self._description[0]:
                self._description = description, Description(description) if is_call(description) else description
                self._unknown = sorted(description.keys() - DEFAULTS.keys())
            tasks.append(self._record(uid, self._description[1]))
            if self._unknown:   # to ignore one, such as a dependency, could give a wrong result
                tasks[-1].fail(f'the agent of {self.pilot} (rp-agent {__version__}) does not know the attribute '
                               f'{self._unknown[0]!r}', 'the application has a newer version: install the same one for '
                               'the agent (pip install --upgrade rp-agent)', DESCRIPTION)
        return tasks

    def _record(self, uid: str, description: dict[str, Any]) -> AgentTask:
        try:
            task = AgentTask(uid, description, self.pilot, sandbox.of_task(self._config, uid, description))
            if uid in self._histories:
                task.extra[HISTORY] = self._histories.pop(uid)
            if self._runs is not None:
                self._runs.take(task)
            return task
        except Exception as error:
            task = AgentTask(uid, {}, self.pilot, '')
            task.broke(error, 'taking its description')
            return task

    def _count(self) -> None:
        """Update the number of tasks in the agent for the reporter and the intake."""
        self._reporter.tasks = tasks = len(self._tasks)
        self._reporter.waiting = len(self._gate) if self._gate is not None else 0
        self._intake.in_hand(tasks - self._pipeline.held_back)

    def _on_command(self, command: dict[str, Any]) -> None:
        name = command.get('cmd')
        self._tracer.record('cmd', self.pilot, msg=f'{name} : {len(command.get("uids", ()))}')
        if name == 'cancel_tasks':
            self.cancel_tasks(command['uids'])
        elif name == 'call':   # commands overtake tasks, whose delivery may be suspended
            self._overtakes(command['task'])
        elif name == 'history':
            self._remember(command['tasks'])
        elif name == 'return_unstarted':
            self._returns = True
        elif name == 'return_tasks':
            self._return(command['uids'])
        elif name == 'cancel_pilot':
            self.finish(command.get('state', states.CANCELED), command['reason'], by_user=True)
        else:
            _log.error('command %r is unknown', name)

    def _remember(self, histories: dict[str, list[dict[str, Any]]]) -> None:
        """Take the failed attempts of tasks on earlier pilots; the tasks may come later."""
        for uid, history in histories.items():
            task = self._tasks.get(uid)
            if task is None:
                self._histories[uid] = history
            else:
                task.extra[HISTORY] = [*history, *task.extra.get(HISTORY, ())]

    def _overtakes(self, call: dict[str, Any]) -> None:
        """Take a call that was sent as a command before its task arrives.

        A later run of the pilot's job gets the commands of earlier runs again, and their tasks only if they are not
        final: calls that were answered must not be made again.
        """
        if self._runs is None or self._runs.earlier is None:
            self._on_tasks([_new_task(call)])

    def cancel_tasks(self, uids: Sequence[str]) -> None:
        self._intake.cancel(uids)
        if self._ending is not None:
            self._ending.cancelled.update(uids)
        self._calls.cancel(uids, 'the call was cancelled')
        if self._gate is not None:
            self._refuse(self._make(self._gate.take(uids)), 'cancelled while it waited for other tasks')
        self._pipeline.cancel([self._tasks[uid] for uid in uids if uid in self._tasks])

    def _return(self, uids: Sequence[str]) -> None:
        """Return tasks that have not started, or not arrived: the client runs them on other pilots."""
        self._returns = True   # the client has to know what became of the others
        found = [task for uid in uids if (task := self._tasks.get(uid)) is not None and _can_return(task)]
        waiting = self._make(self._gate.take(uids)) if self._gate is not None else []
        absent = self._intake.cancel(uids)
        self._unstarted.update(absent, (task.uid for task in (*found, *waiting)))
        self._reporter.returned([Update(uid, states.AGENT_SCHEDULING, {'returned': self.pilot, **(
            {'history': self._histories[uid]} if uid in self._histories else {})}) for uid in absent])
        self._pipeline.cancel(found)
        self._refuse(waiting, 'returned')

    def _read_clock(self, reading: Reading) -> None:
        moment = HOST_CLOCK.read(reading)
        if moment:
            self._tracer.relate(moment.message, moment.here, self.pilot)
            self._connection.tell_moment(moment)

    # events of the components

    def advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        if self._own:
            tasks = [task for task in tasks if task.uid not in self._own]
        if self._runs is not None and state == states.AGENT_EXECUTING_PENDING:
            self._runs.note(tasks)
        self._reporter.changed(tasks, state)
        self._progress.note()
        if self._intake.holding:   # tasks that wait for other tasks do not count towards the limit of the intake
            self._count()

    def master_up(self, task: AgentTask, access: Mapping[str, str]) -> None:
        self._reporter.changed([task], states.AGENT_EXECUTING, {'raptor': access, 'waits_for': ''})

    def report(self, task: AgentTask, info: dict[str, Any]) -> None:
        """Report new information on a task that executes."""
        self._progress.note()
        self._reporter.changed([task], states.AGENT_EXECUTING, info)

    def report_attempt(self, task: AgentTask, info: dict[str, Any]) -> None:
        """Report the attempts of a task, unless the coordinator does not know it; the next one may start at once."""
        if task.uid in self._tasks and task.uid not in self._own:   # else a RAPTOR master has submitted it
            self.report(task, info)
            if info['waits_for']:
                self._reporter.note([Update(task.uid, states.AGENT_EXECUTING, {'history': info['history']})])

    def waits(self, tasks: Sequence[AgentTask], text: str, state: str = states.AGENT_SCHEDULING) -> None:
        """Report what tasks in that state wait for; nothing if the text is empty."""
        _log.info('%s: waiting for %s', ', '.join([task.uid for task in tasks]), text or 'resources')
        self._reporter.changed(tasks, state, {'waits_for': text})
        self._progress.note()

    def left(self, tasks: Sequence[AgentTask]) -> None:
        """Report tasks that have left the last component."""
        self._progress.note()
        for task in tasks:
            self._tasks.pop(task.uid, None)
        if self._unstarted:
            tasks = self._without_returned(tasks)
        if self._ending is not None:
            tasks = self._settle(self._ending, tasks)
        self._intake.not_done([task.uid for task in tasks if task.target_state != states.DONE])
        followed = self._gate.ended(tasks) if self._gate is not None else ()
        self._count()
        self._reporter.finished(self._without_own(tasks) if self._own else tasks, followed)
        self._link.left()
        if not self._tasks and self._drain_timer is not None:
            self._drained()

    def _without_own(self, tasks: Sequence[AgentTask]) -> list[AgentTask]:
        """Return the tasks to report to the coordinator; the others are passed to those who have submitted them."""
        for task in tasks:
            ended = self._own.pop(task.uid, None)
            if ended is not None:
                task.extra[_OWN] = True
                unless([task], ended, 'reporting its end')
        return [task for task in tasks if _OWN not in task.extra]

    def _without_returned(self, tasks: Sequence[AgentTask]) -> list[AgentTask]:
        """Return the tasks to report; the others have not started, and the client runs them elsewhere."""
        returned: list[AgentTask] = []
        left: list[AgentTask] = []
        for task in tasks:
            goes = task.uid in self._unstarted and task.target_state == states.CANCELED
            (returned if goes else left).append(task)
        # at the end, the last message tells which tasks are not returned
        self._give_back([task for task in returned if self._ending is None or HISTORY in task.extra])
        self._forget([task for task in returned if self._ending is not None and HISTORY not in task.extra])
        return left

    def _settle(self, end: PilotEnd, tasks: Sequence[AgentTask]) -> list[AgentTask]:
        """Return the tasks whose outcome is reported at the end of the pilot; the others run elsewhere, or here again.

        If the job may be started again, its next agent gets the tasks without an outcome.
        """
        mine = [task for task in tasks if task.uid in self._own] if self._own else []
        own, returned = end.settle([task for task in tasks if task not in mine] if mine else tasks)
        own += mine
        if self._interrupted:
            self._unstarted.update(task.uid for task in returned if UNSTARTED in task.extra)
            self._forget(returned)
        else:
            self._give_back(returned)
        return own

    def _give_back(self, tasks: Sequence[AgentTask]) -> None:
        """Report tasks that run on other pilots, with their attempts."""
        self._forget(tasks)
        self._reporter.returned([_returned(task, self.pilot) for task in tasks])

    def _forget(self, tasks: Sequence[AgentTask]) -> None:
        """Report nothing more on tasks that run elsewhere, and follow them for those that are after them."""
        self._reporter.drop(tasks)
        self._went_elsewhere([task.uid for task in tasks])

    def _went_elsewhere(self, uids: Sequence[str]) -> None:
        self._intake.not_done(uids)
        if self._gate is not None:
            self._gate.moved(uids)

    def _unfinished(self) -> bool:
        """Return whether a task is left that will end by itself."""
        if self._progress.stuck:
            return False
        if any(task.description['mode'] not in SERVICE_MODES for task in self._tasks.values()):
            return True
        waiting = self._gate.descriptions() if self._gate is not None else ()
        return any(description.get('mode') not in SERVICE_MODES for description in waiting)

    def broken(self, reason: str) -> None:
        """End the pilot after the loss of a component that tasks need."""
        _log.error('the pilot %s', reason)
        self.finish(states.FAILED, reason)

    # end of the pilot

    def _drain(self, deadline: float) -> None:
        """Wait until the deadline for tasks in staging; no task runs any more."""
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
        end = self._ending
        self._reporter.flush(sending=not self._link.lost)
        self._flush_traces()
        if self._interrupted and not self._link.refusal:
            self._notices.append(f'{end.sentence}; it continues if the batch system starts its job again')
            self._link.report_last(states.PMGR_ACTIVE, {**self._resources(), **self._end_info()}, self._loop.stop)
        else:   # with everything reported before: of several updates at once, the client may get only the last one
            info = {**self._resources(), **self._end_info()}
            self._link.report_end(self._config, end.state, end.reason, info, self._by_signal)

    def _flush_traces(self) -> None:
        self._tracer.flush()
        self._pipeline.flush_traces()
        self._count()   # the number of tasks that are held back can change with time alone
        self._loop.call_later(FLUSH, self._flush_traces)


def _returned(task: AgentTask, pilot: str) -> Update:
    """Return the update that gives a task back, which may have been reported as executing."""
    info = {'returned': pilot, **({'history': task.extra[HISTORY]} if HISTORY in task.extra else {})}
    begun = HISTORY in task.extra or states.TASK.value(task.state) >= _STARTS
    return Update(task.uid, states.AGENT_EXECUTING if begun else states.AGENT_SCHEDULING, info)


def _new_task(description: dict[str, Any]) -> NewTask:
    """Return a task whose description includes its uid."""
    return description['uid'], {name: value for name, value in description.items() if name != 'uid'}


def _can_return(task: AgentTask) -> bool:
    """Return whether a task has not started, was not cancelled, and may run on another pilot."""
    return (states.TASK.value(task.state) < _STARTS and not task.cancelled and task.target_state is None
            and not task.description['pilot'] and not task.description['raptor_id'])

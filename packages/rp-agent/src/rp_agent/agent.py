"""The agent: runs the tasks of one pilot on the pilot's nodes."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rp_agent.calls import Calls
from rp_agent.components import layout
from rp_agent.components.build import HOST_CLOCK, make_tracer
from rp_agent.components.stage import Owner
from rp_agent.features import Features
from rp_agent.launch_method.base import Setting
from rp_agent.lifetime import Lifetime
from rp_agent.pipeline.arrivals import Arrivals, new_task
from rp_agent.pipeline.job_end import PilotEnd
from rp_agent.pipeline.pipeline import Pipeline
from rp_agent.pipeline.progress import Progress
from rp_agent.pipeline.returns import Returns, can_return
from rp_agent.pipeline.runs import Runs
from rp_agent.reporting.coordinator_link import CoordinatorLink, LinkHandler
from rp_agent.resource_manager.systems.find import allocation_of, platform_of
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import NewTask, Update
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.offload import Helpers
from rp_api.reasons.wait import WAITS_FOR, wait
from rp_api.system.signals import name_of
from rp_profiling.write.host_clock import Reading

if TYPE_CHECKING:
    from rp_agent.app_comm.channels import Channels

_log = logging.getLogger('radical.pilot.agent')

FLUSH = 1.0
"""Seconds between two writes of traces to their files."""

TASK_END_TIMEOUT = 8.0
"""Seconds until tasks that are still in the agent are given up when the pilot ends."""

SAME_WARNING = 1.0
"""Seconds within which processes of a job get the same signal."""


class Agent(Owner, LinkHandler):
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
        self._runs = runs = Runs(config) if config.get('requeue') else None
        self._earlier = runs if runs is not None and runs.earlier is not None else None
        self._ending: PilotEnd | None = None
        self._warnings: dict[int, float] = {}   # when each came last
        self._drain_timer: Timer | None = None
        self._on_ending: Callable[[str, str], object] = lambda state, reason: None
        self._lifetime = Lifetime(config)
        self._tracer = make_tracer(config, config['agent_uid'])
        self._tracer.record('hostname', self.pilot, msg=os.uname().nodename)
        whole = allocation_of(config)
        self._allocation = whole.reserve(layout.reserved_nodes(config['agent'], len(whole.names)))
        self._tracer.record('resources', self.pilot, msg=self._allocation.trace())
        config = {**config, 'platform': platform_of(config['platform'], self._allocation)}
        self._notices = [self._earlier.told] if self._earlier else []
        self._channels = self._open_channels(config)
        config = {**config, 'channels': self._channels.variables if self._channels else config.get('channels', {}),
                  'cpus': self._allocation.cpus, 'gpu_ids': self._allocation.gpu_ids,
                  'setting': asdict(Setting.of(self._allocation, config['platform'])), 'here': self._allocation.here}
        self._pipeline = Pipeline(config, loop, self._allocation, self._helpers.run, self)
        self._progress = Progress(loop, self._tasks, self._pipeline, len(whole.names), self._progress_changed)
        self._link = CoordinatorLink(config, loop, lambda: not self._progress.stuck and self._arrivals.unfinished(),
                                     self.finish, self._tracer, self._tasks)
        self._connection = self._link.connection
        self._reporter = self._link.reporter
        self._calls = Calls()
        self._returns = Returns(self.pilot, self._reporter)
        self._arrivals = Arrivals(config, loop, self._tasks, self._link, self._tracer, self._allocation.cores,
                                  self._pipeline, self._calls, self._runs, self._returns, self)
        self._features = Features(config, loop, self._helpers.run, self._allocation, self._calls, self._pipeline, self)
        self._endpoint = self._features.endpoint.address if config.get('enable_ep') else ''
        self._connection.open(self)
        # what an earlier run has told is no longer true
        self._link.report_active(self._resources() | ({'kept': None, 'announced': False} if self._earlier else {}))
        self._loop.call_later(self._lifetime.left, self.finish, states.DONE, self._lifetime.over)
        self._loop.call_later(FLUSH, self._flush_traces)
        self._features.start()
        if self._earlier:
            _log.warning('%s', self._earlier.told)
            self._arrivals.go_on(self._earlier.results)

    def _open_channels(self, config: Mapping[str, Any]) -> Channels | None:
        """Open the channels of the application; the supervisor of a pilot with partitions has opened them already."""
        if not config.get('app_comm') or 'channels' in config:
            return None
        from rp_agent.app_comm.channels import Channels  # few pilots have channels

        return Channels(config, self._loop, self._allocation, self.broken)

    def finish(self, state: str, reason: str, *, by_user: bool = False) -> None:
        """End the pilot in a state: first its tasks, then the agent. Only the first call counts.

        Its tasks end with it if a user ends it. Otherwise those that may run elsewhere are returned.
        """
        if self._ending:
            return
        self._returns.wanted |= not by_user
        cancelled = [task.uid for task in self._tasks.values() if task.cancelled]
        self._ending = PilotEnd(
            self.pilot, state, reason, cancelled, by_user=by_user, again=self._interrupted,
            by_death=state == states.FAILED and not self._by_signal)
        self._on_ending(state, reason)
        _log.info('the pilot ends as %s: %s', state, reason)
        if self._returns.wanted:
            self._report_kept()
        for task in self._tasks.values():
            task.cancelled = True
        sentence = self._ending.sentence
        self._arrivals.end(sentence)
        deadline = time.monotonic() + TASK_END_TIMEOUT
        self._calls.cancel_all(sentence)
        self._features.stop(sentence)
        self._pipeline.stop(sentence, lambda: self._drain(deadline), job_ends=not by_user)

    def _report_kept(self) -> None:
        """Report which tasks may have started: the batch system may kill this process before its final report."""
        self._returns.note(self._tasks.values())
        self._returns.keep(self._tasks)
        if self._link.loss.lost:
            return
        self._reporter.flush()   # before, as tasks that are neither final nor kept run elsewhere
        self._link.report_active(self._last_info())

    def _last_info(self) -> dict[str, Any]:
        assert self._ending is not None
        return {**self._resources(), **self._returns.info(self._ending, self._tasks)}

    def when_known(self, callback: Callable[[], object]) -> None:
        """Call back when the coordinator has acknowledged all updates so far, such as that the pilot is active."""
        self._connection.when_settled(callback)

    def when_ending(self, callback: Callable[[str, str], object]) -> None:
        """Call back with the state and the reason when the pilot begins to end."""
        self._on_ending = callback

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

    def _resources(self) -> dict[str, Any]:
        return {'resource_details': self._allocation.details(self._lost_nodes), 'notices': self._notices,
                'hint': self._allocation.hint, 'endpoint': self._endpoint, 'stuck': self._progress.stuck,
                'waiting': self._progress.waiting.entries}

    def _report_active(self) -> None:
        if self._ending is None:
            self._link.report_active(self._resources())

    def _progress_changed(self) -> None:
        self._report_active()
        self._link.loss.left()

    def notice(self, sentence: str) -> None:
        """Tell the application a sentence about the pilot."""
        self._notices.append(sentence)
        self._report_active()

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

    # questions and requests of parts of the agent

    def find(self, uid: str) -> AgentTask | None:
        return self._tasks.get(uid)

    def has_seen(self, uid: str) -> bool:
        return self._arrivals.intake.has_seen(uid)

    def moment(self, message: str, when: int, name: str) -> None:
        self._tracer.relate(message, when, name)

    @property
    def awaited(self) -> bool:
        return self._arrivals.waiting > 0

    @property
    def left_s(self) -> float:
        return self._lifetime.left

    def knows(self, uid: str) -> bool:
        return uid in self._tasks or uid in self._arrivals

    def run_own(self, descriptions: list[dict[str, Any]], ended: Callable[[AgentTask], object]) -> None:
        self._arrivals.put_own(descriptions, ended)

    def add_services(self, tasks: list[AgentTask]) -> None:
        self._features.services.add(tasks)

    # messages of the coordinator

    def on_tasks(self, tasks: list[NewTask]) -> None:
        self._arrivals.put(tasks)

    def on_followed(self, outcomes: list[Update]) -> None:
        self._arrivals.followed(outcomes)

    def on_command(self, command: dict[str, Any]) -> None:
        name = command.get('cmd')
        self._tracer.record('cmd', self.pilot, msg=f'{name} : {len(command.get("uids", ()))}')
        if name == 'cancel_tasks':
            self.cancel_tasks(command['uids'])
        elif name == 'call':   # commands overtake tasks, whose delivery may be suspended
            if self._earlier is None:   # later runs get the commands again, and an answered call must not be repeated
                self._arrivals.put([new_task(command['task'])])
        elif name == 'history':
            self._arrivals.remember(command['tasks'])
        elif name == 'return_unstarted':
            self._returns.wanted = True
        elif name == 'return_tasks':
            self._return(command['uids'])
        elif name == 'cancel_pilot':
            self.finish(command.get('state', states.CANCELED), command['reason'], by_user=True)
        else:
            _log.error('command %r is unknown', name)

    def cancel_tasks(self, uids: Sequence[str]) -> None:
        self._arrivals.intake.cancel(uids)
        if self._ending is not None:
            self._ending.cancelled.update(uids)
        self._calls.cancel(uids, 'the call was cancelled')
        self._arrivals.refuse(self._arrivals.take(uids), 'cancelled while it waited for other tasks')
        self._pipeline.cancel([self._tasks[uid] for uid in uids if uid in self._tasks])

    def _return(self, uids: Sequence[str]) -> None:
        """Return tasks that have not started, or not arrived: the client runs them on other pilots."""
        self._returns.wanted = True   # the client has to know what became of the others
        found = [task for uid in uids if (task := self._tasks.get(uid)) is not None and can_return(task)]
        waiting = self._arrivals.take(uids)
        absent, histories = self._arrivals.intake.cancel(uids), self._arrivals.histories
        self._returns.unstarted.update(absent, (task.uid for task in (*found, *waiting)))
        self._reporter.returned([Update(uid, states.AGENT_SCHEDULING, {'returned': self.pilot, **(
            {'history': histories[uid]} if uid in histories else {})}) for uid in absent])
        self._pipeline.cancel(found)
        self._arrivals.refuse(waiting, 'returned')

    def on_clock(self, reading: Reading) -> None:
        moment = HOST_CLOCK.read(reading)
        if moment:
            self._tracer.relate(moment.message, moment.here, self.pilot)
            self._connection.tell_moment(moment)

    # events of the components

    def advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        if self._arrivals.own:
            tasks = [task for task in tasks if task.uid not in self._arrivals.own]
        if self._runs is not None and state == states.AGENT_EXECUTING_PENDING:
            self._runs.note(tasks)
        self._reporter.changed(tasks, state)
        self._progress.note()
        if self._arrivals.intake.holding:   # tasks that wait for others do not count towards the limit of the intake
            self._arrivals.count()

    def master_up(self, task: AgentTask, access: Mapping[str, str]) -> None:
        self._reporter.changed([task], states.AGENT_EXECUTING, {'raptor': access, WAITS_FOR: ''})

    def report(self, task: AgentTask, info: dict[str, Any]) -> None:
        """Report new information on a task that executes."""
        self._progress.note()
        self._reporter.changed([task], states.AGENT_EXECUTING, info)

    def report_attempt(self, task: AgentTask, info: dict[str, Any]) -> None:
        """Report the attempts of a task, unless the coordinator does not know it; the next one may start at once."""
        if task.uid in self._tasks and task.uid not in self._arrivals.own:   # else a RAPTOR master has submitted it
            self.report(task, info)
            if info[WAITS_FOR]:
                self._reporter.note([Update(task.uid, states.AGENT_EXECUTING, {'history': info['history']})])

    def waits(self, tasks: Sequence[AgentTask], kind: str, text: str, state: str = states.AGENT_SCHEDULING) -> None:
        """Report what tasks in that state wait for; nothing if the text is empty."""
        _log.info('%s: waiting for %s', ', '.join([task.uid for task in tasks]), text or 'resources')
        self._reporter.changed(tasks, state, {WAITS_FOR: wait(kind, text)})
        self._progress.note()

    def left(self, tasks: Sequence[AgentTask]) -> None:
        """Report tasks that have left the last component."""
        self._progress.note()
        for task in tasks:
            self._tasks.pop(task.uid, None)
        if self._ending is not None or self._returns.unstarted:
            tasks, elsewhere = self._returns.settle(tasks, self._ending, self._arrivals.own)
            if elsewhere:
                self._arrivals.moved(elsewhere)
        followed = self._arrivals.ended(tasks)
        self._arrivals.count()
        self._reporter.finished(self._arrivals.without_own(tasks) if self._arrivals.own else tasks, followed)
        if self._link.loss.lost:
            self._link.loss.left()
        if not self._tasks and self._drain_timer is not None:
            self._drained()

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
        self._reporter.flush(sending=not self._link.loss.lost)
        self._flush_traces()
        if end.again and not self._link.refusal:
            self._notices.append(f'{end.sentence}; it continues if the batch system starts its job again')
            self._link.report_last(states.PMGR_ACTIVE, self._last_info(), self._loop.stop)
        else:   # with everything reported before: of several updates at once, the client may get only the last one
            self._link.report_end(self._config, end.state, end.reason, self._last_info(), self._by_signal)

    def _flush_traces(self) -> None:
        self._tracer.flush()
        self._pipeline.flush_traces()
        self._arrivals.count()   # the number of tasks that are held back can change with time alone
        self._loop.call_later(FLUSH, self._flush_traces)

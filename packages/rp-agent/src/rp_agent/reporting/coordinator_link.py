"""The link to the coordinator: the connection, the reporter, the loss of the coordinator, and the final report."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from rp_agent import sandbox
from rp_agent.reporting.reporter import Reporter
from rp_agent.reporting.result_spool import ResultSpool
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.connect import agent_connection
from rp_api.coordination.contract import AgentConnection, AgentHandler, Update
from rp_api.coordination.shutdown_rule import ShutdownRule
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_api.system.host import host_id
from rp_profiling.write.tracer import Tracer

DELIVERY_TIMEOUT = 2.0
"""Seconds until updates that the coordinator has not acknowledged are written to disk."""

SETTLE_TIMEOUT = 15.0
"""Further seconds to wait for the acknowledgement while the coordinator is connected."""

_log = logging.getLogger('radical.pilot.agent')

RETURN_TIMEOUT = 5.0
"""Seconds that a client has to restart a hub that has died."""


class CoordinatorLink:
    """The link of the agent or supervisor of a pilot to the coordinator.

    `finish(state, reason)` is called to end the pilot when the coordinator refuses it or does not return. `unfinished`
    is that of `CoordinatorLoss`, `tracer` and `tasks` are those of `Reporter`.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, unfinished: Callable[[], bool],
                 finish: Callable[[str, str], object], tracer: Tracer | None = None,
                 tasks: Mapping[str, AgentTask] = MappingProxyType({})) -> None:
        self._pilot: str = config['pilot']
        self._loop = loop
        self._finish = finish
        self._final_report: FinalReport | None = None
        self._forsaken = False
        self.refusal = ''
        """The reason of the coordinator if it refuses the pilot."""
        spool = ResultSpool(sandbox.updates(config))
        self.connection = agent_connection(loop, config['coordination'], self._pilot, config['agent_uid'])
        self.reporter = Reporter(loop, self.connection, spool, tracer, tasks)
        self.loss = CoordinatorLoss(loop, config['orphan_timeout'], unfinished, self._give_up)

    @property
    def reports_end(self) -> bool:
        """True if the final report was begun."""
        return self._final_report is not None

    def report_active(self, info: Mapping[str, Any]) -> None:
        """Report the pilot as active."""
        self.connection.update_pilots([Update(self._pilot, states.PMGR_ACTIVE, {
            **info, 'agent': {'pid': os.getpid(), 'host': host_id()}})])

    def report_last(self, state: str, info: Mapping[str, Any], over: Callable[[], object]) -> None:
        """Report a state of the pilot as the last one; `over()` is called at the end of the report."""
        last = Update(self._pilot, state, info)
        self._final_report = FinalReport(self._loop, self.connection, self.reporter, last, over)
        if not self.loss.lost:
            self._final_report.found()

    def report_end(self, config: Mapping[str, Any], state: str, reason: str, info: dict[str, Any],
                   by_signal: bool) -> None:
        """Finish the sandbox, report the final state of the pilot with `info`, and stop the loop.

        If the coordinator has refused the pilot, raise its reason in the loop and keep all files.
        """
        if self.refusal:
            self._loop.call_soon(self._fail)
            return
        sandbox.wrap_up(config)
        sentence = f'{self._pilot} {reason}'
        info = {'reason': sentence, **info}
        if state == states.FAILED:
            info |= {'exception': sentence.partition('\n')[0], 'exception_detail': sentence, 'by_signal': by_signal}
        self.report_last(state, info, lambda: self._over(config))

    def close(self) -> None:
        """Close the reporter and the connection."""
        self.reporter.close()
        self.connection.close()

    def remove_endpoint(self) -> None:
        """Remove the endpoint of a coordinator that did not return."""
        if self._forsaken:
            self.connection.remove_endpoint()

    def coordinator_lost(self, how: str) -> None:
        """Note that the coordinator is lost."""
        self.loss.coordinator_lost(how)
        if self._final_report is not None:
            self._final_report.lost()

    def coordinator_found(self) -> None:
        """Note that the coordinator has returned, and send it the final report if there is one."""
        self.loss.coordinator_found()
        if self._final_report is not None:
            self._final_report.found()

    def refused(self, reason: str) -> None:
        """End the pilot, which the coordinator refuses."""
        self.refusal = reason
        self.loss.lost = True
        if self._final_report is not None:
            self._final_report.lost()
        self._finish(states.FAILED, f'was refused: {reason}')

    def _give_up(self) -> None:
        self._forsaken = True
        self._finish(states.CANCELED, 'lost its coordinator')

    def _over(self, config: Mapping[str, Any]) -> None:
        sandbox.remove(config)
        self._loop.stop()

    def _fail(self) -> None:
        raise CoordinationError(self.refusal)


class LinkHandler(AgentHandler):
    """The calls of a link's connection: agent and supervisor take those that are not about the link."""

    _link: CoordinatorLink

    def on_lost(self, how: str) -> None:
        self._link.coordinator_lost(how)

    def on_found(self) -> None:
        self._link.coordinator_found()

    def on_refused(self, reason: str) -> None:
        self._link.refused(reason)

    def on_room(self) -> None:
        self._link.reporter.on_room()


class FinalReport:
    """The report of a pilot's final state, after all updates of its tasks; `over()` is called when it is acknowledged.

    If the coordinator does not answer in time, the updates are written to disk before `over()`.
    """

    def __init__(self, loop: Loop, connection: AgentConnection, reporter: Reporter, last: Update,
                 over: Callable[[], object]) -> None:
        self._loop = loop
        self._connection = connection
        self._reporter = reporter
        self._last = last
        self._over = over
        self._said = False
        self._lost = True
        loop.call_later(DELIVERY_TIMEOUT, self._keep)

    def found(self) -> None:
        """Send the report: the coordinator is connected."""
        self._lost = False
        if not self._said:
            self._said = True
            self._reporter.flush()
            self._connection.update_pilots([self._last])
            self._connection.when_settled(self._arrived)

    def lost(self) -> None:
        """Note that the coordinator is lost."""
        self._lost = True

    def _arrived(self) -> None:
        self._reporter.forget()
        self._over()

    def _keep(self) -> None:
        self._reporter.keep(self._last)
        if self._lost:
            self._over()
        else:
            self._loop.call_later(SETTLE_TIMEOUT, self._over)


class CoordinatorLoss:
    """The watcher of the coordinator, which calls `give_up()` when it does not return.

    The agent waits until no task is left (`unfinished()` is false) and for `timeout` seconds more. With a timeout of 0,
    it does not wait for running tasks.
    """

    def __init__(self, loop: Loop, timeout: float, unfinished: Callable[[], bool],
                 give_up: Callable[[], object]) -> None:
        self._loop = loop
        self._unfinished = unfinished
        self._give_up = give_up
        self._rule = ShutdownRule(timeout)
        self._timer: Timer | None = None
        self.lost = False
        """True if the coordinator is lost at present."""

    def coordinator_lost(self, how: str) -> None:
        """Start the time-out: the coordinator has died or does not answer."""
        _log.warning('the coordinator is lost: %s', how)
        self.lost = True
        self._look_at(time.monotonic() + RETURN_TIMEOUT, self._gone)

    def coordinator_found(self) -> None:
        """End the time-out: the coordinator has returned."""
        _log.info('the coordinator is back')
        self.lost = False
        self._rule.client_attached()
        self._forget_timer()

    def left(self) -> None:
        """Check the end of the agent after tasks have left it."""
        if self._rule.orphaned:
            self._look()

    def _gone(self) -> None:
        self._rule.client_lost()
        self._look()

    def _look(self) -> None:
        self._forget_timer()
        action, again = self._rule.next(time.monotonic(), self._unfinished(), 0)
        if action == 'end':
            self._give_up()
        if again is not None:
            self._look_at(again, self._look)

    def _look_at(self, deadline: float, callback: Callable[[], object]) -> None:
        self._forget_timer()
        self._timer = self._loop.call_at(deadline, self._due, deadline, callback)

    def _due(self, deadline: float, callback: Callable[[], object]) -> None:
        now = time.monotonic()
        if now - deadline > RETURN_TIMEOUT:   # this process was stopped meanwhile: give the coordinator time again
            self._look_at(now + RETURN_TIMEOUT, callback)
        else:
            callback()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

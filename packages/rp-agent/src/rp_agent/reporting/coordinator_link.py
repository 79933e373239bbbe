"""The link to the coordinator: the connection, the reporter, the loss of the coordinator, and the final report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from rp_agent import sandbox
from rp_agent.reporting.coordinator_loss import CoordinatorLoss
from rp_agent.reporting.final_report import FinalReport
from rp_agent.reporting.reporter import Reporter
from rp_agent.reporting.result_spool import ResultSpool
from rp_api import states
from rp_api.coordination.connect import agent_connection
from rp_api.coordination.contract import Update
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop
from rp_api.system.host import host_id
from rp_profiling.write.tracer import Tracer


class CoordinatorLink:
    """The link of the agent or supervisor of a pilot to the coordinator.

    `finish(state, reason)` is called to end the pilot when the coordinator refuses it or does not return. `unfinished`
    is that of `CoordinatorLoss`, `tracer` that of `Reporter`.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, unfinished: Callable[[], bool],
                 finish: Callable[[str, str], object], tracer: Tracer | None = None) -> None:
        self._pilot: str = config['pilot']
        self._loop = loop
        self._finish = finish
        self._final_report: FinalReport | None = None
        self._forsaken = False
        self.refusal = ''
        """The reason of the coordinator if it refuses the pilot."""
        spool = ResultSpool(sandbox.updates(config))
        self.connection = agent_connection(loop, config['coordination'], self._pilot, config['agent_uid'])
        self.reporter = Reporter(loop, self.connection, spool, tracer)
        self._loss = CoordinatorLoss(loop, config['orphan_timeout'], unfinished, self._give_up)
        self.left = self._loss.left
        self.connection.on_lost = self._on_lost
        self.connection.on_found = self._on_found
        self.connection.on_refused = self._on_refused

    @property
    def lost(self) -> bool:
        """True if the coordinator is lost at present."""
        return self._loss.lost

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
        if not self.lost:
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

    def _on_lost(self, how: str) -> None:
        self._loss.coordinator_lost(how)
        if self._final_report is not None:
            self._final_report.lost()

    def _on_found(self) -> None:
        self._loss.coordinator_found()
        if self._final_report is not None:
            self._final_report.found()

    def _on_refused(self, reason: str) -> None:
        self.refusal = reason
        self._loss.lost = True
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

"""The optional stages of a pipeline, each made for the first task that needs it; agents without it do not load it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rp_agent.components.build import make_tracer
from rp_agent.components.stage import Flow, Owner, Stage, Tasks
from rp_agent.pipeline import retry
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import concerns_raptor, differing, has_needs
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Offload
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:
    from rp_agent.prerequisites.gate import Gate

CONCERNED = retry.ATTRIBUTES | {'mode', 'raptor_id', 'named_env', 'services'}
"""Attributes of descriptions without which a task needs no stage."""

GATE = 'agent_prerequisites.0000'


class Stages:
    """The optional stages that a pipeline has: `present`, in the order in which tasks pass them.

    `tracer` is that of the scheduler.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, offload: Offload, allocation: Allocation, tracer: Tracer,
                 flow: Flow, owner: Owner) -> None:
        self._config = config
        self._loop = loop
        self._offload = offload
        self._allocation = allocation
        self._tracer = tracer
        self._flow = flow
        self._owner = owner
        self.present: list[Stage] = []
        self._absent = [(retry.concerns_attempts, self._add_attempts), (concerns_raptor, self._add_raptor),
                        (has_needs, lambda: self.gate)]

    def add(self, stage: Stage) -> None:
        """Add a stage at its place."""
        self.present = sorted([*self.present, stage], key=attrgetter('order'))   # a new list, as tasks pass the old one

    def require(self, tasks: Tasks) -> None:
        """Make the stages that these tasks are the first to need."""
        different = list(differing(tasks))
        for each in [*self._absent]:
            concerns, make = each
            if any(map(concerns, different)):
                self._absent.remove(each)
                make()

    @cached_property
    def gate(self) -> Gate:
        """The gate before the scheduler, for those who provide what tasks need."""
        from rp_agent.bootstrap.environment import additions
        from rp_agent.prerequisites.gate import ENVIRONMENT, Gate, Need
        from rp_api.description.environment import OWN

        gate = Gate(GATE, make_tracer(self._config, GATE), self._flow, self._owner, self._loop.call_later)
        own = additions(self._config.get('environment'), os.environ)
        gate.provide(Need(ENVIRONMENT, OWN), lambda task: own)
        self.add(gate)
        return gate

    def _add_attempts(self) -> None:
        from rp_agent.pipeline.attempts import Attempts

        self.add(Attempts(self._loop, self._offload, self._tracer, retry.limits_of(self._allocation), self._flow,
                          self._owner))

    def _add_raptor(self) -> None:
        from rp_agent.raptor.link import RaptorLink
        from rp_agent.raptor.transport import Transports
        from rp_agent.raptor.worker_parts import WorkerParts

        raptor = RaptorLink(self._config, self._loop, self._allocation, self._flow, self._owner).raptor
        self.add(raptor)
        if self._allocation.elsewhere:   # else one manager starts all ranks of a worker
            self.add(WorkerParts(raptor.part_ended, raptor.tracer, self._flow, self._owner,
                                 Transports(self._config['platform'])))

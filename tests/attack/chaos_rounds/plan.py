"""The plan of a round, which follows from its kind and its seed alone: when each process is killed or stopped.

Times are parts of the time that a round takes when nothing happens.

- `plain`, `staged`, `raptor`, `sweep`, `dependent`, `service` and `executor` are kinds of tasks. In a quarter of the
  rounds with plain and staged tasks and sweeps there are two pilots, whose tasks are restartable, and one agent may be
  killed. A service is killed and stopped.
- `job` rounds have plain tasks on two pilots that are jobs of a Slurm. Jobs are cancelled and requeued, applications
  are killed while they submit jobs.
- `reattached` sessions have tasks of either of the first two kinds, and lose their application several times, the first
  time while it opens the session.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from fault_matrix import workload

REATTACHED = 'reattached'
JOBS = 'job'
KINDS = (workload.PLAIN, workload.STAGED, workload.RAPTOR, workload.SWEEP, workload.DEPENDENT, workload.SERVICE,
         workload.EXECUTOR, JOBS, REATTACHED)
SEVERAL_PILOTS = (workload.PLAIN, workload.STAGED, workload.SWEEP)

APPLICATION, HUB, AGENT, RANK, ANY_OF_RAPTOR = 'application', 'hub', 'agent', 'rank', 'raptor'
SERVICE, JOB, SUBMISSION = 'service', 'job', 'submission'
KILL, STOP, CANCEL, REQUEUE = 'KILL', 'STOP', 'CANCEL', 'REQUEUE'

_INSTEAD = {(AGENT, KILL): STOP, (RANK, KILL): STOP, (JOB, CANCEL): REQUEUE}
"""What happens to the second one that would be lost for good."""

_PAUSES = (0.0, 0.1, 0.5)
_OPENING = 0.2
"""The part of a round in which an application opens its session, about."""


@dataclass(frozen=True)
class Event:
    """A process is killed or stopped."""

    at: float
    """After the beginning of the round."""
    victim: str
    action: str
    pause: float
    """Until the process goes on, or until the next application begins."""
    pick: float
    """Which one of several it is, as a share of 1."""

    def __str__(self) -> str:
        return f'{self.victim}-{self.action}@{self.at:.2f}'


@dataclass(frozen=True)
class Plan:
    """What happens in a round."""

    kind: str
    seed: int
    tasks: str
    """The kind of the tasks."""
    pilots: int
    events: tuple[Event, ...]

    @property
    def restartable(self) -> bool:
        """Whether tasks may run again, after their pilot was lost."""
        return self.pilots > 1


def make_plan(kind: str, seed: int) -> Plan:
    """The plan of a round."""
    source = random.Random(f'{kind} {seed}')
    if kind == REATTACHED:
        return Plan(kind, seed, source.choice((workload.PLAIN, workload.STAGED)), 1, _in_order(_reattach(source)))
    if kind == JOBS:
        return Plan(kind, seed, workload.PLAIN, 2, _in_order(_disturb(source, _victims(kind, 2))))
    pilots = 2 if kind in SEVERAL_PILOTS and source.random() < 0.25 else 1
    return Plan(kind, seed, kind, pilots, _in_order(_disturb(source, _victims(kind, pilots))))


def _victims(kind: str, pilots: int) -> dict[str, list[str]]:
    """The processes that something happens to, and what."""
    often = [KILL, KILL, STOP]
    victims = {APPLICATION: often, HUB: often, AGENT: often if pilots > 1 else [STOP]}
    if kind == JOBS:
        return {APPLICATION: [KILL], HUB: [KILL], JOB: [CANCEL, REQUEUE], SUBMISSION: [KILL]}
    more = {workload.RAPTOR: {RANK: often, ANY_OF_RAPTOR: [STOP]}, workload.SERVICE: {SERVICE: often}}
    return victims | more.get(kind, {})


def _disturb(source: random.Random, victims: dict[str, list[str]]) -> list[Event]:
    """One to four events, some of them together with another one."""
    events: list[Event] = []
    for _ in range(source.randint(1, 4)):
        event = _event(source, source.uniform(0.02, 0.9), source.choice(list(victims)), victims)
        # of agents, ranks and jobs, one: tasks might have no pilot left, and calls are made again once
        if any((event.victim, event.action) == (other.victim, other.action) for other in events):
            event = replace(event, action=_INSTEAD.get((event.victim, event.action), event.action))
        events.append(event)
        if source.random() < 0.3:
            events.append(_event(source, event.at, source.choice((APPLICATION, HUB)), victims))
    return events


def _reattach(source: random.Random) -> list[Event]:
    """The application is killed two to five times, at times with the hub."""
    victims = _victims(REATTACHED, 1)
    moments = [source.uniform(0.0, _OPENING), *(source.uniform(0.0, 0.9) for _ in range(source.randint(1, 4)))]
    events = [Event(at, APPLICATION, KILL, source.choice(_PAUSES), 0.0) for at in moments]
    return events + [_event(source, event.at, HUB, victims) for event in events if source.random() < 0.4]


def _event(source: random.Random, at: float, victim: str, victims: dict[str, list[str]]) -> Event:
    action = source.choice(victims[victim])
    pause = source.uniform(0.05, 1.0) if action == STOP else source.choice(_PAUSES)
    return Event(at, victim, action, pause, source.random())


def _in_order(events: list[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: event.at))

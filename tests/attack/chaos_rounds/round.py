"""One round: a session that a plan happens to, while its applications do their work without being asked anything.

An application to which the session is refused, because its hub was killed or stopped just then, is followed by another
one. Without such a reason, that is a loss.
"""

from __future__ import annotations

import heapq
import itertools
import signal
import time
from collections.abc import Callable
from functools import partial

from conftest import processes_with
from fault_matrix.application import HangError, LossError
from fault_matrix.run import AGENT as AGENT_PROGRAM
from fault_matrix.run import HUB as HUB_PROGRAM
from fault_matrix.run import Run
from slurm_cluster import SlurmCluster

from chaos_rounds.plan import (
    AGENT,
    ANY_OF_RAPTOR,
    CANCEL,
    HUB,
    JOB,
    KILL,
    RANK,
    SERVICE,
    SUBMISSION,
    Event,
    Plan,
)

_PROGRAMS = {HUB: HUB_PROGRAM, AGENT: AGENT_PROGRAM, RANK: 'rp_raptor.rank.main', ANY_OF_RAPTOR: 'rp_raptor',
             SERVICE: 'sleep 1000'}
_LOOK = 0.2
"""Seconds between two looks for a process, or at whether the round takes too long."""


_TRY_AGAIN = 0.5
"""Seconds until the next application begins after one to which the session was refused."""


class Round:
    """Has the events of a plan happen to a run, and starts the next application when one was killed.

    `span` is the time that a round takes when nothing happens, in seconds.
    """

    def __init__(self, run: Run, plan: Plan, span: float) -> None:
        self.happened: list[Event] = []
        """The events that have found a process."""
        self.closed_before = False
        """Whether an application was killed while it closed the session, so that the last one may have had another."""
        self._span = span
        self._run = run
        self._plan = plan
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._stopped: dict[int, str] = {}
        self._excused = False   # whether the application may be refused its session, as something happened to the hub

    def play(self) -> None:
        """Return when an application has closed the session; LossError if none can, or not in time."""
        self._run.prepare()
        self._begin_application()
        start = time.monotonic()
        for event in self._plan.events:
            moment = start + event.at * self._span
            self._later(moment, partial(self._happen, event, moment + self._span))
        while not self._is_closed():
            if time.monotonic() > self._run.deadline:
                raise HangError(f'hang: {self._stacks()}')
            self._do_due()
        for pid in list(self._stopped):
            self._go_on(pid)

    def _stacks(self) -> str:
        """Where the application hangs, which it writes when it gets SIGUSR1."""
        application = self._run.application
        if application is None:
            return 'there is no application'
        self._run.signal(application.pid, signal.SIGUSR1)
        application.listens(time.monotonic() + _LOOK)
        return application.last_words()

    def _begin_application(self) -> None:
        """Start an application, which is told everything that it has to do at once."""
        application = self._run.launch_application()
        self._excused = HUB in self._stopped.values()
        if not self.closed_before:
            application.tell(str(self._run.size.tasks))
        application.tell('close')

    def _is_closed(self) -> bool:
        """Listen until something else is due; whether the application has ended as it should."""
        wait = min(self._due[0][0] if self._due else self._run.deadline, time.monotonic() + _LOOK)
        application = self._run.application
        if application is None:
            time.sleep(max(0.0, wait - time.monotonic()))
            return False
        if not application.listens(wait) or not application.silent:
            return False
        try:
            application.wait(self._run.deadline)
        except LossError:
            if not self._excused or application.has_said('open'):
                raise
            self._run.kill_application()
            self._later(time.monotonic() + _TRY_AGAIN, self._begin_application)
            return False
        return True

    def _do_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def _later(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), action))

    def _happen(self, event: Event, until: float) -> None:
        """Have an event happen as soon as there is a process for it; if there is none until then, it does not."""
        if self._happens(event):
            self.happened.append(event)
            self._excused = self._excused or event.victim == HUB
        elif time.monotonic() < until:
            self._later(time.monotonic() + _LOOK, partial(self._happen, event, until))

    def _happens(self, event: Event) -> bool:
        if event.victim == JOB:
            return self._end_job(event)
        if event.victim == SUBMISSION and not self._run.running('/sbatch'):
            return False
        pid = self._victim(event)
        if pid is None:
            return False
        if event.victim in _PROGRAMS or event.action != KILL:
            return self._signal(pid, event)
        self._kill_application(event.pause * self._span)
        return True

    def _victim(self, event: Event) -> int | None:
        if event.victim in _PROGRAMS:
            found = self._run.running(_PROGRAMS[event.victim])
            return found[int(event.pick * len(found))] if found else None
        return self._run.application.pid if self._run.application is not None else None

    def _end_job(self, event: Event) -> bool:
        """Cancel a job that runs, or put it into the queue again."""
        slurm = self._run.batch
        assert slurm is not None
        running = sorted(job for job, state in slurm.jobs().items() if state == 'RUNNING')
        if not running:
            return False
        job = running[int(event.pick * len(running))]
        slurm.run(*(['scancel', job] if event.action == CANCEL else ['scontrol', 'requeue', job]), check=False)
        if event.action != CANCEL:
            self._start_soon(slurm, job)
        return True

    def _start_soon(self, slurm: SlurmCluster, job: str) -> None:
        """Start a requeued job when nothing is left of its first run; it would start two minutes later."""
        if processes_with(f'slurmstepd: [{job}.'):
            self._later(time.monotonic() + _LOOK, partial(self._start_soon, slurm, job))
        else:
            slurm.run('scontrol', 'update', f'jobid={job}', 'starttime=now+3', check=False)

    def _signal(self, pid: int, event: Event) -> bool:
        if event.action == KILL:
            return self._run.signal(pid, signal.SIGKILL)
        if not self._run.signal(pid, signal.SIGSTOP):
            return False
        self._stopped[pid] = event.victim
        self._later(time.monotonic() + event.pause * self._span, partial(self._go_on, pid))
        return True

    def _go_on(self, pid: int) -> None:
        self._stopped.pop(pid, None)
        self._run.signal(pid, signal.SIGCONT)

    def _kill_application(self, pause: float) -> None:
        """Another application comes after some seconds."""
        application = self._run.application
        assert application is not None
        self._run.kill_application()
        self.closed_before = self.closed_before or application.has_said(str(self._run.size.tasks))
        self._later(time.monotonic() + pause, self._begin_application)

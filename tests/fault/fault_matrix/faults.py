"""The faults: what each of them needs, and what it does to a run."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fault_matrix import workload
from fault_matrix.disk import full_disk
from fault_matrix.run import Plan, Run, Size

EMBEDDED, MONGODB, SERVED = ('hub',), ('mongodb',), ('rp-hub',)
HUB = EMBEDDED + SERVED
BACKENDS = EMBEDDED + MONGODB + SERVED
UNRELIABLE_HUB = str(Path(__file__).with_name('unreliable_hub.py'))


@dataclass(frozen=True)
class Fault:
    """Something that happens to a run; `inject` returns when it is over."""

    inject: Callable[[Run], None]
    words: str
    plan: Callable[[Size], Plan] = lambda _: Plan()
    spawner: str = 'SIMULATED'
    agent_dies: bool = False
    seconds: float = 10.0
    backends: tuple[str, ...] = BACKENDS
    small_disk: bool = False
    """Whether the session directory is to be on a file system of its own."""


def nothing(_: Run) -> None:
    """For comparison."""


def kill_hub(run: Run) -> None:
    _kill(run.hub())


def kill_application(run: Run) -> None:
    run.kill_application()
    run.start_application()


def kill_application_and_hub(run: Run) -> None:
    hub = run.hub()
    run.kill_application()
    _kill(hub)
    run.start_application()


def kill_agent(run: Run) -> None:
    """There are two: the application replaces those that were killed before."""
    _kill(run.agent(of=2))


def stop(whom: Callable[[Run], int]) -> Callable[[Run], None]:
    """A fault that stops a process for a while."""
    def inject(run: Run) -> None:
        pid = whom(run)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(run.size.seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
    return inject


def disturb(run: Run) -> None:
    """Have the hub begin with whatever it does to messages."""
    os.kill(run.hub(), signal.SIGUSR1)
    time.sleep(run.size.seconds)


def fill_disk(run: Run) -> None:
    with full_disk(run.sessions):
        time.sleep(run.size.seconds)


def kill_service(run: Run) -> None:
    _kill(run.service_pid())
    _without_service(run)


def kill_service_and_hub(run: Run) -> None:
    """Nobody starts the hub again before the service is there."""
    _kill(run.service_pid())
    _kill(run.hub())
    _without_service(run)


def _without_service(run: Run) -> None:
    time.sleep(run.size.seconds)
    run.service.start()


def kill_database(run: Run) -> None:
    run.database.kill()
    run.database.start()


def cut_connections(run: Run) -> None:
    _for_a_while(run, run.database.relay.cut)


def hold_messages(run: Run) -> None:
    _for_a_while(run, run.database.relay.hold)


def _for_a_while(run: Run, switch: Callable[[bool], None]) -> None:
    switch(True)
    try:
        time.sleep(run.size.seconds)
    finally:
        switch(False)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):   # what has ended by itself needs no more
        os.kill(pid, signal.SIGKILL)


def _unreliable(what: str) -> Fault:
    def plan(size: Size) -> Plan:
        return Plan(hub_command=[sys.executable, UNRELIABLE_HUB, what, str(size.seconds)])

    words = {'drop': 'all messages between the hub and others are lost', 'delay': 'all are late, each by another time',
             'repeat': 'all arrive twice', 'mix': 'each is lost, late, repeated or neither'}
    return Fault(disturb, words[what], plan, backends=HUB)


FAULTS = {
    'none': Fault(nothing, 'nothing happens'),
    'kill-hub': Fault(kill_hub, 'SIGKILL for the hub', backends=HUB),
    'kill-application': Fault(kill_application, 'SIGKILL for the application, then another one attaches'),
    'kill-application-and-hub': Fault(kill_application_and_hub, 'both get SIGKILL, then another application attaches',
                                      backends=HUB),
    'kill-agent': Fault(kill_agent, 'SIGKILL for one of two agents, whose tasks are restartable but for a few',
                        lambda _: Plan(pilots=2, restartable=True), workload.REAL, agent_dies=True),
    'drop-messages': _unreliable('drop'),
    'delay-messages': _unreliable('delay'),
    'repeat-messages': _unreliable('repeat'),
    'mix-messages': _unreliable('mix'),
    'stop-application': Fault(stop(Run.application_pid), 'SIGSTOP for the application, SIGCONT later', seconds=30.0),
    'stop-hub': Fault(stop(Run.hub), 'SIGSTOP for the hub, SIGCONT later', seconds=30.0, backends=HUB),
    'stop-agent': Fault(stop(Run.agent), 'SIGSTOP for the agent, SIGCONT later', spawner=workload.REAL,
                        seconds=30.0),
    'kill-service': Fault(kill_service, 'SIGKILL for the stand-alone hub, which is started again later',
                          backends=SERVED),
    'kill-service-and-hub': Fault(kill_service_and_hub, 'the same, and SIGKILL for the hub of the session',
                                  backends=SERVED),
    'stop-service': Fault(stop(Run.service_pid), 'SIGSTOP for the stand-alone hub, SIGCONT later', seconds=30.0,
                          backends=SERVED),
    'fill-disk': Fault(fill_disk, 'no space is left in the session directory for a while', backends=HUB,
                       small_disk=True),
    'kill-database': Fault(kill_database, 'SIGKILL for the database, which is started again', backends=MONGODB),
    'stop-database': Fault(stop(lambda run: run.database.pid), 'SIGSTOP for the database, SIGCONT later', seconds=30.0,
                           backends=MONGODB),
    'cut-connections': Fault(cut_connections, 'all connections to the database end, and none is accepted for a while',
                             backends=MONGODB),
    'hold-messages': Fault(hold_messages, 'all messages to and from the database are held back', backends=MONGODB),
}

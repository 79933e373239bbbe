"""The agent's component for RAPTOR with everything around it played by the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rp_agent.components.stage import Flow, Owner
from rp_agent.raptor.component import Raptor
from rp_agent.task import AgentTask
from rp_api import constants as c
from rp_api import states
from rp_profiling.write.tracer import Tracer

PILOT = 'pilot.0000'
ACCESS = {'address': 'ipc:///x', 'server': 's', 'public': 'p', 'secret': 'q'}
HOW = 'it was done (exit code 0)'


def a_task(uid: str = 'task.0', **description: Any) -> AgentTask:
    """A function for a master, unless the description says otherwise."""
    description = {'mode': c.TASK_FUNCTION, 'function': 'f', 'raptor_id': 'raptor.0'} | description
    return AgentTask(uid, description, PILOT, f'/pilot/{uid}')


def tasks(count: int, **description: Any) -> list[AgentTask]:
    return [a_task(f'task.{number}', **description) for number in range(count)]


def a_master(uid: str = 'raptor.0') -> AgentTask:
    return a_task(uid, mode=c.RAPTOR_MASTER, executable='/bin/master', raptor_id='')


def a_worker(uid: str = 'worker.0', **description: Any) -> AgentTask:
    return a_task(uid, mode=c.RAPTOR_WORKER, executable='/bin/worker', **description)


class RaptorPorts(Flow, Owner):
    """Notes what the component does; time passes when the test says so."""

    def __init__(self) -> None:
        self.environment: Mapping[str, str] = {}
        self.sent: list[tuple[Any, ...]] = []
        self.refused: list[str] = []
        self.later: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.made: list[AgentTask] = []
        self.known: set[str] = set()
        self.staged: list[AgentTask] = []
        self.gone: list[AgentTask] = []
        self.cancelled: list[str] = []
        self.removed: list[tuple[str, str]] = []
        self.up: dict[str, Mapping[str, str]] = {}
        self.waiting: list[tuple[str, str, str]] = []
        self.scheduled: list[AgentTask] = []
        self.states: dict[str, list[str]] = {}
        self.raptor = Raptor('raptor', Tracer(None, 'raptor'), self, self, self, {'nodes': 1})

    def send(self, master: bytes, *message: Any) -> None:
        assert master, 'sent to nobody'
        self.sent.append((master, *message))

    def forget(self, master: bytes) -> None:
        """Nothing is kept."""

    def refuse(self, why: object) -> None:
        self.refused.append(str(why))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        assert delay > 0
        self.later.append((callback, args))

    def make(self, uid: str, description: dict[str, Any]) -> AgentTask | None:
        return None if uid in self.known else AgentTask(uid, description, PILOT, f'/pilot/{uid}')

    def close(self) -> None:
        """There is no link."""

    def put(self, tasks: list[AgentTask]) -> None:
        self.made += tasks

    def admit(self, tasks: list[AgentTask]) -> None:
        self.scheduled += tasks

    def conclude(self, tasks: list[AgentTask]) -> None:
        self.staged += tasks

    def leave(self, tasks: list[AgentTask]) -> None:
        self.gone += self.raptor.left(self.raptor.freed(tasks))

    def cancel(self, tasks: Sequence[AgentTask]) -> None:
        self.cancelled += [task.uid for task in tasks]

    def advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        for task in tasks:
            self.states.setdefault(task.uid, []).append(state)

    def master_up(self, task: AgentTask, access: Mapping[str, str]) -> None:
        self.up[task.uid] = access

    def waits(self, tasks: Sequence[AgentTask], kind: str, text: str, state: str = states.AGENT_SCHEDULING) -> None:
        self.waiting += [(task.uid, text, state) for task in tasks]

    def remove_leftovers(self, master: str, address: str) -> None:
        self.removed.append((master, address))

    # what the test does

    def take(self, *new: AgentTask) -> None:
        """Tasks come from the input stagers."""
        self.raptor.put(list(new))
        self.raptor.check()

    def say(self, uid: str, operation: str, *arguments: Any) -> None:
        """A master says something."""
        self.raptor.receive(uid.encode(), operation, list(arguments))
        self.raptor.check()

    def start(self, uid: str = 'raptor.0', credit: int = 0) -> AgentTask:
        """A master comes up."""
        task = a_master(uid)
        self.take(task)
        self.say(uid, 'hello', uid, 7, ACCESS)
        if credit:
            self.say(uid, 'credit', credit)
        return task

    def end(self, task: AgentTask, **values: Any) -> None:
        """The agent is done with a task that it has executed."""
        for name, value in ({'exit_code': 0, 'target_state': states.DONE} | values).items():
            setattr(task, name, value)
        self.leave([task])
        self.raptor.check()

    def pass_time(self) -> None:
        """Everything that was to happen later happens."""
        later, self.later[:] = list(self.later), []
        for callback, args in later:
            callback(*args)
        self.raptor.check()

    def messages(self, operation: str, uid: str = '') -> list[list[Any]]:
        """The arguments of what was sent, to that master or to all."""
        return [list(rest) for master, name, *rest in self.sent
                if name == operation and uid.encode() in (b'', master)]

    def given(self, uid: str = '') -> list[str]:
        """The uids of the tasks that a master got, or all masters."""
        return [given for _, uids, *_ in self.messages('tasks', uid) for given in uids]

    def ended(self) -> dict[str, tuple[str | None, str | None]]:
        """State and exception of the tasks that have left without having been executed."""
        return {task.uid: (task.target_state, task.exception) for task in self.gone}

"""The gate at the entrance of an agent: tasks wait there, as received, until their dependencies have ended.

The agent passes each end of a task to `ended`. Tasks that it does not have, and whose end it does not remember, are
followed through the coordinator. So nothing here needs the application.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

from rp_agent.dependencies.ends import End, ending
from rp_agent.dependencies.graph import Graph, Waiting
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import NewTask, Update
from rp_api.coordination.outcome import PILOT
from rp_api.description.after import after as checked
from rp_api.description.task import AFTER, INPUT_STAGING
from rp_api.errors import sentence
from rp_api.loop.event_loop import Loop
from rp_api.record import CastError
from rp_api.staging.location import other_task
from rp_api.wire import codec
from rp_profiling.write.tracer import Tracer

_DONE = End(states.DONE)
_PILOT = 'pilot:///'


class Dependents(Protocol):
    """The agent, as the gate uses it."""

    def has(self, uid: str) -> bool: ...       # now, besides those in the gate
    def is_done(self, uid: str) -> bool: ...   # of a task that the agent had
    def follow(self, uids: Sequence[str]) -> None: ...               # pass their outcomes to `followed`
    def other_sandbox(self, pilot: str) -> str: ...                  # of another pilot; empty if it is this one
    def released(self, new: list[NewTask]) -> None: ...              # their conditions are met
    def doomed(self, tasks: list[tuple[NewTask, str]]) -> None: ...  # cannot be met any more, for these reasons


class DependencyGate:
    """The tasks of an agent that wait for others."""

    def __init__(self, agent: Dependents, loop: Loop, tracer: Tracer) -> None:
        self._agent = agent
        self._loop = loop
        self._tracer = tracer
        self._graph = Graph()
        self._unknown: list[str] = []
        self._released: dict[str, Waiting] = {}   # to be passed on in the next turn
        self._doomed: dict[str, tuple[Waiting, str]] = {}

    def __len__(self) -> int:
        return len(self._graph) + len(self._released) + len(self._doomed)

    def __contains__(self, uid: object) -> bool:
        return uid in self._graph or uid in self._released or uid in self._doomed

    def descriptions(self) -> Iterator[dict[str, Any]]:
        """Return the descriptions of all tasks that may still run."""
        return (codec.unpack(waiting.description) for waiting in chain(self._graph, self._released.values()))

    def put(self, tasks: Iterable[NewTask]) -> None:
        """Take tasks with dependencies; those whose conditions are met are released in the next turn."""
        new = []
        for uid, given in tasks:
            description = {name: value for name, value in given.items() if name != AFTER}
            try:
                after = checked(given[AFTER])
                if INPUT_STAGING in description:
                    description[INPUT_STAGING] = on_this_pilot(description, frozenset(after))
            except Exception as error:   # the client has checked it, but may be broken
                why = f'its `after` is not {error}' if isinstance(error, CastError) else f'{AFTER}: {sentence(error)}'
                self._pass_on([], [(Waiting(uid, codec.pack(description)), f'{uid} was not run: {why}')])
                continue
            new.append((uid, after, codec.pack(description)))
        self._tracer.record_bulk('dependency_wait', [uid for uid, _, _ in new])
        released, doomed = self._graph.add(new, self._end_of)
        unknown, self._unknown = self._unknown, []
        if unknown:
            self._agent.follow(unknown)
        self._pass_on(released, doomed)

    def ended(self, tasks: Sequence[AgentTask]) -> set[str]:
        """Resolve the conditions on tasks that have left the agent with a final state; return those that others follow.

        The others are released, or cancelled, in the next turn.
        """
        followed = {task.uid for task in tasks if self._graph.dependents(task.uid)}
        self._pass_on(*self._graph.settle([(task.uid, _DONE if task.target_state == states.DONE else _end(task))
                                           for task in tasks]))
        return followed

    def moved(self, uids: Iterable[str]) -> None:
        """Follow tasks that have left the agent and run elsewhere."""
        wanted = [uid for uid in uids if self._graph.dependents(uid)]
        if wanted:
            self._agent.follow(wanted)

    def followed(self, outcomes: Iterable[Update]) -> None:
        """Resolve the conditions on tasks whose outcomes the coordinator knows."""
        ends, missing = [], []
        places: dict[Waiting, dict[str, str]] = {}   # one task may have input of very many others
        for uid, state, info in outcomes:
            info = info or {}
            ends.append((uid, _DONE if state == states.DONE else End(state, ending(uid, state, info))))
            if state == states.DONE and info.get(PILOT) == '':   # it did not run: its result is from the cache
                missing += self._without_files(uid)
            place = self._agent.other_sandbox(info.get(PILOT) or '')
            for waiting in self._graph.dependents(uid) if place else ():
                places.setdefault(waiting, {})[uid] = place
        for waiting, others in places.items():
            description = codec.unpack(waiting.description)
            if INPUT_STAGING in description:
                description[INPUT_STAGING] = elsewhere(description, others)
                waiting.description = codec.pack(description)
        ends += [(waiting.uid, End(states.CANCELED, ending(waiting.uid, states.CANCELED, {'exception': reason})))
                 for waiting, reason in missing]
        released, doomed = self._graph.settle(ends)
        self._pass_on(released, [*doomed, *missing])

    def _without_files(self, uid: str) -> list[tuple[Waiting, str]]:
        """Remove the tasks that need files of a task without a sandbox, and return them with the reason."""
        wanted = [waiting.uid for waiting in self._graph.dependents(uid)
                  if takes_from(codec.unpack(waiting.description), uid)]
        return [(waiting, f'{waiting.uid} was not run: it needs files of {uid}, which has no sandbox, as its result is '
                 'from the cache') for waiting in self._graph.take(wanted)]

    def take(self, uids: Iterable[str]) -> list[NewTask]:
        """Remove those of these tasks that wait, and return them."""
        wanted = list(uids)
        released = [self._released.pop(uid) for uid in wanted if uid in self._released]
        return [_whole(waiting) for waiting in (*self._graph.take(wanted), *released)]

    def take_all(self) -> list[NewTask]:
        """Remove all tasks, and return them."""
        return self.take([waiting.uid for waiting in chain(self._graph, self._released.values())])

    def _end_of(self, uid: str) -> End | None:
        if uid in self._released or uid in self._doomed or self._agent.has(uid):
            return None
        if self._agent.is_done(uid):
            return _DONE
        self._unknown.append(uid)
        return None

    def _pass_on(self, released: Iterable[Waiting], doomed: Iterable[tuple[Waiting, str]]) -> None:
        if not self._released and not self._doomed and (released or doomed):
            self._loop.call_soon(self._leave)   # an end is reported while components work on other tasks
        self._released.update([(waiting.uid, waiting) for waiting in released])
        self._doomed.update((waiting.uid, (waiting, reason)) for waiting, reason in doomed)

    def _leave(self) -> None:
        released, self._released = self._released, {}
        doomed, self._doomed = self._doomed, {}
        if doomed:
            self._agent.doomed([(_whole(waiting), reason) for waiting, reason in doomed.values()])
        if released:
            self._tracer.record_bulk('dependency_ok', list(released))
            self._agent.released([_whole(waiting) for waiting in released.values()])


def _whole(waiting: Waiting) -> NewTask:
    """Return the uid and the description of a task, which needs it no more."""
    description = waiting.description
    waiting.description = b''
    return waiting.uid, codec.unpack_dict(description)


def _end(task: AgentTask) -> End:
    state = task.target_state or states.FAILED
    return End(state, ending(task.uid, state, {'exception': task.exception, 'exit_code': task.exit_code}))


def on_this_pilot(description: Mapping[str, Any], uids: Collection[str]) -> list[dict[str, Any]]:
    """Return the input directives of a task, with the sandboxes of these tasks looked for on this pilot."""
    return [{**directive, 'source': f'{_here(other[0])}{other[1]}'}
            if (other := other_task(directive['source'])) and other[0] in uids else directive
            for directive in description[INPUT_STAGING]]


def elsewhere(description: Mapping[str, Any], places: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the input directives of a task, with the sandboxes of others looked for in those of their pilots.

    `places` has the sandbox of the pilot by uid of the task.
    """
    return [{**directive, 'source': f'file://{places[other[0]]}/{other[0]}/{other[1]}'}
            if (other := _task_here(directive['source'])) and other[0] in places else directive
            for directive in description[INPUT_STAGING]]


def takes_from(description: Mapping[str, Any], uid: str) -> bool:
    """Return whether a task has input from the sandbox of another one, which is looked for on this pilot."""
    return any(directive['source'].startswith(_here(uid)) for directive in description.get(INPUT_STAGING, ()))


def _here(uid: str) -> str:
    return f'{_PILOT}{uid}/'


def _task_here(source: str) -> tuple[str, str] | None:
    """Return the uid and the path of a source that may be in the sandbox of a task on this pilot."""
    uid, slash, path = source.removeprefix(_PILOT).partition('/')
    return (uid, path) if slash and source.startswith(_PILOT) else None

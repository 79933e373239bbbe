"""The gate before the scheduler: tasks wait in AGENT_SCHEDULING until everything they need is provided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from reprlib import repr as short
from typing import NamedTuple

from rp_agent.components.stage import Flow, Owner, Stage, Tasks
from rp_agent.task import VARIABLES, AgentTask, has_needs
from rp_api import states
from rp_api.component import Component
from rp_api.errors import DescriptionError, sentence
from rp_api.failures.kinds import DEPENDENCY, DESCRIPTION
from rp_api.reasons.kinds import ENVIRONMENT as OF_ENVIRONMENT
from rp_api.reasons.kinds import SERVICE as OF_SERVICE
from rp_api.reasons.kinds import STEP
from rp_profiling.write.tracer import Tracer

ABSENCE_DELAY_S = 4.0
"""Seconds after which users are told that nothing provides what a task waits for."""

ENVIRONMENT = 'environment'
SERVICE = 'service'
PILOT = 'pilot'
"""Kinds of needs; that of the kind PILOT is `services`, the services of the pilot's description."""

_ABSENT = {ENVIRONMENT: 'nothing builds it', SERVICE: 'nothing starts it', PILOT: 'nothing starts them'}

Variables = Callable[[AgentTask], Mapping[str, str]]
"""Returns the variables that a provider sets in the environment of a task, called when the task leaves the gate.

Raises DescriptionError if the task cannot run with what is provided.
"""


class Need(NamedTuple):
    """Something that a task needs before it can be scheduled: its kind, and its name among those of that kind."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f'{self.kind} {self.name}'.rstrip()


@dataclass(slots=True)
class _Provided:
    """The state of one need: provided with its variables, failed with a reason, or neither."""

    ready: bool = False
    variables: Variables | None = None
    reason: str = ''
    detail: str = ''
    text: str = ''
    absent: bool = False
    watched: bool = False


class Gate(Component, Stage):
    """Holds tasks until their needs are provided.

    A need may be provided, withdrawn, or fail, at any time: before tasks wait for it, meanwhile, and afterwards.
    """

    order = 5

    def __init__(self, uid: str, tracer: Tracer, flow: Flow, owner: Owner, call_later: Callable[..., object]) -> None:
        super().__init__(uid, tracer)
        self.advanced = flow.advanced
        self._call_later = call_later
        self._flow = flow
        self._owner = owner
        self._provided: dict[Need, _Provided] = {}
        self._common: dict[Need, Callable[[AgentTask], bool]] = {}
        self._waiting: dict[str, AgentTask] = {}
        self._reported: dict[str, str] = {}
        """The description of the need that each waiting task was last reported to wait for."""

    def __contains__(self, uid: object) -> bool:
        return uid in self._waiting

    @property
    def held_back(self) -> int:
        """Number of tasks that wait."""
        return len(self._waiting)

    @property
    def expects(self) -> bool:
        """True if an environment is being built."""
        return any(need.kind == ENVIRONMENT and known.text and not known.ready and not known.reason
                   for need, known in self._provided.items())

    # tasks

    def admitted(self, tasks: Tasks) -> Tasks:
        """Take tasks that have needs, or all while there is a common one; return the others."""
        needy = tasks if self._common else [task for task in tasks if has_needs(task)]
        if needy:
            tasks = [] if len(needy) == len(tasks) else [task for task in tasks if not has_needs(task)]
            self.put(needy)
        return tasks

    def put(self, tasks: list[AgentTask]) -> None:
        """Take tasks in AGENT_SCHEDULING_PENDING; those that need nothing more go on at once."""
        tasks = self._valid(tasks)
        self._waiting.update((task.uid, task) for task in tasks)
        self._try(tasks)
        new = [task for task in tasks if task.uid in self._waiting]
        if new:
            self.received(new)
            self.advance(new, states.AGENT_SCHEDULING)
            self._report(new)

    def recheck(self, task: AgentTask) -> bool:
        """Return whether everything is still there for a task that has left the gate; its variables are set anew."""
        try:
            missing = self._missing(task)
            if missing is None:
                self._set_variables(task)
        except DescriptionError:   # it fails when it is put again
            return False
        return missing is None

    def cancel(self, uids: Iterable[str]) -> None:
        """Cancel the waiting ones of these tasks; ignore all others."""
        self._give_up([self._waiting[uid] for uid in uids if uid in self._waiting],
                      'cancelled while it waited for its prerequisites')

    def take_back(self, task: AgentTask) -> None:
        """Forget a task, if it waits here."""
        self._waiting.pop(task.uid, None)
        self._reported.pop(task.uid, None)

    def stop(self, reason: str) -> None:
        """Cancel all waiting tasks."""
        self._give_up(list(self._waiting.values()), reason)

    # needs

    def require(self, need: Need, concerns: Callable[[AgentTask], bool]) -> None:
        """Make something a need of all further tasks for which `concerns` is true, until it is provided."""
        self._common[need] = concerns

    def expect(self, need: Need, text: str) -> None:
        """Set the text that tells users why tasks still wait for this, such as `is being built`; undo a failure."""
        known = self._of(need)
        known.text, known.reason, known.detail, known.absent = text, '', '', False
        self._report(self._waiting_for(need))

    def provide(self, need: Need, variables: Variables | None = None) -> None:
        """Release tasks that need this, with the variables of the provider in their environment."""
        known = self._of(need)
        known.ready, known.variables, known.reason, known.text, known.absent = True, variables, '', '', False
        waiting = self._waiting_for(need)
        self._common.pop(need, None)
        self._try(waiting)

    def withdraw(self, need: Need, text: str = '') -> None:
        """Make later tasks wait for this again, also if it had failed."""
        known = self._of(need)
        known.ready, known.text, known.reason, known.absent = False, text, '', False
        self._report(self._waiting_for(need))

    def fail(self, need: Need, reason: str, detail: str) -> None:
        """Fail the tasks that wait for this, and later ones until it is provided.

        Args:
            need: The need.
            reason: The error, one sentence, which becomes the tasks' `exception`.
            detail: The explanation for the user, such as the last lines of an output.
        """
        known = self._of(need)
        known.ready, known.reason, known.detail = False, reason, detail
        self._try(self._waiting_for(need))

    def _valid(self, tasks: list[AgentTask]) -> list[AgentTask]:
        """Return the tasks whose needs are names; the others fail."""
        bad = []
        for task in tasks:
            try:
                needs_of(task)
            except DescriptionError as error:
                task.fail(sentence(error), f'{task.uid} cannot wait for its prerequisites', DESCRIPTION)
                bad.append(task)
        if bad:
            self._flow.leave(bad)
        return [task for task in tasks if task not in bad] if bad else tasks

    def _of(self, need: Need) -> _Provided:
        return self._provided.setdefault(need, _Provided())

    def _needs(self, task: AgentTask) -> list[Need]:
        return [*(need for need, concerns in self._common.items() if concerns(task)), *needs_of(task)]

    def _waiting_for(self, need: Need) -> list[AgentTask]:
        return [task for task in self._waiting.values() if need in self._needs(task)]

    def _missing(self, task: AgentTask) -> Need | None:
        """Return the first need of a task that is not provided."""
        return next((need for need in self._needs(task) if not self._of(need).ready), None)

    def _try(self, tasks: Iterable[AgentTask]) -> None:
        """Release the tasks that miss nothing, fail those that will always miss something, report the others."""
        ready: list[AgentTask] = []
        failed: list[AgentTask] = []
        others: list[AgentTask] = []
        for task in tasks:
            missing = self._missing(task)
            if missing is None:
                (ready if self._can_go(task) else failed).append(task)
            elif self._of(missing).reason:
                task.fail(self._of(missing).reason, self._of(missing).detail, DEPENDENCY)
                failed.append(task)
            else:
                others.append(task)
        self._leave(ready, failed)
        self._report([task for task in others if task.uid in self._reported])

    def _leave(self, ready: list[AgentTask], failed: list[AgentTask]) -> None:
        waited = [task for task in ready if task.uid in self._reported]
        for task in (*ready, *failed):
            self._waiting.pop(task.uid, None)
            self._reported.pop(task.uid, None)
        if waited:
            self._owner.waits(waited, STEP, '')
        if ready:
            self._flow.schedule(ready)
        if failed:
            self._flow.leave(failed)

    def _can_go(self, task: AgentTask) -> bool:
        try:
            self._set_variables(task)
        except DescriptionError as error:
            task.fail(sentence(error), f'{task.uid} cannot use its prerequisites', DESCRIPTION)
        except Exception as error:   # fails this task only
            task.broke(error, 'setting the variables of what it needs')
        return task.target_state is None

    def _set_variables(self, task: AgentTask) -> None:
        variables: dict[str, str] = {}
        for need in needs_of(task):
            provider = self._of(need).variables
            if provider is not None:
                variables |= provider(task)
        if variables:
            task.extra[VARIABLES] = variables

    def _report(self, tasks: Iterable[AgentTask]) -> None:
        """Tell the application what these tasks wait for, if it is something new."""
        by_text: dict[str, list[AgentTask]] = {}
        kinds: dict[str, str] = {}
        for task in tasks:
            missing = self._missing(task)
            assert missing is not None, f'{task.uid} waits for nothing'
            known = self._of(missing)
            text = known.text or (_ABSENT[missing.kind] if known.absent else '')
            told = f'{missing} ({text})' if text else str(missing)
            kinds[told] = OF_ENVIRONMENT if missing.kind == ENVIRONMENT else OF_SERVICE
            if not text and not known.watched:
                known.watched = True
                self._call_later(ABSENCE_DELAY_S, self._look_for, missing)
            if self._reported.get(task.uid) != told:
                self._reported[task.uid] = told
                by_text.setdefault(told, []).append(task)
        for told, group in by_text.items():
            self._owner.waits(group, kinds[told], told)

    def _look_for(self, need: Need) -> None:
        """Tell the application that nothing provides a need, if that is so and tasks still wait for it."""
        known, waiting = self._of(need), self._waiting_for(need)
        known.watched = False
        if waiting and not (known.ready or known.text or known.reason or known.absent):
            known.absent = True
            more = f' and {len(waiting) - 1} more wait' if len(waiting) > 1 else ' waits'
            self._owner.notice(f'{waiting[0].uid}{more} for {need}, and {_ABSENT[need.kind]}')
            self._report(waiting)

    def _give_up(self, tasks: list[AgentTask], reason: str) -> None:
        for task in tasks:
            task.cancel(reason)
        self._leave([], tasks)


def needs_of(task: AgentTask) -> list[Need]:
    """Return the needs of a task, in the order in which it waits for them.

    Raises:
        DescriptionError: They are no names.
    """
    environment, services = task.description['named_env'], task.description['services']
    if environment and not isinstance(environment, str):
        raise DescriptionError(f'named_env is {short(environment)}, it must be a name')
    if not isinstance(services or [], list) or not all(isinstance(name, str) for name in services or ()):
        raise DescriptionError(f'services is {short(services)}, it must be a list of names')
    needs = [Need(SERVICE, name) for name in services or ()]
    if environment:
        needs.insert(0, Need(ENVIRONMENT, environment))
    return needs

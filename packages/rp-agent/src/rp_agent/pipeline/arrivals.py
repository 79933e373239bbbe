"""Takes tasks that arrive at an agent: makes their records, and holds those with dependencies until these have ended.

Tasks come from the coordinator, and from parts of the agent, whose tasks the coordinator does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from rp_agent import __version__, sandbox
from rp_agent.calls import Call, Calls, answer_task
from rp_agent.components.build import base_environment
from rp_agent.components.isolation import unless
from rp_agent.components.stage import Owner, Tasks
from rp_agent.executor.launching.text_notices import TextNotices
from rp_agent.pipeline.pipeline import Pipeline
from rp_agent.pipeline.returns import Returns
from rp_agent.pipeline.runs import Runs
from rp_agent.reporting.coordinator_link import CoordinatorLink
from rp_agent.task import DEFAULTS, HISTORY, AgentTask, Description, is_call
from rp_api import states
from rp_api.batch import RowDescription
from rp_api.constants import AGENT_SERVICE, TASK_SERVICE
from rp_api.coordination.contract import BULK, NewTask, Update
from rp_api.description.task import AFTER, ARGS, CODE, FUNCTION, KWARGS, RETRY_WITH
from rp_api.failures.kinds import DEPENDENCY, DESCRIPTION
from rp_api.loop.event_loop import Loop
from rp_api.system import heap
from rp_api.task_modes import PILOT_RPC, SERVICE_MODES
from rp_api.uid_set import UidSet
from rp_api.wire import codec
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:
    from rp_agent.dependencies.gate import DependencyGate

_SERVICES = frozenset({TASK_SERVICE, AGENT_SERVICE})

_FOR_WORKERS = frozenset({ARGS, CODE, FUNCTION, KWARGS})
"""Attributes that only workers read."""

_OWN = 'agent.own'

HIGH_WATER_TASKS = 1 << 16
"""High-water mark: tasks in the agent at which it stops the delivery, unless the pilot is large."""

PER_CORE = 8
"""High-water mark per core on a large pilot: tasks that keep it busy until more arrive."""

TRIM_TASKS, TRIM_SHARE, TRIM_DELAY = 1024, 16, 2.0
"""The agent trims its heap so many seconds after all but this share of at least so many tasks have left."""


class Intake:
    """The record of tasks that have arrived or were cancelled before, and the flow control of their delivery.

    `hold(on)` is called to suspend and resume the delivery of tasks. It does not hold up commands, which can therefore
    overtake tasks.
    """

    def __init__(self, hold: Callable[[bool], None], cores: int) -> None:
        self._hold = hold
        self._high = max(HIGH_WATER_TASKS, PER_CORE * cores)
        self.holding = False
        """True if the delivery of tasks is suspended."""
        self._seen = UidSet()
        self.awaited: set[str] = set()
        """Tasks that were cancelled and have not arrived."""
        self._not_done = UidSet()   # tasks that have arrived, and ended otherwise or went elsewhere

    def new(self, tasks: Sequence[NewTask]) -> list[NewTask]:
        """Return the tasks that have not arrived before: a coordinator may deliver a task again."""
        return list(compress(tasks, self._seen.add_each([uid for uid, _ in tasks])))

    def has_seen(self, uid: str) -> bool:
        """Return whether a task of that uid has arrived."""
        return uid in self._seen

    def not_done(self, uids: Iterable[str]) -> None:
        """Remember tasks that have left the agent, but are not DONE here."""
        self._not_done.update(uids)

    def is_done(self, uid: str) -> bool:
        """Return whether a task that the agent does not have now is DONE here."""
        return uid in self._seen and uid not in self._not_done

    def cancelled(self, uid: str) -> bool:
        """Return whether a task was cancelled before it arrived, once."""
        found = uid in self.awaited
        self.awaited.discard(uid)
        return found

    def cancel(self, uids: Sequence[str]) -> list[str]:
        """Remember the cancelled tasks that have not arrived yet, and return them."""
        absent = [uid for uid in uids if uid not in self._seen]
        self.awaited.update(absent)
        return absent

    def in_hand(self, tasks: int) -> None:
        """Suspend the delivery at the high-water mark, and resume it at half of that.

        `tasks` run or wait only for resources.
        """
        holding = tasks > self._high // 2 if self.holding else tasks >= self._high
        if holding != self.holding:
            self.holding = holding
            self._hold(holding)


class Arrivals:
    """Passes new tasks to the pipeline. `tasks` are all tasks of the agent, `cores` is the size of the pilot."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, tasks: dict[str, AgentTask], link: CoordinatorLink,
                 tracer: Tracer, cores: int, pipeline: Pipeline, calls: Calls, runs: Runs | None, returns: Returns,
                 owner: Owner) -> None:
        self._config = config
        self._loop = loop
        self._pilot: str = config['pilot']
        self._sandbox = sandbox.of_pilot(config)
        self._tasks = tasks
        self._connection = link.connection
        self._reporter = link.reporter
        self._tracer = tracer
        self._pipeline = pipeline
        self._calls = calls
        self._runs = runs
        self._returns = returns
        self._owner = owner
        self._text_notices = TextNotices(partial(base_environment, config), owner.notice)
        self.intake = Intake(self._connection.hold, cores)
        self.own: dict[str, Callable[[AgentTask], object]] = {}
        """By uid, the callbacks for the ends of tasks that the coordinator does not know."""
        self.histories = {} if runs is None else dict(runs.histories)
        """Failed attempts of tasks that have not come yet."""
        # the last one as it came, and for its tasks
        self._description: tuple[Mapping[str, Any], Mapping[str, Any]] = {}, {}
        self._unknown: list[str] = []   # its attributes that this version does not have
        self._gate: DependencyGate | None = None   # made for the first task with dependencies
        self._over = False
        self._most_tasks = 0   # since the heap was trimmed

    def __contains__(self, uid: object) -> bool:
        """Return whether a task waits for others."""
        return self._gate is not None and uid in self._gate

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for others."""
        return len(self._gate) if self._gate is not None else 0

    def count(self) -> None:
        """Update the number of tasks in the agent for the reporter and the intake."""
        self._reporter.tasks = tasks = len(self._tasks)
        self._reporter.waiting = len(self._gate) if self._gate is not None else 0
        self.intake.in_hand(tasks - self._pipeline.held_back)
        self._most_tasks = max(self._most_tasks, tasks)
        if self._most_tasks >= TRIM_TASKS and tasks <= self._most_tasks // TRIM_SHARE:
            self._most_tasks = tasks
            self._loop.call_later(TRIM_DELAY, heap.trim)   # when their ends are reported

    def unfinished(self) -> bool:
        """Return whether the agent has a task that will end by itself."""
        if any(task.description['mode'] not in SERVICE_MODES for task in self._tasks.values()):
            return True
        waiting = self._gate.descriptions() if self._gate is not None else ()
        return any(description.get('mode') not in SERVICE_MODES for description in waiting)

    # new tasks

    def put(self, arrived: list[NewTask]) -> None:
        """Take tasks; those that have arrived before are ignored."""
        new = self.intake.new(arrived)
        self._tracer.record('get', self._pilot, msg=f'bulk size: {len(new)}')
        self._tracer.record_bulk('get', [uid for uid, _ in new], states.AGENT_STAGING_INPUT_PENDING)
        if self._over or not any(AFTER in description for _, description in new):
            self.released(new)
            return
        waits = [bool(each.get(AFTER)) and uid not in self.intake.awaited for uid, each in new]
        self.released([task for task, held in zip(new, waits, strict=True) if not held])   # others may be after them
        if self._gate is None:
            from rp_agent.dependencies.gate import DependencyGate

            self._gate = DependencyGate(self, self._loop, self._tracer)
        self._gate.put(list(compress(new, waits)))

    def put_own(self, descriptions: list[dict[str, Any]], ended: Callable[[AgentTask], object]) -> None:
        """Take tasks that the coordinator does not know, each with its uid; `ended` gets each at its end."""
        self.own.update((description['uid'], ended) for description in descriptions)
        self.put([new_task(description) for description in descriptions])

    def go_on(self, results: Sequence[Update]) -> None:
        """Deliver the results of an earlier run of the pilot's job, whose tasks do not run again."""
        self.intake.new([(uid, {}) for uid, _, _ in results])
        self.intake.not_done([uid for uid, _, _ in results])   # whether they are DONE, the coordinator knows
        for first in range(0, len(results), BULK):
            self._connection.update_tasks(results[first:first + BULK])

    def _call(self, task: AgentTask) -> None:
        """Answer a call of the application."""
        def answered(call: Call, value: Any, reason: str | None, detail: str) -> None:
            answer_task(task, value, reason, detail)
            self._owner.left([task])

        description = task.description
        self._calls.call(task.uid, description['method'], description['args'], description['kwargs'], answered,
                         description['name'])

    def remember(self, histories: Mapping[str, list[dict[str, Any]]]) -> None:
        """Take the failed attempts of tasks on earlier pilots; the tasks may come later."""
        for uid, history in histories.items():
            task = self._tasks.get(uid)
            if task is None:
                self.histories[uid] = history
            else:
                task.extra[HISTORY] = [*history, *task.extra.get(HISTORY, ())]

    # the gate for tasks that are after others

    def has(self, uid: str) -> bool:
        return uid in self._tasks

    def is_done(self, uid: str) -> bool:
        return self.intake.is_done(uid)

    def follow(self, uids: Sequence[str]) -> None:
        self._connection.follow_tasks(uids)

    def other_sandbox(self, pilot: str) -> str:
        return sandbox.of_other_pilot(self._config, pilot)

    def released(self, new: list[NewTask]) -> None:
        """Pass tasks to the pipeline that depend on no others, or not any more."""
        tasks = self._make(new)
        self._tasks.update((task.uid, task) for task in tasks)
        self.count()
        self._text_notices.look(tasks)
        if self._over:
            self._returns.note(tasks)
            self._pipeline.refuse(tasks, f'{self._pilot} has ended')
            return
        late = [task for task in tasks if self.intake.cancelled(task.uid)] if self.intake.awaited else []
        if late:
            self._pipeline.refuse(late, f'cancelled before it came to {self._pilot}')
            tasks = [task for task in tasks if task.uid in self._tasks]
        modes = {task.description['mode'] for task in tasks if 'mode' in task.description}   # most have none
        if not modes.isdisjoint(_SERVICES):
            self._owner.add_services([
                task for task in tasks if task.description['mode'] in _SERVICES and task.target_state is None])
        odd = [task for task in tasks if task.target_state is not None]
        if odd:
            self._owner.left(odd)
            tasks = [task for task in tasks if task.uid in self._tasks]
        if PILOT_RPC in modes:
            for task in tasks:
                if task.description['mode'] == PILOT_RPC:
                    self._call(task)
            tasks = [task for task in tasks if task.description['mode'] != PILOT_RPC]
        if tasks:
            self._pipeline.put(tasks)

    def doomed(self, tasks: Sequence[tuple[NewTask, str]]) -> None:
        """End tasks whose dependencies have ended otherwise than they request."""
        for new, reason in tasks:
            task, = self._make([new])
            task.error = {'kind': DEPENDENCY}
            self.refuse([task], reason)

    def followed(self, outcomes: Sequence[Update]) -> None:
        """Take the outcomes of tasks that others wait for."""
        if self._gate is not None:
            self._gate.followed(outcomes)

    def ended(self, tasks: Sequence[AgentTask]) -> Collection[str]:
        """Note tasks that have ended in the agent; return those whose end tasks here wait for."""
        self.intake.not_done([task.uid for task in tasks if task.target_state != states.DONE])
        return self._gate.ended(tasks) if self._gate is not None else ()

    def moved(self, uids: Sequence[str]) -> None:
        """Note tasks that have left the agent and run elsewhere."""
        self.intake.not_done(uids)
        if self._gate is not None:
            self._gate.moved(uids)

    # the end of tasks that have not come to the pipeline

    def take(self, uids: Iterable[str]) -> Tasks:
        """Remove those of these tasks that wait for others, and return them."""
        return self._make(self._gate.take(uids)) if self._gate is not None else []

    def refuse(self, tasks: Tasks, reason: str) -> None:
        """End tasks that have not entered the pipeline as CANCELED."""
        self._tasks.update((task.uid, task) for task in tasks)
        self._pipeline.refuse(tasks, reason)

    def end(self, reason: str) -> None:
        """End all tasks that wait for others, and those that come later: the pilot ends."""
        self._over = True
        tasks = self._make(self._gate.take_all()) if self._gate is not None else []
        self._returns.note(tasks)
        self.refuse(tasks, reason)

    def without_own(self, tasks: Sequence[AgentTask]) -> Tasks:
        """Return ended tasks to report to the coordinator; the others are passed to those who have submitted them."""
        for task in tasks:
            ended = self.own.pop(task.uid, None)
            if ended is not None:
                task.extra[_OWN] = True
                unless([task], ended, 'reporting its end')
        return [task for task in tasks if _OWN not in task.extra]

    # records

    def _make(self, new: list[NewTask]) -> Tasks:
        """Return the records of new tasks; RAPTOR's calls share descriptions that differ only in what workers read."""
        tasks: list[AgentTask] = []
        common: dict[str, Any] | None = None
        shared = False
        for uid, description in new:
            own = codec.NOTHING
            if type(description) is RowDescription:
                if description.common is not common:   # most have that of the one before
                    common = description.common
                    shared = _may_share(common)
                if shared and _FOR_WORKERS.issuperset(description.names):
                    own, description = description.packed, description.common
                else:
                    description = description.as_dict()
            if description is not self._description[0]:
                self._description = description, (
                    Description(description) if 'raptor_id' in description and is_call(description) else description)
                self._unknown = sorted(description.keys() - DEFAULTS.keys())
            tasks.append(self._record(uid, self._description[1], own))
            if self._unknown:   # to ignore one, such as a dependency, could give a wrong result
                tasks[-1].fail(f'the agent of {self._pilot} (rp-agent {__version__}) does not know the attribute '
                               f'{self._unknown[0]!r}', 'the application has a newer version: install the same one for '
                               'the agent (pip install --upgrade rp-agent)', DESCRIPTION)
        return tasks

    def _record(self, uid: str, description: Mapping[str, Any], own: bytes) -> AgentTask:
        try:
            chosen = 'sandbox' in description   # most have none
            where = sandbox.of_task(self._config, uid, description) if chosen else f'{self._sandbox}/{uid}'
            task = AgentTask(uid, description, self._pilot, where, own)
            if uid in self.histories:
                task.extra[HISTORY] = self.histories.pop(uid)
            if self._runs is not None:
                self._runs.take(task)
            return task
        except Exception as error:
            task = AgentTask(uid, {}, self._pilot, '')
            task.broke(error, 'taking its description')
            return task


def _may_share(common: dict[str, Any]) -> bool:
    """Return whether tasks with a common description are calls whose attributes for workers the agent never changes."""
    return 'raptor_id' in common and RETRY_WITH not in common and is_call(common)


def new_task(description: dict[str, Any]) -> NewTask:
    """Return a task whose description includes its uid."""
    return description['uid'], {name: value for name, value in description.items() if name != 'uid'}

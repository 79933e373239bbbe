"""The agent's record of a task, which passes through the components."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from traceback import format_exception
from typing import Any

from rp_agent.logs import LOG
from rp_api import states
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER
from rp_api.description.task import TaskDescription
from rp_api.errors import sentence
from rp_api.failures.kinds import INTERNAL
from rp_api.logger import logger
from rp_api.task_info.usage import RECORD, USAGE, packed_run
from rp_api.task_modes import MASTER_RPC
from rp_api.wire import codec

DEFAULTS: dict[str, Any] = TaskDescription().as_dict()
"""Default values of the attributes of a task description."""

LAUNCH_INFO = 'launch'
"""Key in a task's `extra`: the launch method and its command line, for the application."""

DVM = 'dvm'
"""Key in a task's `extra`: the DVM that the launch method launches it into."""

RANKS_PER_SLOT = 'ranks_per_slot'
"""Key in a task's `extra`: the number of ranks that share each of its slots."""

VARIABLES = 'variables'
"""Key in a task's `extra`: variables of its environment that come from what it needs, such as the services."""

PART = 'raptor.part'
"""Key in a task's `extra`: the part of a RAPTOR worker that it is (see `rp_agent.raptor.worker_parts`)."""

JOB_SLOTS = 'raptor.job_slots'
"""Key in the `extra` of the first part of a RAPTOR worker: the slots of all ranks, which an MPI job needs."""

HISTORY = 'scheduler.history'
"""Key in a task's `extra`: the records of its failed attempts, also of those on other pilots. It stays in Agent_0."""

EXITED = 'scheduler.exited'
"""Key in a task's `extra`: set if its run has ended after the first sign that the job of its pilot ends."""

UNSTARTED = 'unstarted'
"""Key in a task's `extra`: set if it has left the executor, or the pause between two attempts, without a run."""

KILLED = 'killed'
"""Key in a task's `extra`: set if a signal that its executor has not sent has ended one of its ranks."""

BLOCK = 'torus'
"""Key in a task's `extra`: its block on a torus, as `corner` (coordinates), `corner_node` (name) and `shape`."""

_OF_RAPTOR = (RAPTOR_MASTER, RAPTOR_WORKER, MASTER_RPC)


class Description(dict[str, Any]):
    """A task's description as received: attributes that it does not set have their defaults.

    All tasks share the defaults, so values must not be modified in place.
    """

    __slots__ = ()

    __missing__ = DEFAULTS.__getitem__   # not a Python function, as it is called many times for each task

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute, set or not; `default` if there is no attribute of that name."""
        return self[name] if name in self or name in DEFAULTS else default


class AgentTask:
    """A task in the agent. Components fill it in and pass it on."""

    __slots__ = ('_slots', 'beside', 'cancelled', 'description', 'error', 'exception', 'exception_detail', 'exit_code',
                 'extra', 'output_files', 'own', 'packed', 'pilot', 'placement', 'ran', 'request', 'return_value',
                 'sandbox', 'state', 'stderr', 'stdout', 'step', 'target_state', 'ticket', 'uid')

    def __init__(self, uid: str, description: Mapping[str, Any], pilot: str, sandbox: str,
                 own: bytes = codec.NOTHING) -> None:
        self.uid = uid
        self.description = description if type(description) is Description else Description(description)
        self.own = own
        """The packed attributes of a call that override the description: only workers read them."""
        self.pilot = pilot
        self.sandbox = sandbox
        """Path of the task's directory."""
        self.state = states.AGENT_STAGING_INPUT_PENDING
        self.step = ''
        """The step of the pipeline that the task has entered last, see `rp_agent.components.isolation`."""
        self.placement: Any = None
        """The resources of the task on the nodes; None before placement and outside the scheduler's process."""
        self.ran: Sequence[Any] = ()
        """What is known of times and usage of the present attempt.

        That is the time of the placement (or None), and, once the executor has noted them, start, end (seconds since
        the epoch), CPU time of user and system (seconds), context switches, and a dict with the rest of the usage. NaN
        and {} stand for what is not known.
        """
        self.request: Any = None
        """The request that the scheduling policy derives from the description; equal for equal requirements."""
        self.ticket = -1
        """Number of the task in the wait pool."""
        self._slots: list[dict[str, Any]] | None = None
        self.beside: AgentTask | None = None
        """The running RAPTOR master of a worker, which keeps its resources until the worker has ended."""
        self.exit_code: int | None = None
        """Exit code of the first rank that failed, else 0; None before the end and without processes."""
        self.stdout: Any = ''
        """End of the output, which the output stager reads; a list, by rank, for functions with several ranks."""
        self.stderr: Any = ''
        self.return_value: Any = None
        self.packed: bytes | None = None
        """The whole result, packed for the application, of a task that a RAPTOR master has run."""
        self.exception: str | None = None
        """The error, as the `repr` of an exception."""
        self.exception_detail: str | None = None
        """The explanation of the error for the user."""
        self.error: dict[str, Any] | None = None
        """The record of the failure, see `rp_api.failures.kinds`."""
        self.target_state: str | None = None
        """DONE, FAILED or CANCELED; None as long as the final state is open. Set by `fail` or by the executor."""
        self.cancelled = False
        """True if the cancellation of the task was requested."""
        self.output_files: list[str] = []
        """Names of the files that the task has left in its sandbox, besides its standard files."""
        self.extra: dict[str, Any] = {}
        """Data of components by key, which also travels to components in other processes."""

    @property
    def slots(self) -> list[dict[str, Any]] | None:
        """The slots of the ranks as plain data; None before the task is placed."""
        if self._slots is None and self.placement is not None:
            self._slots = self.placement.slots()
        return self._slots

    @slots.setter
    def slots(self, slots: list[dict[str, Any]] | None) -> None:
        self._slots = slots

    def reached(self, state: str) -> bool:
        """Return whether the task is in that state or a later one."""
        return states.TASK.value(self.state) >= states.TASK.value(state)

    @property
    def processes(self) -> int:
        """Number of processes that the agent starts: one per rank, but one manager for the ranks of a RAPTOR worker."""
        ranks: int = self.description['ranks']
        return ranks if ranks == 1 or self.description['mode'] != RAPTOR_WORKER else 1

    def cores(self, rank: int) -> tuple[int, ...]:
        """Return the indices of the cores of a rank on its node; empty if they are unknown."""
        if self.placement is not None:
            cores: tuple[int, ...] = self.placement.cores_of_rank(rank)
            return cores
        if self._slots is None or rank >= len(self._slots):
            return ()
        return tuple(core['index'] for core in self._slots[rank]['cores'])

    def fail(self, exception: str, detail: str, kind: str = INTERNAL, **more: Any) -> None:
        """Set FAILED as the task's final state; only the first failure counts.

        Args:
            exception: The error, as the `repr` of an exception.
            detail: The explanation for the user.
            kind: The kind of failure, see `rp_api.failures.kinds`.
            more: Other entries of the record of the failure.
        """
        if self.target_state not in (states.FAILED, states.CANCELED):
            self.target_state = states.FAILED
            self.exception = exception
            self.exception_detail = detail
            self.error = {'kind': kind, **more}

    def fail_as(self, kind: str, reason: str, **more: Any) -> None:
        """Set FAILED as the task's final state, as `fail` does, with one sentence as the error and the explanation."""
        self.fail(repr(RuntimeError(reason)), reason, kind, sentence=reason, **more)

    def broke(self, error: BaseException, doing: str) -> None:
        """Set FAILED as the task's final state after an unexpected error, and log the error.

        Args:
            error: The error, whose text becomes the task's `exception`.
            doing: The operation that failed, such as 'input staging', for `exception_detail`, with the traceback.
        """
        logger(LOG).error('%s fails: %s', self.uid, doing, exc_info=error)
        trace = ''.join(format_exception(error)).rstrip()
        self.fail(sentence(error), f'{doing} has failed unexpectedly, see the log of the agent:\n{trace}')

    def cancel(self, reason: str | None) -> None:
        """Set CANCELED as the task's final state, for this reason, unless the task has failed."""
        if self.target_state != states.FAILED:
            self.target_state = states.CANCELED
            self.exception = reason

    def settle(self, state: str, exception: str | None, detail: str | None, error: dict[str, Any] | None) -> None:
        """Set the task's final state and its reason, unless the task has failed."""
        if self.target_state != states.FAILED:
            self.target_state, self.exception, self.exception_detail, self.error = state, exception, detail, error

    def end(self, state: str, exception: str | None = None) -> None:
        """Set this final state, whatever the task has had before."""
        self.target_state = state
        self.exception = exception

    def unplace(self) -> None:
        """Forget the placement, whose resources were freed."""
        self.placement = self.request = self.slots = None
        self.ticket = -1

    def clear(self) -> None:
        """Forget the outcome of a run, before the next one."""
        self.target_state = self.exit_code = self.exception = self.exception_detail = self.error = None
        self.return_value = self.packed = None
        self.stdout = self.stderr = ''
        self.output_files = []
        self.ran = ()
        for key in (LAUNCH_INFO, 'launches', 'outputs_known', EXITED, UNSTARTED, KILLED):
            self.extra.pop(key, None)

    def result(self) -> dict[str, Any]:
        """Return the result for the application, without values that are the default."""
        result: dict[str, Any] = {}
        if self.exit_code is not None:
            result['exit_code'] = self.exit_code
        for name in ('stdout', 'stderr', 'exception', 'exception_detail', 'error', 'slots', 'output_files'):
            value = getattr(self, name)
            if value:
                result[name] = value
        if self.ran:
            result |= self.run_info()
        if LAUNCH_INFO in self.extra:
            result |= self.extra[LAUNCH_INFO]
        if HISTORY in self.extra:
            result['history'] = self.extra[HISTORY]
        if self.packed is not None:
            from rp_api.coordination.contract import PackedInfo  # only agents with RAPTOR masters need it here

            result |= PackedInfo(self.packed)
        if self.return_value is not None:
            result['return_value'] = self.return_value
        return result

    def note_run(self, started: float, ended: float = math.nan, user: float = math.nan, system: float = math.nan,
                 switches: float = math.nan, more: dict[str, Any] | None = None) -> None:
        """Note times and usage of the run of the present attempt, see `ran`."""
        self.ran = (self.ran[0] if self.ran else None, started, ended, user, system, switches, more or {})

    def has_not_run(self) -> None:
        """Forget the start of a run that has not come about."""
        self.ran = self.ran[:1]

    def run_info(self) -> dict[str, Any]:
        """Return times and usage of the present attempt as the application gets them, see `rp_api.task_info.usage`."""
        if not self.ran:
            return {}
        packed, more = packed_run(*self.ran[:6]), self.ran[6:]
        return {RECORD: packed, USAGE: more[0]} if more and more[0] else {RECORD: packed}


def differing(tasks: Iterable[AgentTask]) -> Iterator[AgentTask]:
    """Yield the tasks whose description is not that of the task before: RAPTOR's calls share theirs."""
    before = None
    for task in tasks:
        if task.description is not before:
            before = task.description
            yield task


def is_call(description: Mapping[str, Any]) -> bool:
    """Return whether a description is that of a task which a master runs: no component changes it."""
    return bool(description.get('raptor_id')) and description.get('mode') not in _OF_RAPTOR


def concerns_raptor(task: AgentTask) -> bool:
    """Return whether a task is a master, a worker, or for a master."""
    description = task.description
    # most tasks have neither
    return (('mode' in description or 'raptor_id' in description)
            and (description['mode'] in _OF_RAPTOR or bool(description['raptor_id'])))


def divided(tasks: Iterable[AgentTask]) -> tuple[list[AgentTask], list[AgentTask]]:
    """Return the tasks that concern RAPTOR, and the others."""
    theirs: list[AgentTask] = []
    others: list[AgentTask] = []
    before, goes_to = None, others
    for task in tasks:
        if task.description is not before:   # calls share theirs
            before, goes_to = task.description, theirs if concerns_raptor(task) else others
        goes_to.append(task)
    return theirs, others


def has_needs(task: AgentTask) -> bool:
    """Return whether a task needs anything besides resources; most do not."""
    description = task.description
    return ('named_env' in description or 'services' in description) and bool(
        description['named_env'] or description['services'])

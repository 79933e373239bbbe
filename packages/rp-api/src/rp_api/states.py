"""The states of pilots and tasks, and the rules for transitions between them.

Rules of this module:

- Pilots and tasks each move along one sequence of numbered states. A report of a lower or the same number is outdated
  and changes nothing.
- A transition may skip states. Each skipped state is announced once, in order, so that a listener sees every state
  exactly once. FAILED and CANCELED can be reached from any state; no skipped states are announced then.
- DONE, FAILED and CANCELED are final and share the highest number. A final state does not change, with two exceptions:
  CANCELED can be corrected to DONE or FAILED, because the report of the real end may arrive after a cancellation was
  recorded. A FAILED pilot can be corrected to any final state, because the report of the batch system takes precedence.
- A state of `StateModel.repeated` may be reported again with new information, which replaces the earlier one: an active
  pilot may lose nodes, a running service may move. It is not announced again.
- All transitions use `StateModel.progress`. No other code compares states by name.

The tables follow the state model in the documentation of RADICAL-Pilot. The value of a state constant is its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from rp_api.errors import StateError

NEW: Final = 'NEW'
DONE: Final = 'DONE'
FAILED: Final = 'FAILED'
CANCELED: Final = 'CANCELED'

INITIAL: list[str] = [NEW]
FINAL: list[str] = [DONE, FAILED, CANCELED]

PMGR_LAUNCHING_PENDING: Final = 'PMGR_LAUNCHING_PENDING'
PMGR_LAUNCHING: Final = 'PMGR_LAUNCHING'
PMGR_ACTIVE_PENDING: Final = 'PMGR_ACTIVE_PENDING'
PMGR_ACTIVE: Final = 'PMGR_ACTIVE'

TMGR_SCHEDULING_PENDING: Final = 'TMGR_SCHEDULING_PENDING'
TMGR_SCHEDULING: Final = 'TMGR_SCHEDULING'
TMGR_STAGING_INPUT_PENDING: Final = 'TMGR_STAGING_INPUT_PENDING'
TMGR_STAGING_INPUT: Final = 'TMGR_STAGING_INPUT'
AGENT_STAGING_INPUT_PENDING: Final = 'AGENT_STAGING_INPUT_PENDING'
AGENT_STAGING_INPUT: Final = 'AGENT_STAGING_INPUT'
AGENT_SCHEDULING_PENDING: Final = 'AGENT_SCHEDULING_PENDING'
AGENT_SCHEDULING: Final = 'AGENT_SCHEDULING'
AGENT_EXECUTING_PENDING: Final = 'AGENT_EXECUTING_PENDING'
AGENT_EXECUTING: Final = 'AGENT_EXECUTING'
AGENT_STAGING_OUTPUT_PENDING: Final = 'AGENT_STAGING_OUTPUT_PENDING'
AGENT_STAGING_OUTPUT: Final = 'AGENT_STAGING_OUTPUT'
TMGR_STAGING_OUTPUT_PENDING: Final = 'TMGR_STAGING_OUTPUT_PENDING'
TMGR_STAGING_OUTPUT: Final = 'TMGR_STAGING_OUTPUT'

# aliases from the time when a task manager was called a unit manager
UMGR_SCHEDULING_PENDING = TMGR_SCHEDULING_PENDING
UMGR_SCHEDULING = TMGR_SCHEDULING
UMGR_STAGING_INPUT_PENDING = TMGR_STAGING_INPUT_PENDING
UMGR_STAGING_INPUT = TMGR_STAGING_INPUT
UMGR_STAGING_OUTPUT_PENDING = TMGR_STAGING_OUTPUT_PENDING
UMGR_STAGING_OUTPUT = TMGR_STAGING_OUTPUT


class State(NamedTuple):
    """A row of a state table: state, number, module and component that hold the entity, and meaning."""

    name: str
    value: int
    module: str
    component: str
    meaning: str


PILOT_STATES = (
    State(NEW, 0, 'pilot manager', 'pilot manager', 'the pilot object has been made'),
    State(PMGR_LAUNCHING_PENDING, 1, 'pilot manager', 'launcher queue', 'waits to be submitted'),
    State(PMGR_LAUNCHING, 2, 'pilot manager', 'launcher', 'is being submitted to the batch system'),
    State(PMGR_ACTIVE_PENDING, 3, 'batch system', 'batch queue', 'waits in the batch queue, or its agent starts up'),
    State(PMGR_ACTIVE, 4, 'batch system', 'agent', 'holds its resources and runs tasks'),
    State(DONE, 5, 'pilot manager', 'pilot manager', 'has ended as it should'),
    State(FAILED, 5, 'pilot manager', 'pilot manager', 'has ended with an error'),
    State(CANCELED, 5, 'pilot manager', 'pilot manager', 'was ended on request'),
)

TASK_STATES = (
    State(NEW, 0, 'task manager', 'task manager', 'the task object has been made'),
    State(TMGR_SCHEDULING_PENDING, 1, 'task manager', 'scheduler queue', 'waits to be given to a pilot'),
    State(TMGR_SCHEDULING, 2, 'task manager', 'scheduler', 'is being given to a pilot'),
    State(TMGR_STAGING_INPUT_PENDING, 3, 'task manager', 'input stager queue', 'waits for its data to be staged'),
    State(TMGR_STAGING_INPUT, 4, 'task manager', 'input stager', 'its data move to the platform'),
    State(AGENT_STAGING_INPUT_PENDING, 5, 'agent', 'input stager queue', 'waits for the agent to pick it up'),
    State(AGENT_STAGING_INPUT, 6, 'agent', 'input stager', 'its data move into its sandbox'),
    State(AGENT_SCHEDULING_PENDING, 7, 'agent', 'scheduler queue', 'waits for the scheduler of the agent'),
    State(AGENT_SCHEDULING, 8, 'agent', 'scheduler', 'waits for free cores and GPUs'),
    State(AGENT_EXECUTING_PENDING, 9, 'agent', 'executor queue', 'has cores and GPUs, waits to be launched'),
    State(AGENT_EXECUTING, 10, 'agent', 'executor', 'runs on its cores and GPUs'),
    State(AGENT_STAGING_OUTPUT_PENDING, 11, 'agent', 'output stager queue', 'has run, its output waits'),
    State(AGENT_STAGING_OUTPUT, 12, 'agent', 'output stager', 'its output moves within the platform'),
    State(TMGR_STAGING_OUTPUT_PENDING, 13, 'task manager', 'output stager queue', 'waits for the task manager'),
    State(TMGR_STAGING_OUTPUT, 14, 'task manager', 'output stager', 'its output moves to the client'),
    State(DONE, 15, 'task manager', 'task manager', 'has ended as it should'),
    State(FAILED, 15, 'task manager', 'task manager', 'has ended with an error'),
    State(CANCELED, 15, 'task manager', 'task manager', 'was ended on request'),
)

# the only transitions between final states
_LATE_END = ((CANCELED, DONE), (CANCELED, FAILED))
_PILOT_LATE_END = (*_LATE_END, (FAILED, DONE), (FAILED, CANCELED))


class StateModel:
    """A linear sequence of states: their numbers, and the result of every transition.

    All results are computed on first use, so that each is one dictionary lookup. Agents do not use them.
    """

    def __init__(self, name: str, rows: tuple[State, ...], corrections: tuple[tuple[str, str], ...],
                 repeated: frozenset[str] = frozenset()) -> None:
        self.name = name
        self.rows = rows
        self.corrections = corrections
        self.repeated = repeated
        self.values: Mapping[str | None, int] = {None: -1, **{row.name: row.value for row in rows}}

    @property
    def names(self) -> list[str]:
        """All states in the order of their numbers."""
        return [row.name for row in self.rows]

    def value(self, state: str | None) -> int:
        """Return the number of a state, or -1 for None, the state of an entity without reports."""
        try:
            return self.values[state]
        except (KeyError, TypeError):
            raise self._unknown(state) from None

    def is_final(self, state: str | None) -> bool:
        """Return whether a state is final."""
        return self.value(state) == self.rows[-1].value

    def progress(self, current: str | None, target: str) -> tuple[str, list[str]]:
        """Return the state after a transition, and the states to announce.

        Args:
            current: The present state; None if the entity has none yet.
            target: The reported state.

        Returns:
            The new state, and the states to announce in order; `(current, [])` for an outdated report.

        Raises:
            StateError: A state is unknown, or the transition leads from one final state to another.
        """
        new, passed = self.step(current, target)
        return new, list(passed)

    def step(self, current: str | None, target: str) -> tuple[str, tuple[str, ...]]:
        """Return the same as `progress`, as a shared tuple that is not copied: for large numbers of entities."""
        try:
            return self._steps[current, target]
        except (KeyError, TypeError):
            raise self._refusal(current, target) from None

    def collapse(self, states: Iterable[str | None]) -> str | None:
        """Return the state that results from several reports on one entity; None without a report.

        DONE takes precedence over FAILED, FAILED over CANCELED, then the state with the highest number.
        """
        seen = set(states)
        for state in FINAL:
            if state in seen:
                return state
        return max(seen, key=self.value, default=None)

    @cached_property
    def _steps(self) -> dict[tuple[str | None, str], tuple[str, tuple[str, ...]]]:
        steps = {}
        for current in self.values:
            for target in self.names:
                step = self._step(current, target)
                if step is not None:
                    steps[current, target] = step[0], tuple(step[1])
        return steps

    def _step(self, current: str | None, target: str) -> tuple[str, list[str]] | None:
        """Return the result of one transition; None if it is illegal."""
        here, there = self.values[current], self.values[target]
        if current is not None and (there < here or target == current):
            return current, []
        if here == there:
            return (target, [target]) if (current, target) in self.corrections else None
        if target in (FAILED, CANCELED):
            return target, [target]
        return target, [row.name for row in self.rows if here < row.value < there] + [target]

    def _unknown(self, state: object) -> StateError:
        return StateError(f'[{state}] is not a state of a {self.name}: use one of {", ".join(self.names)}')

    def _refusal(self, current: object, target: object) -> StateError:
        for state in (current, target):
            if state not in self.names and not (state is None and state is current):
                return self._unknown(state)
        return StateError(f'a {self.name} in the final state {current} cannot become {target}')


PILOT = StateModel('pilot', PILOT_STATES, _PILOT_LATE_END, frozenset({PMGR_ACTIVE}))
TASK = StateModel('task', TASK_STATES, _LATE_END, frozenset({AGENT_SCHEDULING, AGENT_EXECUTING}))


def pilot_value(state: str | None) -> int:
    """Return the number of a pilot state: 0 (NEW) to 5 (final), -1 for None."""
    return PILOT.value(state)


def task_value(state: str | None) -> int:
    """Return the number of a task state: 0 (NEW) to 15 (final), -1 for None."""
    return TASK.value(state)


def progress(model: StateModel, current: str | None, target: str) -> tuple[str, list[str]]:
    """Return the new state and the states to announce, see `StateModel.progress`."""
    return model.progress(current, target)


# state names of 2015, as found in traces and databases of that time
CAMEL_CASE_STATES: Mapping[str, str] = {name: state for state, names in {
    NEW: 'New', DONE: 'Done', CANCELED: 'Canceling Canceled', FAILED: 'Failed',
    PMGR_LAUNCHING_PENDING: 'Pending PendingLaunch', PMGR_LAUNCHING: 'Launching',
    PMGR_ACTIVE_PENDING: 'PendingActive', PMGR_ACTIVE: 'Active',
    TMGR_SCHEDULING_PENDING: 'Unscheduled', TMGR_SCHEDULING: 'Scheduling',
    TMGR_STAGING_INPUT_PENDING: 'PendingInputStaging', TMGR_STAGING_INPUT: 'StagingInput',
    AGENT_STAGING_INPUT_PENDING: 'PendingAgentInputStaging AgentStagingInputPending',
    AGENT_STAGING_INPUT: 'AgentStagingInput',
    AGENT_SCHEDULING_PENDING: 'AllocatingPending', AGENT_SCHEDULING: 'Allocating',
    AGENT_EXECUTING_PENDING: 'PendingExecution ExecutingPending', AGENT_EXECUTING: 'Executing',
    AGENT_STAGING_OUTPUT_PENDING: 'PendingAgentOutputStaging AgentStagingOutputPending',
    AGENT_STAGING_OUTPUT: 'AgentStagingOutput',
    TMGR_STAGING_OUTPUT_PENDING: 'PendingOutputStaging', TMGR_STAGING_OUTPUT: 'StagingOutput',
}.items() for name in names.split()}

# constants of 2015 that were renamed
OLD_DEFINES: Mapping[str, str] = {name: state for state, names in {
    CANCELED: 'CANCELING', PMGR_LAUNCHING_PENDING: 'PENDING PENDING_LAUNCH', PMGR_LAUNCHING: 'LAUNCHING',
    PMGR_ACTIVE_PENDING: 'PENDING_ACTIVE ACTIVE_PENDING', PMGR_ACTIVE: 'ACTIVE',
    TMGR_SCHEDULING_PENDING: 'UNSCHEDULED', TMGR_SCHEDULING: 'SCHEDULING',
    TMGR_STAGING_INPUT_PENDING: 'PENDING_INPUT_STAGING', TMGR_STAGING_INPUT: 'STAGING_INPUT',
    AGENT_SCHEDULING_PENDING: 'ALLOCATING_PENDING', AGENT_SCHEDULING: 'ALLOCATING',
    AGENT_EXECUTING_PENDING: 'PENDING_EXECUTION EXECUTING_PENDING', AGENT_EXECUTING: 'EXECUTING',
    TMGR_STAGING_OUTPUT_PENDING: 'PENDING_OUTPUT_STAGING', TMGR_STAGING_OUTPUT: 'STAGING_OUTPUT',
}.items() for name in names.split()}

# some of these names are common words, so they become constants only on request
if 'RP_ENABLE_OLD_DEFINES' in os.environ:
    globals().update(OLD_DEFINES)

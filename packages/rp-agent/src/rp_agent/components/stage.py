"""The interfaces of a pipeline's optional stages: `Stage`, which they implement, `Flow` and `Owner`, which they use.

All methods have a default, so that a class defines only what concerns it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rp_agent.task import AgentTask
from rp_api import states

Tasks = list[AgentTask]


class Stage:
    """An optional part of the pipeline, which is made for the first task that needs it.

    The methods from `entered` to `left` get all tasks at one point of their way, and return those that go on; the stage
    passes on the others later, by the methods of `Flow`. Stages with a lower `order` get them first.
    """

    order = 0

    def __contains__(self, uid: object) -> bool:
        return False

    @property
    def held_back(self) -> int:
        """Number of tasks that wait here for others to arrive or end, and not for resources."""
        return 0

    @property
    def expects(self) -> bool:
        """True if something is on its way for which tasks may wait."""
        return False

    def entered(self, tasks: Tasks) -> Tasks: return tasks      # new ones
    def staged(self, tasks: Tasks) -> Tasks: return tasks       # their input is staged, or their next attempt begins
    def admitted(self, tasks: Tasks) -> Tasks: return tasks     # they are about to wait for resources
    def placed(self, tasks: Tasks) -> Tasks: return tasks       # they have their resources
    def returned(self, tasks: Tasks) -> Tasks: return tasks     # from the executors, as these had them
    def executed(self, tasks: Tasks) -> Tasks: return tasks     # their run has ended, and they have resources
    def freed(self, tasks: Tasks) -> Tasks: return tasks        # their run has ended, or they leave, without resources
    def concluded(self, tasks: Tasks) -> Tasks: return tasks    # they have run, and their output is staged next
    def left(self, tasks: Tasks) -> Tasks: return tasks         # they leave; those that go on are reported to the agent

    def visible(self, tasks: Sequence[AgentTask], state: str) -> Sequence[AgentTask]:
        """Follow tasks that have reached a state; return those of which it is reported."""
        return tasks

    def lost(self, task: AgentTask, record: dict[str, Any]) -> None: ...   # ended by a lost node; it may run again
    def cancel(self, uids: Iterable[str]) -> None: ...       # those of these tasks that are here
    def take_back(self, task: AgentTask) -> None: ...        # forget it, if it waits here for its resources
    def stop(self, reason: str) -> None: ...                 # end all tasks that are here, as the pilot ends
    def end(self) -> None: ...                               # all tasks have ended: release what other processes use
    def close(self) -> None: ...                             # release all resources


class Flow:
    """The ways on for tasks that a stage has kept; the pipeline implements them."""

    def put(self, tasks: Tasks) -> None: ...                 # new ones
    def admit(self, tasks: Tasks) -> None: ...               # to the scheduler, by way of the gate
    def schedule(self, tasks: Tasks) -> None: ...            # to the scheduler: they have all besides resources
    def attempt(self, task: AgentTask) -> None: ...          # begin its next attempt; it has no resources
    def place_again(self, tasks: Tasks) -> None: ...         # those that have not started
    def start_again(self, task: AgentTask) -> None: ...      # with the resources that it still has, else with others
    def restart(self, tasks: Tasks, reason: str) -> None: ...   # begin the next attempt of those on a lost node
    def executed(self, tasks: Tasks) -> None: ...            # their run has ended
    def conclude(self, tasks: Tasks) -> None: ...            # they have run, and their resources are free
    def release(self, tasks: Tasks) -> None: ...             # free their resources
    def stage_output(self, tasks: Tasks) -> None: ...        # they run no more, and their resources are free
    def leave(self, tasks: Tasks) -> None: ...               # they end without output
    def cancel(self, tasks: Sequence[AgentTask]) -> None: ...     # in any component
    def end_runs(self, tasks: Sequence[AgentTask]) -> None: ...   # end their processes; they then come back
    def advanced(self, tasks: Sequence[AgentTask], state: str) -> None: ...   # they have reached a state
    def nodes_down(self, positions: Iterable[int], reason: str) -> None: ...   # place no more tasks there


class Owner:
    """The agent, as its pipeline and its other parts use it."""

    @property
    def awaited(self) -> bool:
        """True if tasks wait outside of the pipeline for others to end."""
        return False

    @property
    def left_s(self) -> float:
        """Seconds until the job has to end."""
        return math.inf

    # about tasks: those that leave the pipeline, and news of the others, for the application
    def left(self, tasks: Sequence[AgentTask]) -> None: ...
    def advanced(self, tasks: Sequence[AgentTask], state: str) -> None: ...
    def report(self, task: AgentTask, info: dict[str, Any]) -> None: ...           # on a task in AGENT_EXECUTING
    def report_attempt(self, task: AgentTask, info: dict[str, Any]) -> None: ...   # the application may not know it
    def waits(self, tasks: Sequence[AgentTask], kind: str, text: str, state: str = states.AGENT_SCHEDULING) -> None: ...
    def master_up(self, task: AgentTask, access: Mapping[str, str]) -> None: ...

    # about the pilot: its end, for a reason, what it loses, signals to its sub-agents, and events to trace
    def finish(self, state: str, reason: str, *, by_user: bool = False) -> None: ...
    def broken(self, reason: str) -> None: ...
    def nodes_lost(self, positions: Sequence[int], reason: str) -> None: ...
    def notice(self, sentence: str) -> None: ...
    def signalled(self, number: int) -> None: ...
    def moment(self, message: str, when: int, name: str) -> None: ...
    def trace_part(self, event: str, name: str) -> None: ...

    # tasks that only a part of the agent knows; `ended` gets each at its end
    def run_own(self, descriptions: list[dict[str, Any]], ended: Callable[[AgentTask], object]) -> None: ...
    def cancel_tasks(self, uids: Sequence[str]) -> None: ...
    def add_services(self, tasks: Tasks) -> None: ...   # about to enter the pipeline; those that are not valid fail

    def find(self, uid: str) -> AgentTask | None:
        """Return the task of that uid that the agent has now."""

    def has_seen(self, uid: str) -> bool:
        """Return whether the agent has or had a task of that uid."""
        return False

    def knows(self, uid: str) -> bool:
        """Return whether the agent has a task of that uid, or one that waits for others."""
        return False

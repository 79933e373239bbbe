"""The agent's record of a task while it passes through the components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_agent.logs import LOG
from rp_api import states
from rp_api.constants import RAPTOR_WORKER
from rp_api.description.task import TaskDescription
from rp_api.errors import sentence
from rp_api.logger import logger

DEFAULTS: dict[str, Any] = TaskDescription().as_dict()
"""The values of attributes that a description does not set."""

LAUNCH_INFO = 'launch'
"""Where in a task's `extra` the launch method and its command line stand, as the application is told."""

DVM = 'dvm'
"""Where in a task's `extra` the virtual machine stands that it is to be launched into, as its launch method is told."""

RANKS_PER_SLOT = 'ranks_per_slot'
"""Where in a task's `extra` the number of ranks stands that share each of its slots."""

BLOCK = 'torus'
"""Where in a task's `extra` its block on a torus stands: `corner` (coordinates), `corner_node` (name) and `shape`."""


class Description(dict[str, Any]):
    """A task's description as it came over the wire: what it does not set has its default.

    The defaults are shared by all tasks, so nothing in a description may be changed.
    """

    __slots__ = ()

    __missing__ = DEFAULTS.__getitem__   # no function of its own: it is called many times for each task

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, set or not; `default` for what is not an attribute."""
        return self[name] if name in self or name in DEFAULTS else default


class AgentTask:
    """One task in the agent; components hand it on and fill it in."""

    __slots__ = ('_slots', 'cancelled', 'description', 'exception', 'exception_detail', 'exit_code', 'extra',
                 'output_files', 'packed', 'pilot', 'placement', 'request', 'return_value', 'sandbox', 'state',
                 'stderr', 'stdout', 'target_state', 'ticket', 'uid')

    def __init__(self, uid: str, description: Mapping[str, Any], pilot: str, sandbox: str) -> None:
        self.uid = uid
        self.description = Description(description)
        self.pilot = pilot
        self.sandbox = sandbox
        self.state = states.AGENT_STAGING_INPUT_PENDING
        self.placement: Any = None
        """What the task occupies on the nodes; None before it is placed, and outside of the scheduler's process."""
        self.request: Any = None
        """What the scheduling policy has made of the description: equal for tasks that ask for the same."""
        self.ticket = -1
        """By which the wait pool knows the task while it waits."""
        self._slots: list[dict[str, Any]] | None = None
        self.exit_code: int | None = None
        self.stdout: Any = ''
        self.stderr: Any = ''
        self.return_value: Any = None
        self.packed: bytes | None = None
        """All of the result, of a task that a RAPTOR master has run, as the application is told."""
        self.exception: str | None = None
        self.exception_detail: str | None = None
        self.target_state: str | None = None
        self.cancelled = False
        self.output_files: list[str] = []
        self.extra: dict[str, Any] = {}

    @property
    def slots(self) -> list[dict[str, Any]] | None:
        """The slots of the ranks as plain data; None before the task is placed."""
        if self._slots is None and self.placement is not None:
            self._slots = self.placement.slots()
        return self._slots

    @slots.setter
    def slots(self, slots: list[dict[str, Any]] | None) -> None:
        self._slots = slots

    @property
    def processes(self) -> int:
        """How many processes are started: one for each rank, but a RAPTOR worker starts its ranks itself."""
        ranks: int = self.description['ranks']
        return ranks if ranks == 1 or self.description['mode'] != RAPTOR_WORKER else 1

    def cores(self, rank: int) -> tuple[int, ...]:
        """The numbers of the cores that the rank has on its node; none if they are not known."""
        if self.placement is not None:
            cores: tuple[int, ...] = self.placement.cores_of_rank(rank)
            return cores
        if self._slots is None or rank >= len(self._slots):
            return ()
        return tuple(core['index'] for core in self._slots[rank]['cores'])

    def fail(self, exception: str, detail: str) -> None:
        """Make the task end as FAILED; the first failure is the one that is kept."""
        if self.target_state not in (states.FAILED, states.CANCELED):
            self.target_state = states.FAILED
            self.exception = exception
            self.exception_detail = detail

    def broke(self, error: BaseException, doing: str) -> None:
        """Make the task end as FAILED because of an error that nothing has foreseen, when `doing` something for it."""
        logger(LOG).error('%s fails: %s', self.uid, doing, exc_info=error)
        self.fail(sentence(error), f'{doing} has failed unexpectedly, see the log of the agent')

    def result(self) -> dict[str, Any]:
        """What the application gets to see of the task's end; only what is not the default."""
        result: dict[str, Any] = {}
        if self.exit_code is not None:
            result['exit_code'] = self.exit_code
        if self.stdout:
            result['stdout'] = self.stdout
        if self.stderr:
            result['stderr'] = self.stderr
        if self.exception:
            result['exception'] = self.exception
        if self.exception_detail:
            result['exception_detail'] = self.exception_detail
        slots = self.slots
        if slots:
            result['slots'] = slots
        if self.output_files:
            result['output_files'] = self.output_files
        if LAUNCH_INFO in self.extra:
            result |= self.extra[LAUNCH_INFO]
        if self.packed is not None:
            from rp_api.coordination.contract import PackedInfo  # only agents with RAPTOR masters need it here

            result |= PackedInfo(self.packed)
        if self.return_value is not None:
            result['return_value'] = self.return_value
        return result

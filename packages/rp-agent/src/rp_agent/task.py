"""The agent's record of a task while it passes through the components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_api import states
from rp_api.description.task import TaskDescription

_DEFAULTS: dict[str, Any] = TaskDescription().as_dict()


class Description(dict[str, Any]):
    """A task's description as it came over the wire: what it does not set has its default.

    The defaults are shared by all tasks, so nothing in a description may be changed.
    """

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        return _DEFAULTS[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, set or not; `default` for what is not an attribute."""
        return self[name] if name in self or name in _DEFAULTS else default


class AgentTask:
    """One task in the agent; components hand it on and fill it in."""

    __slots__ = ('cancelled', 'description', 'exception', 'exception_detail', 'exit_code', 'extra', 'output_files',
                 'pilot', 'sandbox', 'slots', 'state', 'stderr', 'stdout', 'target_state', 'uid')

    def __init__(self, uid: str, description: Mapping[str, Any], pilot: str, sandbox: str) -> None:
        self.uid = uid
        self.description = Description(description)
        self.pilot = pilot
        self.sandbox = sandbox
        self.state = states.AGENT_STAGING_INPUT_PENDING
        self.slots: list[dict[str, Any]] | None = None
        self.exit_code: int | None = None
        self.stdout = ''
        self.stderr = ''
        self.exception: str | None = None
        self.exception_detail: str | None = None
        self.target_state: str | None = None
        self.cancelled = False
        self.output_files: list[str] = []
        self.extra: dict[str, Any] = {}

    def fail(self, exception: str, detail: str) -> None:
        """Make the task end as FAILED; the first failure is the one that is kept."""
        if self.target_state not in (states.FAILED, states.CANCELED):
            self.target_state = states.FAILED
            self.exception = exception
            self.exception_detail = detail

    def result(self) -> dict[str, Any]:
        """What the application gets to see of the task's end; only what is not the default."""
        found = {'exit_code': self.exit_code, 'stdout': self.stdout, 'stderr': self.stderr,
                 'exception': self.exception, 'exception_detail': self.exception_detail,
                 'slots': self.slots, 'output_files': self.output_files}
        return {key: value for key, value in found.items() if value not in (None, '', [])}

"""Base class of launchers, which start the agents of pilots on their resources and report how they end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rp_api.description.pilot import PilotDescription
from rp_api.loop.event_loop import Loop
from rp_api.platforms.definition import ResourceConfig


class Start(NamedTuple):
    """The data with which a launcher starts the agent of one pilot."""

    uid: str
    sandbox: Path
    config: Mapping[str, Any]
    """The agent's configuration; it contains the keys of the session, and only the agent may read it."""
    platform: ResourceConfig
    description: PilotDescription
    submission: str = ''
    """The name of this attempt to submit a job, which the coordinator has a note of."""
    earlier: Sequence[str] = ()
    """The attempts of applications that ended before they knew whether the job was submitted.

    With some, and without a new `submission`, the pilot has ended: its job is looked for and cancelled.
    """


class End(NamedTuple):
    """The end of a pilot's agent."""

    uid: str
    reason: str | None
    """The reason of a failure, in a sentence; None if the agent ended normally, or it is unknown."""
    stdout: str
    """The last lines of the agent's output."""
    stderr: str
    file: str = ''
    """The file with details, if it is not the agent's log."""
    words: str = ''
    """The batch system's message, in a sentence; empty without one."""
    announced: bool = False
    """True if the batch system has ended the job: at its time limit, or because it was cancelled or preempted."""


class Reports(NamedTuple):
    """The callbacks for reports on pilots, called in the event loop; their first argument is a pilot's uid."""

    launched: Callable[[str, Mapping[str, Any]], object]
    """The agent, or its job, was started. The second argument is the handle for `adopt`, plain data."""
    refused: Callable[[str, str], object]
    """The pilot cannot be launched, for the reason in the second argument."""
    told: Callable[[str, str, Mapping[str, Any]], object]
    """A message about a pilot that waits, and what is known about its job in the queue, plain data: `job`, `state`,
    `words`, `unschedulable`, the expected `start`, and `trouble`; a message without a job's state has some of these."""
    unschedulable: Callable[[str, str, Mapping[str, Any]], object]
    """The job cannot start unless it, or the batch system, is changed, for the reason in the second argument."""
    ended: Callable[[End], object]


class Context(NamedTuple):
    """The environment of a launcher: the session's event loop and directory, and the callbacks for reports.

    `belongs` are environment variables that identify the processes of the session's tasks.
    """

    loop: Loop
    directory: Path
    belongs: Mapping[str, str]
    reports: Reports


class Launcher(ABC):
    """Base class of launchers, which start agents.

    A session makes an object of each class that it needs. Methods are called in the thread of the event loop, unless
    stated otherwise.
    """

    near: ClassVar[bool] = False
    """True if agents run on this host: they reach the session without a network, and sandboxes are local."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @staticmethod
    @abstractmethod
    def takes(url: str) -> bool:
        """Return whether this launcher serves platforms whose `job_manager_endpoint` is this URL."""

    @classmethod
    def check(cls, platform: ResourceConfig, description: PilotDescription) -> None:
        """Raise a `PilotError` if a pilot can never be launched; called at submission, in any thread."""
        return   # most launchers accept all pilots

    @classmethod
    def sees_sandboxes(cls, platform: ResourceConfig) -> bool:
        """Return whether sandboxes on the platform have the same paths on this host."""
        return cls.near

    def locate(self, platform: ResourceConfig, path: str, done: Callable[[str, str], object]) -> None:
        """Call `done(path, error)` with the path after variables were expanded on the platform, or an error."""
        done(path, '')

    def expect(self, platform: ResourceConfig) -> None:
        """Prepare for pilots on a platform, which are launched soon."""
        return   # most launchers need no preparation

    @abstractmethod
    def launch(self, starts: Sequence[Start]) -> None:
        """Start the agents of pilots, and report each as launched or refused, at once or later."""

    @abstractmethod
    def adopt(self, uid: str, sandbox: Path, handle: Mapping[str, Any]) -> bool:
        """Watch the agent of a pilot that another process has started; return False if it does not run."""

    @abstractmethod
    def clear(self, uid: str) -> None:
        """End processes that the tasks of a pilot have left, after the end of its agent."""

    def cancel(self, uid: str) -> bool:
        """End a pilot whose agent is not active yet; return False if the agent has to end it."""
        return False

    @abstractmethod
    def kill(self, uid: str) -> None:
        """Kill the agent of a pilot and its tasks; unknown pilots are ignored."""

    @abstractmethod
    def close(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for all agents to end, and kill those that have not.

        Called in another thread, possibly after the event loop has ended.
        """

    @abstractmethod
    def leave(self) -> None:
        """Stop watching all agents, without ending them."""

"""What a launcher is: it brings agents to their resources and tells how they ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rp_api.description.pilot import PilotDescription
from rp_api.loop.event_loop import Loop
from rp_api.platforms.definition import ResourceConfig


class Start(NamedTuple):
    """What a launcher needs to start the agent of one pilot."""

    uid: str
    sandbox: Path
    config: Mapping[str, Any]
    """The agent's configuration; holds the keys of the session, so it is for the agent's eyes only."""
    platform: ResourceConfig
    description: PilotDescription


class End(NamedTuple):
    """How the agent of a pilot ended."""

    uid: str
    reason: str | None
    """What went wrong, in a sentence; None if the agent ended in order, or nobody can know."""
    stdout: str
    """The last lines that the agent wrote."""
    stderr: str
    file: str = ''
    """The file that says more, if it is not the agent's own log."""
    words: str = ''
    """What the batch system says, in a sentence; empty if there is none."""


class Reports(NamedTuple):
    """Who is told what becomes of pilots; all are called in the event loop, with the uid of a pilot first."""

    launched: Callable[[str, Mapping[str, Any]], object]
    """Its agent, or its job, is started. The second argument is what `adopt` needs, plain data."""
    refused: Callable[[str, str], object]
    """It cannot be launched, for the reason that is the second argument."""
    told: Callable[[str, str], object]
    """There is something to say about it while it waits."""
    unschedulable: Callable[[str, str], object]
    """It waits for something that will not happen unless something is changed: the batch system's reason."""
    ended: Callable[[End], object]


class Context(NamedTuple):
    """What a launcher works with: the session's event loop and directory, and whom to tell.

    `belongs` are variables that all processes of the session's tasks, and of no others, have in their environment.
    """

    loop: Loop
    directory: Path
    belongs: Mapping[str, str]
    reports: Reports


class Launcher(ABC):
    """Starts agents. Made when it is first needed; all methods are called in the thread of the event loop.

    `near` tells that its agents run on this host: they reach the session without a network, their sandboxes are here.
    """

    near: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self.context = context

    @staticmethod
    @abstractmethod
    def takes(url: str) -> bool:
        """Whether this launcher is for platforms whose `job_manager_endpoint` is this URL."""

    @classmethod
    def check(cls, platform: ResourceConfig, description: PilotDescription) -> None:
        """Raise a `PilotError` if a pilot can never be launched; called where it is submitted, in any thread."""
        return   # most platforms take everything

    @classmethod
    def sees_sandboxes(cls, platform: ResourceConfig) -> bool:
        """Whether sandboxes on the platform can be seen from here, as the same paths."""
        return cls.near

    def locate(self, platform: ResourceConfig, path: str, done: Callable[[str, str], object]) -> None:
        """Call `done(path, error)` with a path of the platform whose variables are filled in there, or an error."""
        done(path, '')

    def expect(self, platform: ResourceConfig) -> None:
        """Get ready for pilots on a platform, which will be launched soon."""
        return   # most launchers always are

    @abstractmethod
    def launch(self, starts: Sequence[Start]) -> None:
        """Start the agents of pilots; each is reported as launched or refused, at once or later."""

    @abstractmethod
    def adopt(self, uid: str, sandbox: Path, handle: Mapping[str, Any]) -> bool:
        """Watch the agent of a pilot that another process has started; False if it does not run (any more)."""

    @abstractmethod
    def clear(self, uid: str) -> None:
        """End what the tasks of a pilot have left running, after the end of its agent."""

    def cancel(self, uid: str) -> bool:
        """End a pilot whose agent is not active yet; False if that is for the agent to do, when it is there."""
        return False

    @abstractmethod
    def kill(self, uid: str) -> None:
        """End the agent of a pilot, and all of its tasks, the hard way; unknown pilots are ignored."""

    @abstractmethod
    def close(self, patience: float) -> None:
        """Wait at most `patience` seconds for all agents to end, and kill those that have not.

        Called in another thread; may be called after the event loop has ended.
        """

    @abstractmethod
    def leave(self) -> None:
        """Let all agents go on, without being watched any more."""

"""What a launcher is: it brings an agent to its resources and tells how it ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Start(NamedTuple):
    """What a launcher needs to start the agent of one pilot."""

    uid: str
    sandbox: Path
    config: Mapping[str, Any]
    """The agent's configuration; holds the keys of the session, so it is for the agent's eyes only."""


class End(NamedTuple):
    """How the agent of a pilot ended."""

    uid: str
    reason: str | None
    """What went wrong, in a sentence; None if the agent ended in order, or nobody can know."""
    stdout: str
    """The last lines that the agent wrote."""
    stderr: str


class Launcher(ABC):
    """Starts agents; all methods are called in the thread of the engine, and `on_end` is called there."""

    def __init__(self, on_end: Callable[[End], None]) -> None:
        self.on_end = on_end

    @abstractmethod
    def launch(self, start: Start) -> None:
        """Start the agent of a pilot; `PlatformError` or `OSError` if that cannot be done."""

    @abstractmethod
    def adopt(self, uid: str, sandbox: Path) -> bool:
        """Watch the agent of a pilot that another process has started; False if it does not run (any more)."""

    @abstractmethod
    def clear(self, uid: str) -> None:
        """End what the tasks of a pilot have left running, after the end of its agent."""

    @abstractmethod
    def kill(self, uid: str) -> None:
        """End the agent of a pilot, and all of its tasks, the hard way; unknown pilots are ignored."""

    @abstractmethod
    def close(self, patience: float) -> None:
        """Wait at most `patience` seconds for all agents to end, and kill those that have not.

        May be called after the event loop has ended.
        """

    @abstractmethod
    def leave(self) -> None:
        """Let all agents go on, without being watched any more."""

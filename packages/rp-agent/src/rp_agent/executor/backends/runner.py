"""Kinds of instances that run tasks as jobs, and their runners: programs that launch tasks on messages of the agent.

Messages to a runner: `{'run': uid, ...}` with the parameters of its kind, and `{'cancel': uid}`. Messages from it, for
each task: `started`, and finally one of `ended` (with a `status` as in wait(2), and optionally `why`), `refused` and
`failed` (with `why`), each with the uid of the task; see `flux.flux_runner`. A runner that replaces another one sends
`ready` when the jobs of that one have been ended. One that cannot reach its instance says `unreachable`, with the
reason, and ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from rp_agent.executor.backends.instance_supervisor import InstanceSupervisor
from rp_agent.executor.backends.launcher import InstanceLauncher, Startup
from rp_agent.executor.backends.process import Processes
from rp_agent.task import AgentTask

News = Callable[[Mapping[str, Any]], object]
Broken = Callable[[str], object]


class Runner(Protocol):
    """The connection to the runner of one instance."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, which the runner handles once it has started."""

    def close(self) -> None:
        """End the runner, and ignore its further messages."""


class JobKind(Protocol):
    """The parts of the job executor that are specific to one kind of instance; a subclass implements them."""

    NAME: ClassVar[str]
    RANK_VARIABLES: ClassVar[tuple[str, ...]]
    BINDS: ClassVar[bool]
    """True if instances bind ranks to cores and GPUs; otherwise ranks bind themselves."""
    launcher: InstanceLauncher

    def request(self, task: AgentTask, argv: tuple[str, ...], environment: dict[str, str],
                output: tuple[str, str]) -> dict[str, Any]:
        """Return the parameters of a task for a runner; raise LaunchRefused if it cannot be run.

        Each rank runs `argv`, with standard output and error in the two files `output`.
        """

    def runner(self, started: Processes, address: str, news: News, broken: Broken) -> Runner:
        """Start a runner for the instance at this address; raise OSError if it cannot be started."""

    def begin(self, supervisor: InstanceSupervisor) -> None:
        """Pass messages of instances to their supervisor that do not come by their output."""
        return

    def close(self) -> None:
        """Release all resources."""
        return


class PipeRunner:
    """A runner that is a child process, connected by pipes.

    `news` is called with its messages, `broken(how)` when it has ended unexpectedly.
    """

    def __init__(self, processes: Processes, startup: Startup, news: News, broken: Broken) -> None:
        self._news = news
        self._broken = broken
        self._closed = False
        self._process = processes.start(startup, self._read_line, self._ended, with_input=True)

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a message to its standard input, as one line."""
        self._process.write(json.dumps(message).encode() + b'\n')

    def close(self) -> None:
        """Close its standard input, which ends it."""
        self._closed = True
        self._process.close_input()

    def _read_line(self, line: str) -> None:
        if not line.startswith('{') or self._closed:
            return   # a warning of the launcher; the last lines are reported when it ends
        try:
            message = json.loads(line)
        except ValueError:
            return
        self._news(message)

    def _ended(self, how: str) -> None:
        if not self._closed:
            self._closed = True
            self._broken(how)

"""What launches tasks with an instance that has a scheduler of its own: a runner, which is told and tells in messages.

To a runner: `{'run': uid, ...}` with what the kind of instance needs to know, and `{'cancel': uid}`. From it, for each
task: `started`, and in the end one of `ended` (with a `status` as of wait(2), and perhaps `why`), `refused` and
`failed` (with `why`), each with the uid of the task; see `runners.flux_runner`. One that takes the place of another
says `ready` when the jobs of that have been ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rp_agent.executor.backends.launcher import Startup
from rp_agent.executor.backends.process import Processes

News = Callable[[Mapping[str, Any]], object]
Broken = Callable[[str], object]


class Runner(Protocol):
    """The connection to what launches tasks with one instance."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Tell it something; it may still be starting."""

    def close(self) -> None:
        """Have it end, or leave it alone if it ends by itself; nothing is heard of it any more."""


class PipeRunner:
    """A runner that is a process of ours, which is spoken to by pipes.

    `news` is called with its messages, `broken(how)` when it has ended although it should not.
    """

    def __init__(self, processes: Processes, startup: Startup, news: News, broken: Broken) -> None:
        self._news = news
        self._broken = broken
        self._closed = False
        self._process = processes.start(startup, self._said, self._ended, spoken_to=True)

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line."""
        self._process.write(json.dumps(message).encode() + b'\n')

    def close(self) -> None:
        """The end of its input ends it."""
        self._closed = True
        self._process.close_input()

    def _said(self, line: str) -> None:
        if not line.startswith('{') or self._closed:
            return   # a warning of the launcher; the last ones are told when it ends
        try:
            message = json.loads(line)
        except ValueError:
            return
        self._news(message)

    def _ended(self, how: str) -> None:
        if not self._closed:
            self._closed = True
            self._broken(how)

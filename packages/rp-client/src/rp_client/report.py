"""The report of a session: what an interactive application shows in its terminal while it waits.

Rules of this file:

- Nothing is written unless standard error is a terminal.
- The waiting thread draws, so that no thread is left, and erases what it has drawn before the wait ends.
- `rich` is imported when the first report is drawn.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rp_api import states
from rp_client.engine import interrupts

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.progress import Progress, TaskID

    from rp_client.core.pilot import PilotRecord
    from rp_client.engine.waiting import Show

MOST_PILOTS = 8
"""Most pilots that are listed, one in a line."""

TERMINAL = threading.Lock()
"""Held by the one report or progress bar that is in the terminal."""


class Report:
    """The report of a session on its pilots, and on the tasks or pilots that are waited for.

    It is off if the environment variable RADICAL_PILOT_REPORT, or without it RADICAL_REPORT, is `FALSE`, `OFF`, `NO`
    or `0`. `pilots()` returns all pilots of the session.
    """

    def __init__(self, pilots: Callable[[], Sequence[PilotRecord]]) -> None:
        self._pilots = pilots
        self._enabled = _is_wanted(os.environ)   # clients of RADICAL-Pilot 1 set it

    @contextmanager
    def waiting(self, what: str, ended: int = 0) -> Iterator[Show | None]:
        """Show a wait for `what`, which is `tasks` or `pilots`, for as long as the block lasts.

        `ended` of them are final and not waited for.

        Yields a function that draws the report, given the number of those that have arrived and of all; None if there
        is nothing to show.
        """
        if not (self._enabled and in_terminal()):
            yield None
            return
        display = _Display(self._pilots, what, ended)
        try:
            yield display.show
        finally:
            display.close()


class _Display:
    """The lines in the terminal during one wait."""

    def __init__(self, pilots: Callable[[], Sequence[PilotRecord]], what: str, ended: int) -> None:
        self._pilots = pilots
        self._what = what
        self._ended = ended
        self._live: Live | None = None
        self._progress: Progress | None = None
        self._bar: TaskID | None = None

    def show(self, arrived: int, total: int) -> None:
        """Draw the present states; the first call takes the terminal, unless another display has it."""
        with interrupts.postponed(), suppress(OSError, ValueError):   # the terminal may be closed by now
            if self._live is None:
                if not TERMINAL.acquire(blocking=False):
                    return
                self._open(total)
            assert self._live is not None
            assert self._progress is not None
            assert self._bar is not None
            self._progress.update(self._bar, completed=arrived + self._ended)
            self._live.update(self._group(), refresh=True)

    def close(self) -> None:
        """Erase what was drawn."""
        if self._live is not None:
            with interrupts.postponed(), suppress(OSError, ValueError):
                self._live.stop()
            TERMINAL.release()

    def _open(self, total: int) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True,
                          redirect_stdout=sys.stdout.isatty())   # a file gets what the application prints
        self._progress = Progress(TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
                                  TimeElapsedColumn(), auto_refresh=False)
        self._bar = self._progress.add_task(self._what, total=total + self._ended)
        self._live.start()
        self._live.console.show_cursor()   # a signal may end the program

    def _group(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        assert self._progress is not None
        pilots = sorted(self._pilots(), key=lambda pilot: pilot.state in states.FINAL)
        lines = [Text(f'{pilot.uid}  {pilot.state}  {pilot.description.resource}') for pilot in pilots[:MOST_PILOTS]]
        if len(pilots) > MOST_PILOTS:
            lines.append(Text(f'and {len(pilots) - MOST_PILOTS} more pilots'))
        return Group(*lines, self._progress)


def in_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


def _is_wanted(environ: Mapping[str, str]) -> bool:
    value = environ.get('RADICAL_PILOT_REPORT') or environ.get('RADICAL_REPORT') or 'TRUE'
    return value.strip().upper() not in ('FALSE', 'OFF', 'NO', '0')

"""The report of a session: a line about tasks that are waited for, and at the end what has failed.

Rules of this file:

- The line is on standard error: drawn in a terminal or a notebook, else written every half a minute.
- The waiting thread draws, or one for it alone: a terminal may be stopped, and nothing else waits for it then.
- Nothing is drawn in the first second, and counting takes at most a two-hundredth of the time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from rp_api import states
from rp_api.system.terminal import in_notebook
from rp_client.engine import interrupts
from rp_client.failed import FailureCounts
from rp_client.progress_line import Line, NotebookLine, PlainLine, TerminalLine, can_draw

if TYPE_CHECKING:
    from rp_client.core.pilot import PilotRecord
    from rp_client.engine.waiting import Show

LINE_EVERY_S = 30.0
"""Seconds between two lines where there is no terminal."""

FIRST_S, REFRESH_S = 1.0, 0.5
"""Seconds before the line is drawn, and after which it is drawn again."""

_COST = 200   # counting for a second is followed by so many without
_RATE_SAMPLES = 60   # of which the first and the last decide

_CLOSE_TIMEOUT = 1.0   # seconds for a thread that may wait for its terminal

TERMINAL = threading.Lock()
"""Held by the one display that is in the terminal."""


class Tally(NamedTuple):
    """Numbers of tasks or calls: those that count as done for the wait, all, and what is known of them."""

    reached: int
    total: int
    done: int = 0
    failed: int = 0
    canceled: int = 0
    running: int = 0
    other: str = ''


def tally_of(reached: int, total: int, found: Mapping[str, int], other: str = '') -> Tally:
    """Return the tally of tasks, given the number in each state."""
    return Tally(reached, total, found.get(states.DONE, 0), found.get(states.FAILED, 0), found.get(states.CANCELED, 0),
                 found.get(states.AGENT_EXECUTING, 0), other)


class Display:
    """What is shown of one wait, or of an executor.

    `every` are the seconds between two lines where nothing can be drawn. `keeps` leaves the last line.
    """

    def __init__(self, what: str, *, every: float = LINE_EVERY_S, keeps: bool = False) -> None:
        self._what = what
        self._every = every
        self._keeps = keeps
        self._line: Line | None = None
        self._drawn = in_notebook() or can_draw(sys.stderr)
        self._next = time.monotonic() + (FIRST_S if self._drawn else every)
        self._samples: deque[tuple[float, int]] = deque(maxlen=_RATE_SAMPLES)

    def show(self, count: Callable[[], Tally]) -> None:
        """Show the present numbers if it is time, unless another display has the terminal."""
        now = time.monotonic()
        if now < self._next:
            return
        tally = count()
        self._next = now + max(REFRESH_S if self._drawn else self._every, _COST * (time.monotonic() - now))
        if tally.reached >= tally.total and not self._keeps:
            self.clear()
        else:
            self._draw(tally, now)

    def last(self, tally: Tally) -> None:
        """Show the last numbers."""
        self._draw(tally, time.monotonic())

    def clear(self) -> None:
        """Remove the line, for now or for good."""
        self._samples.clear()
        line, self._line = self._line, None
        if line is not None:
            with interrupts.postponed(), suppress(OSError, ValueError):
                line.close(keep=self._keeps)
            if self._drawn:
                TERMINAL.release()

    def _draw(self, tally: Tally, now: float) -> None:
        if len(self._samples) == 1 and self._samples[0][1] == tally.reached:
            self._samples.clear()   # the time before the first result does not count
        self._samples.append((now, tally.reached))
        with interrupts.postponed(), suppress(OSError, ValueError):   # the terminal may be closed by now
            if self._line is None and not self._open():
                return
            assert self._line is not None
            self._line.draw(self._what, tally.reached / (tally.total or 1), self._text(tally))

    def _open(self) -> bool:
        """Take the terminal; return False if another display has it."""
        if self._drawn and not TERMINAL.acquire(blocking=False):
            return False
        self._line = (NotebookLine() if in_notebook() else TerminalLine(sys.stderr) if self._drawn else PlainLine())
        return True

    def _text(self, tally: Tally) -> str:
        numbers = {'done': tally.done, 'failed': tally.failed, 'cancelled': tally.canceled, 'running': tally.running}
        words = [f'{number:,} {name}' for name, number in numbers.items() if number]
        rate = self._rate()
        if rate > 0:
            words.append(f'{rate:.3g}/s')
            if tally.reached < tally.total:
                words.append(f'{_clock((tally.total - tally.reached) / rate)} left')
        words += [tally.other] if tally.other else []
        return ', '.join([f'{tally.reached:,}/{tally.total:,}', *words])

    def _rate(self) -> float:
        (start, before), (end, now) = self._samples[0], self._samples[-1]
        return (now - before) / (end - start) if end > start else 0.0


class Ticker:
    """A thread that shows a display every `REFRESH_S` seconds, until it is closed."""

    def __init__(self, display: Display, count: Callable[[], Tally]) -> None:
        self._display, self._count = display, count
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name='rp.progress', daemon=True)
        self._thread.start()

    def close(self, last: Tally | None = None) -> None:
        """End the thread, unless it waits for its terminal, and show the last numbers."""
        self._over.set()
        self._thread.join(_CLOSE_TIMEOUT)
        if not self._thread.is_alive():
            if last is not None:
                self._display.last(last)
            self._display.clear()

    def _run(self) -> None:
        while not self._over.wait(REFRESH_S):
            self._display.show(self._count)


class Report:
    """The report of a session on its tasks and pilots.

    Args:
        pilots: Returns all pilots of the session.
        wanted: False to show nothing, as with one of the environment variables RADICAL_PILOT_REPORT and, without it,
            RADICAL_REPORT: `FALSE`, `OFF`, `NO` or `0`.
        every: Seconds between two lines where there is no terminal.
    """

    def __init__(self, pilots: Callable[[], Sequence[PilotRecord]], *, wanted: bool = True,
                 every: float = LINE_EVERY_S) -> None:
        self._pilots = pilots
        self._every = every
        self._enabled = wanted and is_wanted(os.environ)   # clients of RADICAL-Pilot 1 set it
        self.failures = FailureCounts()

    @property
    def enabled(self) -> bool:
        """True if anything is shown."""
        return self._enabled

    def display(self, what: str) -> Display:
        """Return a display, which is shown if `enabled`."""
        return Display(what, every=self._every)

    @contextmanager
    def waiting(self, what: str, found: Callable[[], Mapping[str, int]] = dict,
                ended: int = 0) -> Iterator[Show | None]:
        """Show a wait for `what`, which is `tasks` or `pilots`, for as long as the block lasts.

        `found()` returns the number of tasks in each state; `ended` of them are final and not waited for.

        Yields a function that draws the report, given the number of those that have arrived and of all; None if there
        is nothing to show.
        """
        if not self._enabled:
            yield None
            return
        display = self.display(what)

        def show(arrived: int, total: int) -> None:
            display.show(lambda: tally_of(arrived + ended, total + ended, found(),
                                          self._about_pilots(always=what == 'pilots')))

        try:
            yield show
        finally:
            display.clear()

    def say(self, text: str) -> None:
        """Write lines to standard error."""
        if self._enabled and text:
            with suppress(OSError, ValueError, AttributeError):   # it may be closed, or missing
                sys.stderr.write(text)
                sys.stderr.flush()

    def _about_pilots(self, *, always: bool) -> str:
        """Return the states of the pilots, or nothing if one is active."""
        pilots = self._pilots()
        if not always and any(pilot.state == states.PMGR_ACTIVE for pilot in pilots):
            return ''
        if len(pilots) == 1:
            return f'{pilots[0].uid} is {pilots[0].state} on {pilots[0].description.resource}'
        counts = Counter(pilot.state for pilot in pilots)
        return 'pilots: ' + ', '.join(f'{count} {state}' for state, count in counts.items()) if counts else ''


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the environment leaves the report on."""
    value = environ.get('RADICAL_PILOT_REPORT') or environ.get('RADICAL_REPORT') or 'TRUE'
    return value.strip().upper() not in ('FALSE', 'OFF', 'NO', '0')


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02}:{rest:02}' if hours else f'{minutes}:{rest:02}'

"""The screen of `rp top`, with textual."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static
from textual.worker import get_current_worker

from rp_api.coordination.records import Records
from rp_client.cli.tasks.top_lines import lines
from rp_client.inspect.overview import Overview, look

_STEP_S = 0.05


class TopScreen(App[None]):
    """Shows a session until the user quits.

    Args:
        open_records: Opens the records of the session, for the thread that calls it.
        interval: Seconds between two looks.
    """

    CSS = 'Screen { background: $background; } #all { padding: 0 1; }'
    BINDINGS: ClassVar[list[BindingType]] = [('q', 'quit', 'Quit'), ('r', 'look', 'Look again')]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, open_records: Callable[[], Records], interval: float) -> None:
        super().__init__()
        self._open = open_records
        self._interval = interval
        self._rates: deque[float] = deque(maxlen=40)
        self._soon = threading.Event()

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        with VerticalScroll(can_focus=True):
            yield Static('looking ...', id='all')
        yield Footer()

    def on_mount(self) -> None:
        """Start the thread that looks at the session."""
        self.run_worker(self._watch, thread=True, exclusive=True)

    def action_look(self) -> None:
        """Look again at once."""
        self._soon.set()

    def _watch(self) -> None:
        """Look at the session again and again; in a thread of its own."""
        worker, before = get_current_worker(), None
        while not worker.is_cancelled:
            begun = time.monotonic()
            try:
                with self._open() as records:
                    before = look(records, before)
            except Exception as error:   # the session may be removed, or its database not be reachable for a time
                self.call_from_thread(self._tell, str(error))
            else:
                self.call_from_thread(self._show, before)
            self._soon.clear()
            end = time.monotonic() + max(self._interval, 3 * (time.monotonic() - begun))
            while time.monotonic() < end and not worker.is_cancelled and not self._soon.wait(_STEP_S):
                pass

    def _show(self, found: Overview) -> None:
        if found.rate is not None:
            self._rates.append(found.rate)
        self.query_one('#all', Static).update(Text('\n').join(
            Text.assemble(*line) for line in lines(found, list(self._rates))))

    def _tell(self, text: str) -> None:
        self.query_one('#all', Static).update(Text(f'the session cannot be read: {text}'))

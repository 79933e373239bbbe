"""A hub that for some seconds after each SIGUSR1 loses, delays or repeats messages: `unreliable_hub.py WHAT SECONDS`.

WHAT is `drop`, `delay`, `repeat` or `mix`. It concerns what the hub gets as well as what it sends. Delayed messages
arrive in another order.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from rp_api.coordination.hub import main, server

LONGEST = 1.0
"""Most seconds that a message is late."""

WHAT, SECONDS = sys.argv[1], float(sys.argv[2])


class UnreliableHubServer(server.HubServer):
    """Serves like any other, but for what gets lost on the way."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._until = 0.0
        super().__init__(*args, **kwargs)
        signal.signal(signal.SIGUSR1, self._begin)

    def _begin(self, *_: object) -> None:
        self._until = time.monotonic() + SECONDS

    def _handle(self, *message: Any) -> None:
        self._pass(super()._handle, self._arrive_late, message)

    def _send(self, *message: Any) -> None:
        self._pass(super()._send, super()._send, message)

    def _pass(self, on: Callable[..., Any], later: Callable[..., Any], message: tuple[Any, ...]) -> None:
        if time.monotonic() >= self._until:
            on(*message)
            return
        fate = random.choice(['drop', 'delay', 'repeat', 'arrive']) if WHAT == 'mix' else WHAT
        if fate == 'delay':
            self._loop.call_later(random.uniform(0, LONGEST), later, *message)
        elif fate != 'drop':
            on(*message)
            if fate == 'repeat':
                on(*message)

    def _arrive_late(self, *message: Any) -> None:
        super()._handle(*message)
        self._turn()


if __name__ == '__main__':
    main.HubServer = UnreliableHubServer  # type: ignore[attr-defined]
    sys.exit(main.main())

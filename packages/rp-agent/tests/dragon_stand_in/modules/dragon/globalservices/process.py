from __future__ import annotations

import time
from collections.abc import Iterable

from dragon.native.process import STARTED, poll


def multi_join(identifiers: Iterable[int], timeout: float = 0.0,
               join_all: bool = False) -> tuple[list[tuple[int, int]] | None, dict[int, str]]:
    deadline = time.monotonic() + timeout
    while True:
        ended = [(number, STARTED[number].returncode) for number in identifiers if poll(STARTED[number]) is not None]
        if ended or time.monotonic() >= deadline:
            return ended or None, {}
        time.sleep(0.005)

"""Return values of tasks as hooks of a master see them: as they were returned, not as they travel."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rp_api.errors import DeserializationError
from rp_api.values import from_plain, to_plain
from rp_raptor.wire.requirements import is_for_agent


@contextmanager
def restored(tasks: Sequence[dict[str, Any]]) -> Generator[None, None, None]:
    """Have the tasks show their return values as they were; afterwards they are plain data, also those that are new.

    Programs that the agent runs return no objects, so nothing is unpickled for them.
    """
    before = [(task, task.get('return_value')) for task in tasks]
    shown = []
    for task, plain in before:
        try:
            task['return_value'] = plain if is_for_agent(task['description']) else from_plain(plain)
        except DeserializationError:   # the application may be able to, or will be told
            task['return_value'] = plain
        shown.append(task['return_value'])
    try:
        yield
    finally:
        for (task, plain), value in zip(before, shown, strict=True):
            now = task.get('return_value')
            task['return_value'] = plain if now is value else to_plain(
                now, os.environ.get('RP_PILOT_SANDBOX', ''), task['uid'])

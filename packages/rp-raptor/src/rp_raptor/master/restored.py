"""Return values of tasks as the objects that hooks see, instead of their plain form."""

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
    """Replace the return values of tasks by objects within the context, and by plain data at its end.

    Values of programs that the agent runs are not unpickled: programs return no objects.
    """
    before = [(task, task.get('return_value')) for task in tasks]
    shown = []
    for task, plain in before:
        try:
            task['return_value'] = plain if is_for_agent(task['description']) else from_plain(plain)
        except DeserializationError:   # the application may be able to restore it, or gets the error
            task['return_value'] = plain
        shown.append(task['return_value'])
    try:
        yield
    finally:
        for (task, plain), value in zip(before, shown, strict=True):
            now = task.get('return_value')
            task['return_value'] = plain if now is value else to_plain(
                now, os.environ.get('RP_PILOT_SANDBOX', ''), task['uid'])

"""The choice of tasks by state, name, node, slowness or a condition, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from rp_api import states
from rp_api.coordination.records import Records, Task
from rp_api.reasons.failed import has_failed
from rp_api.reasons.slow import slowness
from rp_api.task_info.slots import nodes_of
from rp_client.inspect.cached import CachedView
from rp_client.inspect.condition import Condition
from rp_client.inspect.rows import COLUMNS, Row, row_of

_RUNS = states.TASK.value(states.AGENT_EXECUTING)

GROUPS = {
    'waiting': [row.name for row in states.TASK_STATES if row.value < _RUNS],
    'running': [row.name for row in states.TASK_STATES if _RUNS <= row.value < states.TASK.value(states.DONE)]}
"""States by the name of their group."""


class Selection:
    """A choice of tasks; see `rp task list --help` for the arguments.

    Raises:
        ValueError: A state is unknown, or the condition is not valid.
    """

    def __init__(self, wanted: Sequence[str] = (), *, failed: bool = False, slow: bool = False,
                 name: str | None = None, node: str | None = None, pilot: str | None = None,
                 where: str | None = None) -> None:
        named = [*(state for each in wanted for state in each.split(',')), *(['failed'] if failed else [])]
        self._states = {state for each in named for state in _of_group(each)}
        self._ended = failed and states.CANCELED not in self._states   # of those cancelled, only what has failed
        if self._ended:
            self._states.add(states.CANCELED)
        self._slow, self._name, self._node, self._pilot = slow, name, node, pilot
        self._where = Condition(where, COLUMNS) if where else None
        self._reasons = where is not None and ('reason' in where or 'cause' in where)

    def rows(self, records: Records, after: int = 0, *, reasons: bool = True) -> Iterator[Row]:
        """Yield the rows of the tasks after the one of that number; ValueError if the condition cannot be evaluated.

        Args:
            records: The session.
            after: Number of a task.
            reasons: Add the reasons to the rows.
        """
        view = CachedView(records)
        for _, task in records.tasks(self._states, self._pilot, after):
            if not self._fits(task, view):
                continue
            row = row_of(task, view, reasons=reasons or self._reasons)
            if self._where is None or self._where(row):
                yield row

    def _fits(self, task: Task, view: CachedView) -> bool:
        if self._ended and task['state'] == states.CANCELED and not has_failed(task):
            return False
        if self._name is not None and not fnmatchcase(task['description'].get('name') or '', self._name):
            return False
        if self._node is not None and not any(fnmatchcase(node, self._node) for node in nodes_of(task)):
            return False
        return not self._slow or slowness(task, view) is not None


def _of_group(name: str) -> list[str]:
    """Return the states that a name stands for."""
    if name.lower() in GROUPS:
        return GROUPS[name.lower()]
    upper = 'CANCELED' if name.upper() == 'CANCELLED' else name.upper()
    if upper not in states.TASK.names:
        raise ValueError(f'the state {name!r} is unknown; there are waiting, running, {", ".join(states.TASK.names)}')
    return [upper]

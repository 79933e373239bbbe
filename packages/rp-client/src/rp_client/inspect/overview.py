"""The present state of a session in a few figures: states, rates, pilots and their use, waiting and failed tasks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from rp_api import states
from rp_api.coordination.records import Records
from rp_api.description.partitions import WHOLE
from rp_api.reasons.explain import reason_of
from rp_api.reasons.failed import has_failed
from rp_client.inspect.cached import CachedView
from rp_client.inspect.rows import Row, pilot_row, row_of
from rp_client.inspect.select import GROUPS

MAX_FAILED = 1000
"""Failed tasks whose causes are counted."""

MAX_RUNNING = 20_000
"""Running tasks whose cores are counted."""


class Overview(NamedTuple):
    """A session at one time.

    Attributes:
        session: Its uid.
        now: The time, in seconds since 1970.
        counts: Number of tasks in each state.
        rate: Tasks per second that have ended since the overview before; None in the first one.
        pilots: The rows of its pilots, with the cores and GPUs that tasks hold, `busy_cores` and `busy_gpus`, and the
            number of these `tasks`.
        waiting: The rows of the tasks that have waited longest.
        failures: The failed tasks by `cause`, the most frequent first: their number (`tasks`), and an `example` with
            its `reason`.
    """

    session: str
    now: float
    counts: Mapping[str, int]
    rate: float | None
    pilots: list[Row]
    waiting: list[Row]
    failures: list[dict[str, Any]]

    @property
    def ended(self) -> int:
        """The number of final tasks."""
        return sum(self.counts.get(state, 0) for state in states.FINAL)

    def group(self, name: str) -> int:
        """Return the number of tasks that are `waiting` or `running`."""
        return sum(self.counts.get(state, 0) for state in GROUPS[name])


def look(records: Records, before: Overview | None = None, *, waiting: int = 5) -> Overview:
    """Return the overview of a session.

    Args:
        records: The session.
        before: The overview before, for the rate.
        waiting: Number of waiting tasks to show.
    """
    view = CachedView(records)
    now = time.time()
    counts = records.counts()
    found = Overview(records.uid, now, counts, None, _pilots(records, view),
                     [row_of(task, view) for _, task in records.page(0, waiting, GROUPS['waiting'])],
                     _failures(records, view, counts))
    if before is None or now <= before.now:
        return found
    return found._replace(rate=max(0, found.ended - before.ended) / (now - before.now))


def _pilots(records: Records, view: CachedView) -> list[Row]:
    wholes = {pilot['uid']: pilot['record'].get(WHOLE, pilot['uid']) for pilot in view.pilots()}
    busy_cores, busy_gpus, tasks = Counter[str](), Counter[str](), Counter[str]()
    for _, task in records.page(0, MAX_RUNNING, [states.AGENT_EXECUTING, states.AGENT_EXECUTING_PENDING]):
        description, uid = task['description'], wholes.get(task['pilot'], '')
        ranks = description.get('ranks', 1)
        busy_cores[uid] += ranks * description.get('cores_per_rank', 1)
        busy_gpus[uid] += ranks * description.get('gpus_per_rank', 0)
        tasks[uid] += 1
    return [pilot_row(pilot, view) | {'busy_cores': int(busy_cores[uid]), 'busy_gpus': float(busy_gpus[uid]),
                                      'tasks': tasks[uid]}
            for pilot in view.pilots() if wholes[uid := pilot['uid']] == uid]


def _failures(records: Records, view: CachedView, counts: Mapping[str, int]) -> list[dict[str, Any]]:
    found: Counter[str] = Counter()
    first: dict[str, dict[str, Any]] = {}
    for state in filter(counts.get, (states.FAILED, states.CANCELED)):
        for _, task in records.page(0, MAX_FAILED, [state]):
            if task['state'] == state and has_failed(task):   # pages have final tasks that wait for the client, too
                reason = reason_of(task, view)
                cause, sentence = (reason.kind, reason.sentence) if reason else ('failed', '')
                found[cause] += 1
                first.setdefault(cause, {'cause': cause, 'example': task['uid'], 'reason': sentence})
    return [{**first[cause], 'tasks': count} for cause, count in found.most_common()]

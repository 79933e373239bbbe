"""The present state of a session in a few figures: states, rates, pilots and their use, waiting and failed tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from rp_api import states
from rp_api.description.partitions import WHOLE
from rp_api.reasons.explain import reason_of_pilot
from rp_api.reasons.failed import has_failed
from rp_client.inspect.cached import CachedView
from rp_client.inspect.records import Records
from rp_client.inspect.rows import Row, row_of
from rp_client.inspect.select import GROUPS

MAX_FAILED = 1000
"""Failed tasks whose causes are counted."""

MAX_RUNNING = 20_000
"""Running tasks whose cores are counted."""


class PilotUse(NamedTuple):
    """A pilot, with its cores and GPUs and how many of them tasks hold."""

    uid: str
    resource: str
    state: str
    cores: int
    busy_cores: int
    gpus: float
    busy_gpus: float
    tasks: int
    reason: str


class Failures(NamedTuple):
    """Failed tasks of one kind: their number, and an example with its reason."""

    kind: str
    tasks: int
    example: str
    reason: str


class Overview(NamedTuple):
    """A session at one time.

    Attributes:
        session: Its uid.
        now: The time, in seconds since 1970.
        counts: Number of tasks in each state.
        rate: Tasks per second that have ended since the overview before; None in the first one.
        pilots: Its pilots.
        waiting: The rows of the tasks that have waited longest.
        failures: The failed tasks by kind, the most frequent first.
    """

    session: str
    now: float
    counts: Mapping[str, int]
    rate: float | None
    pilots: list[PilotUse]
    waiting: list[Row]
    failures: list[Failures]

    @property
    def ended(self) -> int:
        """The number of final tasks."""
        return sum(self.counts.get(state, 0) for state in states.FINAL)

    def group(self, name: str) -> int:
        """Return the number of tasks that are `waiting` or `running`."""
        return sum(self.counts.get(state, 0) for state in GROUPS[name])

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**self._asdict(), 'pilots': [pilot._asdict() for pilot in self.pilots],
                'failures': [each._asdict() for each in self.failures], 'counts': dict(self.counts)}


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


def _pilots(records: Records, view: CachedView) -> list[PilotUse]:
    wholes = {pilot['uid']: pilot['record'].get(WHOLE, pilot['uid']) for pilot in view.pilots()}
    busy: dict[str, list[float]] = {uid: [0, 0, 0] for uid in wholes}
    for _, task in records.page(0, MAX_RUNNING, [states.AGENT_EXECUTING, states.AGENT_EXECUTING_PENDING]):
        description, held = task['description'], busy.get(wholes.get(task['pilot'], ''))
        if held is not None:
            ranks = description.get('ranks', 1)
            held[0] += ranks * description.get('cores_per_rank', 1)
            held[1] += ranks * description.get('gpus_per_rank', 0)
            held[2] += 1
    pilots = []
    for pilot in view.pilots():
        if WHOLE in pilot['record']:
            continue
        description, details = pilot['record'].get('description', {}), pilot.get('resource_details') or {}
        cores = int(details.get('cores') or description.get('cores') or 0)
        gpus = float(details.get('gpus') or description.get('gpus') or 0)
        cores_held, gpus_held, tasks = busy[pilot['uid']]
        reason = reason_of_pilot(pilot, view)
        pilots.append(PilotUse(pilot['uid'], str(description.get('resource', '')), pilot['state'], cores,
                               min(cores, int(cores_held)), gpus, min(gpus, gpus_held), int(tasks),
                               reason.sentence if reason else ''))
    return pilots


def _failures(records: Records, view: CachedView, counts: Mapping[str, int]) -> list[Failures]:
    found: dict[str, list[Row]] = {}
    for state in filter(counts.get, (states.FAILED, states.CANCELED)):
        for _, task in records.page(0, MAX_FAILED, [state]):
            if task['state'] == state and has_failed(task):   # pages have final tasks that wait for the client, too
                row = row_of(task, view)
                found.setdefault(row['kind'] or 'failed', []).append(row)
    failures = [Failures(kind, len(rows), rows[0]['uid'], rows[0]['reason'] or '') for kind, rows in found.items()]
    return sorted(failures, key=lambda each: -each.tasks)

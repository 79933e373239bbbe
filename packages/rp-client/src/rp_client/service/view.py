"""A running session as `rp_api.reasons` sees it: the view from which the reasons of its tasks and pilots are made."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from rp_api import states
from rp_api.constants import RAPTOR_MASTER
from rp_api.coordination.contract import PackedInfo
from rp_api.coordination.records import MAX_PEERS, facts
from rp_api.description.partitions import WHOLE
from rp_api.errors import PilotError
from rp_api.raptor_link import ANY
from rp_api.staging.location import Sandboxes, resolve
from rp_client.core.pilot import PilotRecord
from rp_client.core.task import TaskRecord
from rp_client.service.owner import Owner
from rp_client.stager.base import INWARDS, client_directives


class LiveView:
    """The tables of a session of this process; it has the methods of `rp_api.reasons.view.View`."""

    def __init__(self, session: Owner) -> None:
        self._session = session
        self._pilots: list[dict[str, Any]] | None = None

    @property
    def now(self) -> float:
        """The present time, in seconds since 1970."""
        return time.time()

    def task(self, uid: str) -> dict[str, Any] | None:
        """Return a task of any manager; for `*`, the RAPTOR master that has come the furthest."""
        if uid == ANY:
            masters = [(task, tmgr) for tmgr, manager in list(self._session.tmgrs.items())
                       for task in manager.tasks.in_memory() if task.common.mode == RAPTOR_MASTER]
            found = max(masters, key=lambda each: _progress_of(each[0]), default=None)
        else:
            found = next(((task, tmgr) for tmgr, manager in list(self._session.tmgrs.items())
                          if (task := manager.tasks.find(uid)) is not None), None)
        return None if found is None else self.of_task(*found)

    def of_task(self, task: TaskRecord, owner: str) -> dict[str, Any]:
        """Return a task of that task manager as plain data."""
        info = facts(task.state, PackedInfo(task.known).as_dict()) if task.known else {}
        found = {**info, 'uid': task.uid, 'tmgr': owner, 'pilot': task.place, 'attempts': task.attempts,
                 'description': task.sparse(), 'state': task.state, 'submitted': task.common.submitted or None}
        if task.state in (states.FAILED, states.CANCELED):
            found['outputs'] = task.outputs()
        if task.state == states.TMGR_STAGING_INPUT:
            found['progress'] = _input_left(task)
        return found

    def pilots(self) -> Sequence[Mapping[str, Any]]:
        """Return all pilots and partitions."""
        if self._pilots is None:
            self._pilots = [self.of_pilot(place) for pilot in self._session.pilots()
                            for place in (pilot, *pilot.partitions)]
        return self._pilots

    def of_pilot(self, pilot: PilotRecord) -> dict[str, Any]:
        """Return a pilot or partition as plain data."""
        record = {'description': pilot.description, 'sandboxes': asdict(pilot.directories),
                  **({WHOLE: pilot.whole.uid} if pilot.whole is not pilot else {})}
        return {'uid': pilot.uid, 'state': pilot.state, 'record': record, 'resource_details': pilot.resource_details,
                'exception': pilot.exception, 'exception_detail': pilot.exception_detail, 'stderr': pilot.stderr,
                'reason': pilot.reason, 'waiting': pilot.waiting}

    def peers(self, task: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return tasks in memory with the same common description that are done."""
        record = self._session.uids.find_task(task['uid'])
        if record is None:
            return []
        found = ((other, tmgr) for tmgr, manager in list(self._session.tmgrs.items())
                 for other in manager.tasks.in_memory()
                 if other.common is record.common and other.state == states.DONE)
        return [self.of_task(*each) for each in islice(found, MAX_PEERS)]

    def note(self, key: str) -> Any:
        """Return what the coordinator has noted, or would have: of managers and jobs, and of itself."""
        if key == 'coordinator':
            return self._session.away
        if key in self._session.tmgrs:
            manager = self._session.tmgrs[key]
            return {'scheduler': manager.scheduler, 'pilots': list(manager.pilots), 'last': manager.flow.last_end}
        kind, _, uid = key.partition('.')
        queues = (manager.flow.queues for manager in list(self._session.pmgrs.values()))
        return next(({'queue': known[uid]} for known in queues if uid in known), None) if kind == 'job' else None


def _progress_of(task: TaskRecord) -> int:
    """Return how far a task has come; final ones are behind all others."""
    return -1 if task.state in states.FINAL else states.TASK.value(task.state)


def _input_left(task: TaskRecord) -> dict[str, Any]:
    """Return how many files, and bytes, of the client's input staging are left; nothing for sandboxes elsewhere."""
    if task.pilot is None or not task.pilot.directories.here:
        return {}
    known = task.pilot.directories
    sandboxes = Sandboxes(client=known.client, resource=known.resource, session=known.session, pilot=known.pilot,
                          task=task.sandbox or '')
    sizes = []
    for directive in client_directives(task.sparse().get('input_staging') or ()):
        try:
            source = os.path.getsize(resolve(directive['source'], INWARDS[0], sandboxes))
            target = resolve(directive['target'], INWARDS[1], sandboxes)
            sizes.append((source, min(source, os.path.getsize(target)) if os.path.exists(target) else -1))
        except (OSError, PilotError):
            continue
    left = [size for size, there in sizes if there < size]
    total = sum(size for size, _ in sizes)
    return {'files': len(sizes), 'left': len(left), 'bytes': total,
            'bytes_left': total - sum(max(0, there) for _, there in sizes)} if sizes else {}

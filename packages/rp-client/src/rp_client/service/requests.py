"""What the owner of a session does at the request of a command: `rp task cancel`, `rp task retry`, `rp pilot stop`.

A request names what to `do` with `uids`. The answer has a list of what was done, `did`, and sentences, by uid, for what
was `refused`; or an `error`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import sentence
from rp_client.core.task import TaskRecord
from rp_client.service.handover import Reply
from rp_client.service.owner import Owner
from rp_client.service.task_requests import TaskRequests

RETRY = '.retry'
"""The part of a uid before the number of the retry."""


class Requested:
    """Carries out requests to the owner of a session; `carry_out` is called in its loop."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._do: dict[str, Callable[[list[str], Reply], None]] = {
            'cancel': self._cancel, 'retry': self._retry, 'stop': self._stop}

    def carry_out(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Do what is requested, and answer."""
        do, uids = self._do.get(request.get('do', '')), request.get('uids')
        if self._owner.closed:
            reply({'error': f'{self._owner.uid} is being closed'})
        elif do is None or not isinstance(uids, list):
            reply({'error': f'the owner of {self._owner.uid} does not know how to do {request.get("do")!r:.100}'})
        else:
            try:
                do(uids, reply)
            except Exception as error:   # whatever it is, it must not end the application's session
                reply({'error': sentence(error)})

    def _find(self, uids: Iterable[str]) -> tuple[dict[TaskRequests, list[TaskRecord]], dict[str, str]]:
        """Return the tasks of each manager, and a sentence for each uid that is unknown."""
        found: dict[TaskRequests, list[TaskRecord]] = {}
        unknown = {}
        for uid in uids:
            for tmgr in list(self._owner.tmgrs.values()):
                task = tmgr.tasks.find(uid)
                if task is not None:
                    found.setdefault(tmgr, []).append(task)
                    break
            else:
                unknown[uid] = 'is not known to the application'
        return found, unknown

    def _cancel(self, uids: list[str], reply: Reply) -> None:
        found, refused = self._find(uids)
        did = []
        for tmgr, tasks in found.items():
            live = [task for task in tasks if task.state not in states.FINAL]
            refused |= {task.uid: f'is {task.state} already' for task in tasks if task.state in states.FINAL}
            did += [task.uid for task in live]
            tmgr.flow.cancel(live)
        reply({'did': did, 'refused': refused})

    def _retry(self, uids: list[str], reply: Reply) -> None:
        found, refused = self._find(uids)
        wanted = []
        for tmgr, tasks in found.items():
            for task in tasks:
                if task.state in (states.FAILED, states.CANCELED):
                    wanted.append((tmgr, task.uid, task.sparse()))
                else:
                    refused[task.uid] = f'is {task.state}: only tasks that have failed or were cancelled run again'
        # submissions wait for the coordinator, whose answers come through the loop
        self._owner.engine.helpers.run(partial(self._submit, wanted, refused), reply,
                                       lambda error: reply({'error': sentence(error)}))

    def _submit(self, wanted: Iterable[tuple[TaskRequests, str, dict[str, Any]]], refused: dict[str, str]) -> dict[
            str, Any]:
        """Submit tasks again, each as a new one; called in a helper's thread."""
        did = []
        for tmgr, uid, description in wanted:
            new = self._new_uid(uid)
            pilot = description.get('pilot')
            if pilot and pilot not in tmgr.pilots:
                description = {name: value for name, value in description.items() if name != 'pilot'}
            try:
                tmgr.submit([TaskDescription.from_sparse({**description, 'uid': new})])
                did.append(new)
            except (ValueError, RuntimeError) as error:
                refused[uid] = sentence(error)
        return {'did': did, 'refused': refused}

    def _new_uid(self, uid: str) -> str:
        """Return an unused uid for a task that runs again: that of the first task, with the number of the retry."""
        first = uid.rpartition(RETRY)[0] if uid.rpartition(RETRY)[2].isdecimal() else ''
        uids = self._owner.uids
        return next(new for number in itertools.count(1)
                    if (new := f'{first or uid}{RETRY}{number}') in uids.unknown_tasks([new]))

    def _stop(self, uids: list[str], reply: Reply) -> None:
        refused, live = {}, []
        for uid in uids:
            try:
                pilot = self._owner.find_pilot(uid)
            except ValueError as error:
                refused[uid] = str(error)
                continue
            if pilot.state in states.FINAL:
                refused[uid] = f'is {pilot.state} already'
            else:
                live.append(pilot)
        for pmgr in list(self._owner.pmgrs.values()):
            pmgr.flow.cancel([pilot for pilot in live if pilot.uid in pmgr.pilots])
        reply({'did': [pilot.uid for pilot in live], 'refused': refused})

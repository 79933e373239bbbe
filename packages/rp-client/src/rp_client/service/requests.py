"""What the owner of a session does at the request of a command: `rp task cancel`, `rp task retry`, `rp pilot stop`.

A request names what to `do` with `uids`. The answer has a list of what was done, `did`, and sentences, by uid, for what
was `refused`; or an `error`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
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

    def carry_out(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Do what is requested, and answer."""
        do = {'cancel': self._cancel, 'retry': self._retry, 'stop': self._stop}.get(request.get('do', ''))
        uids = request.get('uids')
        if self._owner.closed:
            reply({'error': f'{self._owner.uid} is being closed'})
        elif do is None or not isinstance(uids, list):
            reply({'error': f'the owner of {self._owner.uid} does not know how to do {request.get("do")!r:.100}'})
        else:
            try:
                do(uids, reply)
            except Exception as error:   # whatever it is, it must not end the application's session
                reply({'error': sentence(error)})

    def _find(self, uids: list[str]) -> tuple[dict[TaskRequests, list[TaskRecord]], dict[str, str]]:
        """Return the tasks of each manager, and a sentence for each uid that is unknown."""
        found = {tmgr: [task for uid in uids if (task := tmgr.tasks.find(uid)) is not None]
                 for tmgr in list(self._owner.tmgrs.values())}
        known = {task.uid for tasks in found.values() for task in tasks}
        return found, {uid: 'is not known to the application' for uid in uids if uid not in known}

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

    def _submit(self, wanted: Iterable[tuple[TaskRequests, str, dict[str, Any]]],
                refused: dict[str, str]) -> dict[str, Any]:
        """Submit tasks again, each as a new one; called in a helper's thread."""
        did = []
        for tmgr, uid, description in wanted:
            new = {**description, 'uid': self._new_uid(uid)}
            if new.get('pilot') not in tmgr.pilots:
                new.pop('pilot', None)
            try:
                tmgr.submit([TaskDescription.from_sparse(new)])
                did.append(new['uid'])
            except (ValueError, RuntimeError) as error:
                refused[uid] = sentence(error)
        return {'did': did, 'refused': refused}

    def _new_uid(self, uid: str) -> str:
        """Return an unused uid for a task that runs again: that of the first task, with the number of the retry."""
        first, _, last = uid.rpartition(RETRY)
        first = first if first and last.isdecimal() else uid
        return next(new for number in itertools.count(1)
                    if (new := f'{first}{RETRY}{number}') in self._owner.uids.unknown_tasks([new]))

    def _stop(self, uids: list[str], reply: Reply) -> None:
        known = {pilot.uid: pilot for pilot in self._owner.pilots()}
        refused = {uid: f'is {known[uid].state} already' if uid in known else 'is not known to the application'
                   for uid in uids if uid not in known or known[uid].state in states.FINAL}
        did = [uid for uid in uids if uid not in refused]
        for pmgr in list(self._owner.pmgrs.values()):
            pmgr.flow.cancel([known[uid] for uid in did if uid in pmgr.pilots])
        reply({'did': did, 'refused': refused})

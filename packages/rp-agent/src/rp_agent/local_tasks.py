"""Tasks that processes on the pilot's nodes submit at its endpoint.

The agent runs them, and the application does not know them. Their results are kept until the pilot ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from rp_agent.calls import Call, Calls
from rp_agent.components.stage import Owner
from rp_agent.task import AgentTask
from rp_api import constants as c
from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.raptor_defaults import complete
from rp_api.staging.directive import expand
from rp_api.staging.location import acts_on_client
from rp_api.task_info.usage import expanded

_RAPTOR = (c.RAPTOR_MASTER, c.RAPTOR_WORKER)
_SERVICES = (c.TASK_SERVICE, c.AGENT_SERVICE)


class LocalTasks:
    """The tasks that were submitted at the endpoint of the pilot `pilot`, and the calls on them."""

    def __init__(self, pilot: str, agent: Owner) -> None:
        self._pilot = pilot
        self._agent = agent
        self._numbers = count()
        self._results: dict[str, dict[str, Any] | None] = {}   # None until the task has ended
        self._waits: dict[str, tuple[Call, list[str], set[str]]] = {}   # by call: all tasks, and those that run

    def register(self, calls: Calls) -> None:
        """Register the calls that applications and tasks may use."""
        for procedure in (self.submit_tasks, self.get_tasks, self.wait_tasks, self.cancel_tasks, self.cancel_pilots):
            calls.register(procedure.__name__, procedure)

    def submit_tasks(self, call: Call) -> None:
        """Run tasks: `submit_tasks(descriptions)` returns their uids. If one is refused, none is run."""
        given = _argument(call, 'descriptions')
        prepared = [self._prepared(each) for each in (given if isinstance(given, list) else [given])]
        uids = [description['uid'] for description in prepared]
        taken = {uid for uid in uids if self._agent.has_seen(uid) or uids.count(uid) > 1}
        if taken:
            raise DescriptionError(f'task uid {min(taken)!r} is in use already')
        self._results.update(dict.fromkeys(uids))
        self._agent.run_own(prepared, self._ended)
        call.done(uids)

    def get_tasks(self, call: Call) -> None:
        """Return tasks as dicts with uid, state and results: `get_tasks(uids=None)`, by default all."""
        call.done([self._known(uid) for uid in self._uids(_argument(call, 'uids', None))])

    def wait_tasks(self, call: Call) -> None:
        """Return tasks as `get_tasks` does when all of them have ended."""
        uids = self._uids(_argument(call, 'uids', None))
        running = {uid for uid in uids if self._results[uid] is None}
        self._waits[call.uid] = call, uids, running
        call.when_cancelled(lambda: self._waits.pop(call.uid, None))
        self._answer([call.uid])

    def cancel_tasks(self, call: Call) -> None:
        """Cancel tasks of the pilot: `cancel_tasks(uids)`, also those of the application."""
        uids = _listed(_argument(call, 'uids'))
        unknown = [uid for uid in uids if not self._agent.has_seen(uid)]
        if unknown:
            raise ValueError(f'{self._pilot} has no task {", ".join(unknown)}')
        self._agent.cancel_tasks(uids)
        call.done()

    def cancel_pilots(self, call: Call) -> None:
        """End the pilot: `cancel_pilots(uids=None)`; no other pilot can be named."""
        others = set(_listed(_argument(call, 'uids', None) or [])) - {self._pilot}
        if others:
            raise ValueError(f'{", ".join(sorted(others))} cannot be cancelled here, only {self._pilot}')
        call.done()
        self._agent.finish(states.CANCELED, 'was cancelled by a call to its endpoint', by_user=True)

    def _prepared(self, data: Any) -> dict[str, Any]:
        """Return a verified description with its uid; raise ValueError if it cannot be run here."""
        if not isinstance(data, Mapping):
            raise DescriptionError(f'a task description is a dict, not {data!r:.80}')
        description = TaskDescription(data)
        description.check()
        mode = description.mode
        if mode in _RAPTOR:
            complete(description)
        elif mode in _SERVICES or (mode != c.TASK_EXECUTABLE and not description.raptor_id):
            raise DescriptionError(f'TaskDescription.mode is {mode!r}, but an endpoint takes {c.TASK_EXECUTABLE!r}, '
                                   'masters and workers of RAPTOR, and tasks with raptor_id')
        sparse = description.sparse()
        for name in ('input_staging', 'output_staging'):
            if sparse.get(name):
                sparse[name] = expand(sparse[name])
                if any(acts_on_client(directive['action']) for directive in sparse[name]):
                    raise DescriptionError(f'TaskDescription.{name} transfers files from or to the client, which does '
                                           'not know tasks of an endpoint: allowed are copy, link and move')
        sparse['pilot'] = self._pilot
        sparse['uid'] = sparse.get('uid') or self._fresh_uid()
        return sparse

    def _fresh_uid(self) -> str:
        while True:
            uid = f'{self._pilot}.task.{next(self._numbers):06d}'
            if not self._agent.has_seen(uid):
                return uid

    def _uids(self, wanted: Any) -> list[str]:
        uids = list(self._results) if wanted is None else _listed(wanted)
        unknown = [uid for uid in uids if uid not in self._results]
        if unknown:
            raise ValueError(f'{", ".join(unknown)} was not submitted at the endpoint of {self._pilot}')
        return uids

    def _known(self, uid: str) -> dict[str, Any]:
        result, task = self._results[uid], self._agent.find(uid)
        return {'uid': uid, 'state': task.state if task else states.AGENT_SCHEDULING} if result is None else result

    def _ended(self, task: AgentTask) -> None:
        self._results[task.uid] = {'uid': task.uid, 'state': task.target_state, **expanded(task.result())}
        for _, _, running in self._waits.values():
            running.discard(task.uid)
        self._answer(list(self._waits))

    def _answer(self, waits: Iterable[str]) -> None:
        """Answer those of these calls whose tasks have all ended."""
        for uid in waits:
            call, uids, running = self._waits[uid]
            if not running:
                del self._waits[uid]
                call.done([self._known(each) for each in uids])


def _argument(call: Call, name: str, *default: Any) -> Any:
    """Return the first argument of a call, positional or by name; raise TypeError if it is missing."""
    for value in (*call.args[:1], *([call.kwargs[name]] if name in call.kwargs else []), *default):
        return value
    raise TypeError(f'{call.name} needs {name}')


def _listed(uids: Any) -> list[str]:
    """Return uids as a list: one, several, or a text of several with commas."""
    found = uids.split(',') if isinstance(uids, str) else uids
    if not isinstance(found, list) or not all(isinstance(uid, str) for uid in found):
        raise TypeError(f'uids are a text or a list of texts, not {uids!r:.80}')
    return found

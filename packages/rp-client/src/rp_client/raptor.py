"""The application's handles of RAPTOR masters and workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rp_api import constants as c
from rp_api import states
from rp_api.description.task import TaskDescription
from rp_api.errors import attribute_type_error
from rp_client.task import Task

Descriptions = TaskDescription | Sequence[TaskDescription]


class RaptorMaster(Task):
    """A task that distributes other tasks among its workers; made by `submit_raptors`, never by the application.

    It is AGENT_EXECUTING from the moment when it takes tasks. What is submitted before waits for it.
    """

    __slots__ = ('_access',)

    _access: dict[str, Any] | None

    def submit_workers(self, tds: Descriptions) -> list[RaptorWorker]:
        """Submit workers of this master (one description or a list of them); gives a list."""
        copies = [TaskDescription(description) for description in listed(tds)]
        for copy in copies:
            copy['raptor_id'] = self._uid
        return self._tmgr.submit_workers(copies)

    def submit_tasks(self, tds: Descriptions) -> list[Task]:
        """Submit tasks that this master has executed (one description or a list of them); gives a list."""
        return self._tmgr.submit_for(self._uid, listed(tds))

    def rpc(self, cmd: str, *args: Any, **kwargs: Any) -> Any:
        """What the master answers when it is asked to do something, such as `stop`; waits until it does.

        Arguments and answer are plain data. Raises `RuntimeError` if the master has no pilot yet, refuses, or ends.
        """
        self.check_process()
        if self._pilot is None:
            raise RuntimeError(f'{self._uid} is not bound to a pilot yet: wait until it is {states.AGENT_EXECUTING}')
        if self._state in states.FINAL:
            raise RuntimeError(f'{self._uid} is {self._state}: nobody is left to ask')
        answer = self._tmgr.ask_master(self._uid, cmd, args, kwargs)
        if answer.state != states.DONE:
            raise RuntimeError(f'{cmd} of {self._uid} failed: {answer.exception}')
        return answer.return_value

    def check_process(self) -> None:
        """Raise `CoordinationError` in a fork of the application."""
        self._tmgr.check_process()

    @property
    def access(self) -> Mapping[str, Any] | None:
        """How to connect to the master, with a secret key (`rp_api.raptor_link.Access`); None before it is up."""
        return self._access

    def _start(self) -> None:
        self._access = None

    def _learn(self, info: Mapping[str, Any]) -> None:
        self._access = info.get('raptor', self._access)
        super()._learn(info)


class RaptorWorker(Task):
    """A task that executes functions for a master; made by `submit_workers`, never by the application."""

    __slots__ = ()


_KINDS: dict[Any, type[Task]] = {c.RAPTOR_MASTER: RaptorMaster, c.RAPTOR_WORKER: RaptorWorker}


def kind_of(mode: Any) -> type[Task]:
    """The class of the handles of tasks of that mode."""
    return _KINDS.get(mode, Task)


def listed(tds: Descriptions) -> list[TaskDescription]:
    """Task descriptions as a list, if it is only one as well."""
    found = list(tds) if isinstance(tds, Iterable) and not isinstance(tds, Mapping | str) else [tds]
    for description in found:
        if not isinstance(description, (dict, Mapping)):   # which asks a base class of its own only for what is no dict
            raise attribute_type_error(f'task descriptions are needed, not {description!r}')
    return found


def of_mode(tds: Descriptions, mode: str, method: str) -> list[TaskDescription]:
    """Copies of the descriptions, which are all of that mode; ValueError if one is not."""
    copies = [TaskDescription(description) for description in listed(tds)]
    for copy in copies:
        if copy.mode != mode:
            raise ValueError(f'{method} takes tasks of mode {mode!r}, not {copy.mode!r}')
    return copies

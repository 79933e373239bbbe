"""Jobs of an adaptor of radical.saga that this project does not know, through radical.saga's interface alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from rp_api.errors import PlatformError
from rp_client.launcher.batch.saga.service import opening, sentence
from rp_client.launcher.batch.systems.base import CANCELED, DONE, FAILED, QUEUED, RUNNING, Status

T = TypeVar('T')

_STATES = {'New': QUEUED, 'Pending': QUEUED, 'Running': RUNNING, 'Suspended': RUNNING, 'Done': DONE, 'Failed': FAILED,
           'Canceled': CANCELED}
"""States of jobs by their values in radical.saga."""


class SagaJobs:
    """The jobs of one URL; raises `PlatformError` with radical.saga's message."""

    def __init__(self, url: str) -> None:
        import radical.saga as rs

        self._saga = rs
        with opening:
            self._service = _checked(f'open {url}', lambda: rs.job.Service(url))
        self._jobs: dict[str, Any] = {}

    def submit(self, description: Mapping[str, Any]) -> str:
        """Submit a job, and return radical.saga's id."""
        return _checked('submit', lambda: self._submitted(description))

    def find(self, description: Mapping[str, Any]) -> str:
        """Return the id of a job with the working directory of a description; empty if the adaptor lists none."""
        for name in _checked('list the jobs', self._service.list):
            with suppress(Exception):   # adaptors need not know the descriptions of jobs
                if self._job(str(name)).get_description().working_directory == description['working_directory']:
                    return str(name)
        return ''

    def statuses(self, names: Iterable[str]) -> dict[str, Status]:
        """Return the statuses of jobs by their ids."""
        found = {name: _checked(f'tell the state of job {name}', partial(self._status, name)) for name in names}
        return {name: status for name, status in found.items() if status is not None}

    def cancel(self, names: Iterable[str]) -> None:
        """Cancel jobs."""
        for name in names:
            _checked(f'cancel job {name}', partial(self._cancel, name))

    def _submitted(self, description: Mapping[str, Any]) -> str:
        wanted = self._saga.job.Description()
        for name, value in description.items():
            wanted.set_attribute(name, value)
        job = self._service.create_job(wanted)
        job.run()
        name = str(job.id)
        self._jobs[name] = job
        return name

    def _status(self, name: str) -> Status | None:
        return _status(self._job(name))

    def _cancel(self, name: str) -> None:
        self._job(name).cancel()

    def _job(self, name: str) -> Any:
        """Return a job, which another process may have submitted."""
        if name not in self._jobs:
            self._jobs[name] = self._service.get_job(name)
        return self._jobs[name]


def _status(job: Any) -> Status | None:
    state = str(job.state)
    code = job.exit_code if state in ('Done', 'Failed') else None
    if state not in _STATES:
        return None
    return Status(_STATES[state], f'state {state}' if code is None else f'exit code {code}', code)


def _checked(what: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:   # adaptors raise all kinds
        raise PlatformError(f'radical.saga cannot {what}: {sentence(error)}') from error

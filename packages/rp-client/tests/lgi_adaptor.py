"""An adaptor of radical.saga for LGI, as a site could install it; its jobs are processes of this host."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

from radical.saga import job as api
from radical.saga.adaptors import base
from radical.saga.adaptors.cpi import SYNC_CALL
from radical.saga.adaptors.cpi import job as cpi

INFO = {
    'name': 'lgi_adaptor', 'version': 'v1.0', 'schemas': ['lgi'],
    'capabilities': {
        'jdes_attributes': [api.NAME, api.EXECUTABLE, api.ARGUMENTS, api.ENVIRONMENT, api.WORKING_DIRECTORY,
                            api.OUTPUT, api.ERROR, api.WALL_TIME_LIMIT, api.TOTAL_CPU_COUNT, api.PROCESSES_PER_HOST],
        'job_attributes': [api.EXIT_CODE], 'metrics': [api.STATE], 'contexts': {}},
    'cpis': [{'type': f'radical.saga.job.{name}', 'class': name} for name in ('Service', 'Job')]}


class Adaptor(base.Base):   # type: ignore[misc]  # radical.saga has no types
    """What radical.saga loads."""

    def __init__(self) -> None:
        super().__init__(INFO, expand_env=False)

    def sanity_check(self) -> None:
        """Nothing is needed."""


class Service(cpi.Service):   # type: ignore[misc]
    """The jobs of this process."""

    def __init__(self, api_object: Any, adaptor: Any) -> None:
        super().__init__(api_object, adaptor)

    @SYNC_CALL   # type: ignore[untyped-decorator]
    def init_instance(self, state: Any, url: Any, session: Any) -> Any:
        self.url = url
        return self.get_api()

    @SYNC_CALL   # type: ignore[untyped-decorator]
    def create_job(self, description: Any) -> Any:
        return api.Job(_adaptor=self._adaptor, _adaptor_state={'description': description})


class Job(cpi.Job):   # type: ignore[misc]
    """A process."""

    def __init__(self, api_object: Any, adaptor: Any) -> None:
        super().__init__(api_object, adaptor)

    @SYNC_CALL   # type: ignore[untyped-decorator]
    def init_instance(self, state: Any) -> Any:
        self.description = state['description']
        self.process: subprocess.Popen[bytes] | None = None
        self.cancelled = False
        return self.get_api()

    @SYNC_CALL   # type: ignore[untyped-decorator]
    def run(self) -> None:
        wanted = self.description
        with open(wanted.output, 'wb') as out, open(wanted.error, 'wb') as err:
            self.process = subprocess.Popen(
                [wanted.executable, *wanted.arguments], cwd=wanted.working_directory, stdout=out, stderr=err,
                env=os.environ | dict(wanted.environment or {}), start_new_session=True)

    @SYNC_CALL   # type: ignore[untyped-decorator]
    def get_id(self) -> str:
        assert self.process is not None
        return f'[lgi://host/]-[{self.process.pid}]'

    @SYNC_CALL   # type: ignore[untyped-decorator]
    def get_state(self) -> Any:
        code = self.process.poll() if self.process else None
        if code is None:
            return api.RUNNING if self.process else api.NEW
        return api.CANCELED if self.cancelled else api.FAILED if code else api.DONE

    @SYNC_CALL   # type: ignore[untyped-decorator]
    def get_exit_code(self) -> int | None:
        return self.process.poll() if self.process else None

    @SYNC_CALL   # type: ignore[untyped-decorator]
    def cancel(self, timeout: float | None = None) -> None:
        assert self.process is not None
        self.cancelled = True
        os.killpg(self.process.pid, signal.SIGTERM)

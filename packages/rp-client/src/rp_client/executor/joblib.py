"""A backend of joblib that runs its jobs as calls of an executor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any
from weakref import WeakSet

try:
    from joblib.parallel import AutoBatchingMixin, ParallelBackendBase
except ImportError as error:
    raise ImportError("joblib, which is not installed here, is needed for its backend: pip install 'rp-client[joblib]'",
                      name='joblib') from error


class PilotBackend(AutoBatchingMixin, ParallelBackendBase):   # type: ignore[misc]
    """Runs jobs as calls of `executor`, on `cores` cores unless a job says how many it wants."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, executor: Executor, cores: int) -> None:
        super().__init__(nesting_level=0)
        self._executor, self._cores = executor, cores
        self._made: WeakSet[Future[Any]] = WeakSet()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of jobs that run at a time; negative ones count from the cores of the pilot."""
        if n_jobs == 0:
            raise ValueError('n_jobs is 0, it must be a number of jobs, or negative: -1 for all cores of the pilot')
        wanted = -1 if n_jobs is None else n_jobs
        return wanted if wanted > 0 else max(1, self._cores + 1 + wanted)

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], object] | None = None) -> Future[Any]:
        """Make a call, and have `callback` called with its future when it is done."""
        future = self._executor.submit(func)
        self._made.add(future)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the result of a call."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all calls, as one has failed."""
        for future in list(self._made):
            future.cancel()

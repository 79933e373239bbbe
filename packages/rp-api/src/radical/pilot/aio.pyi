"""The names of `radical.pilot.aio` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.completion.waits import as_completed as as_completed
from rp_client.completion.waits import async_wait as wait
from rp_client.executor.async_executor import AsyncExecutor as Executor

__all__ = ['Executor', 'as_completed', 'wait']

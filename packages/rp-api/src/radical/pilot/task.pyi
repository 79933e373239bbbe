"""The names of `radical.pilot.task` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.task import Task as Task

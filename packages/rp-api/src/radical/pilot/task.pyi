"""The names of `radical.pilot.task` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.handles.task import Task as Task

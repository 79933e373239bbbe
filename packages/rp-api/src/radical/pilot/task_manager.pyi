"""The names of `radical.pilot.task_manager` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.handles.task_manager import TaskManager as TaskManager

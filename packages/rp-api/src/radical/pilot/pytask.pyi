"""The names of `radical.pilot.pytask` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.description.python_task import PythonTask as PythonTask

"""The names of `radical.pilot.states` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.states import *

"""The names of `radical.pilot.constants` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.constants import *

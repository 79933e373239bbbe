"""The names of `radical.pilot.pilot_description` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.description.pilot import *

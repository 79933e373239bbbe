"""The names of `radical.pilot.pilot` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.pilot import Pilot as Pilot

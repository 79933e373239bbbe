"""The names of `radical.pilot.pilot` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.handles.pilot import Pilot as Pilot

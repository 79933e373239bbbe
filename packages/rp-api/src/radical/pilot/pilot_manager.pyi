"""The names of `radical.pilot.pilot_manager` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.handles.pilot_manager import PilotManager as PilotManager

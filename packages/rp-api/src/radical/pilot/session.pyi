"""The names of `radical.pilot.session` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.handles.session import Session as Session

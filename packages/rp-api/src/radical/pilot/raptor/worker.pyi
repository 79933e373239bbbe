"""The names of `radical.pilot.raptor.worker` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_raptor.rank.worker import Worker as Worker

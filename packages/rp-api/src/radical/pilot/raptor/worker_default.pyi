"""The names of `radical.pilot.raptor.worker_default` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_raptor.rank.worker import DefaultWorker as DefaultWorker

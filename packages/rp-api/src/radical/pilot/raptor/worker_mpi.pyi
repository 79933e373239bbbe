"""The names of `radical.pilot.raptor.worker_mpi` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_raptor.rank.worker import MPIWorker as MPIWorker
from rp_raptor.rank.worker import MPIWorkerRank as MPIWorkerRank

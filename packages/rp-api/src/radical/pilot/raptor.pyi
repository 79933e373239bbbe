"""The names of `radical.pilot.raptor` for type checkers and editors; `raptor.py` has the same as a table."""

from rp_raptor.futures import Executor as Executor
from rp_raptor.master import Master as Master
from rp_raptor.stream import stream as stream
from rp_raptor.worker import DefaultWorker as DefaultWorker
from rp_raptor.worker import MPIWorker as MPIWorker
from rp_raptor.worker import MPIWorkerRank as MPIWorkerRank
from rp_raptor.worker import Worker as Worker

"""The names of `radical.pilot.raptor` for type checkers and editors, the same as in the table of `raptor.py`."""

from rp_raptor.client.futures import Executor as Executor
from rp_raptor.client.stream import stream as stream
from rp_raptor.master.master import Master as Master
from rp_raptor.rank.worker import DefaultWorker as DefaultWorker
from rp_raptor.rank.worker import MPIWorker as MPIWorker
from rp_raptor.rank.worker import MPIWorkerRank as MPIWorkerRank
from rp_raptor.rank.worker import Worker as Worker

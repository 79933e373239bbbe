"""The names of `radical.pilot.raptor` for type checkers, as in `radical/pilot/_modules.py`."""

from radical.pilot.raptor import master as master
from radical.pilot.raptor import worker as worker
from radical.pilot.raptor import worker_default as worker_default
from radical.pilot.raptor import worker_mpi as worker_mpi
from rp_raptor.client.futures import Executor as Executor
from rp_raptor.client.stream import stream as stream
from rp_raptor.definitions import worker_method as worker_method
from rp_raptor.errors import CallLost as CallLost
from rp_raptor.errors import RemoteError as RemoteError
from rp_raptor.master.master import Master as Master
from rp_raptor.objects.reference import ObjectRef as ObjectRef
from rp_raptor.rank.worker import DefaultWorker as DefaultWorker
from rp_raptor.rank.worker import MPIWorker as MPIWorker
from rp_raptor.rank.worker import MPIWorkerRank as MPIWorkerRank
from rp_raptor.rank.worker import Worker as Worker

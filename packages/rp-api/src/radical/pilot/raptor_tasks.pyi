"""The names of `radical.pilot.raptor_tasks` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.handles.raptor import RaptorMaster as Raptor
from rp_client.handles.raptor import RaptorMaster as RaptorMaster
from rp_client.handles.raptor import RaptorWorker as RaptorWorker

__all__ = ['Raptor', 'RaptorMaster', 'RaptorWorker']

"""The names of `radical.pilot.raptor_tasks` for type checkers and editors."""

from rp_client.raptor import RaptorMaster as Raptor
from rp_client.raptor import RaptorMaster as RaptorMaster
from rp_client.raptor import RaptorWorker as RaptorWorker

__all__ = ['Raptor', 'RaptorMaster', 'RaptorWorker']

"""The names of `radical.pilot.raptor.master` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_raptor.master.master import Master as Master

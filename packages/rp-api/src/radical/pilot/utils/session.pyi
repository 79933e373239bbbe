"""The names of `radical.pilot.utils.session` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_client.recorded import fetch_filetype as fetch_filetype
from rp_client.recorded import fetch_logfiles as fetch_logfiles
from rp_client.recorded import fetch_profiles as fetch_profiles

"""The names of `radical.pilot.utils.prof_utils` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.analytics import PILOT_DURATIONS as PILOT_DURATIONS
from rp_api.analytics import PILOT_DURATIONS_DEBUG as PILOT_DURATIONS_DEBUG
from rp_api.analytics import PILOT_DURATIONS_DEBUG_SHORT as PILOT_DURATIONS_DEBUG_SHORT
from rp_api.analytics import TASK_DURATIONS_APP as TASK_DURATIONS_APP
from rp_api.analytics import TASK_DURATIONS_DEBUG as TASK_DURATIONS_DEBUG
from rp_api.analytics import TASK_DURATIONS_DEBUG_SHORT as TASK_DURATIONS_DEBUG_SHORT
from rp_api.analytics import TASK_DURATIONS_DEFAULT as TASK_DURATIONS_DEFAULT
from rp_api.analytics import get_consumed_resources as get_consumed_resources
from rp_api.analytics import get_provided_resources as get_provided_resources
from rp_api.analytics import get_session_description as get_session_description
from rp_api.analytics import get_session_profile as get_session_profile

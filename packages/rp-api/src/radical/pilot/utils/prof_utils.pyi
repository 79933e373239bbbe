"""The names of `radical.pilot.utils.prof_utils` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.analytics.completion import fix_profiles as fix_profiles
from rp_api.analytics.durations import PILOT_DURATIONS as PILOT_DURATIONS
from rp_api.analytics.durations import PILOT_DURATIONS_DEBUG as PILOT_DURATIONS_DEBUG
from rp_api.analytics.durations import PILOT_DURATIONS_DEBUG_RU as PILOT_DURATIONS_DEBUG_RU
from rp_api.analytics.durations import PILOT_DURATIONS_DEBUG_SHORT as PILOT_DURATIONS_DEBUG_SHORT
from rp_api.analytics.durations import TASK_DURATIONS_APP as TASK_DURATIONS_APP
from rp_api.analytics.durations import TASK_DURATIONS_DEBUG as TASK_DURATIONS_DEBUG
from rp_api.analytics.durations import TASK_DURATIONS_DEBUG_RU as TASK_DURATIONS_DEBUG_RU
from rp_api.analytics.durations import TASK_DURATIONS_DEBUG_SHORT as TASK_DURATIONS_DEBUG_SHORT
from rp_api.analytics.durations import TASK_DURATIONS_DEFAULT as TASK_DURATIONS_DEFAULT
from rp_api.analytics.resources import cluster_resources as cluster_resources
from rp_api.analytics.resources import get_consumed_resources as get_consumed_resources
from rp_api.analytics.resources import get_duration as get_duration
from rp_api.analytics.resources import get_node_index as get_node_index
from rp_api.analytics.resources import get_provided_resources as get_provided_resources
from rp_api.analytics.resources import get_resource_timelines as get_resource_timelines
from rp_api.analytics.resources import get_resource_transitions as get_resource_transitions
from rp_api.analytics.session import fetch_json as fetch_json
from rp_api.analytics.session import get_hostmap as get_hostmap
from rp_api.analytics.session import get_hostmap_deprecated as get_hostmap_deprecated
from rp_api.analytics.session import get_session_description as get_session_description
from rp_api.analytics.session import get_session_json as get_session_json
from rp_api.analytics.session import get_session_profile as get_session_profile

"""The names of `radical.pilot.utils` for type checkers, as in `radical/pilot/_modules.py`."""

from radical.pilot.utils import misc as misc
from radical.pilot.utils import prof_utils as prof_utils
from radical.pilot.utils import serializer as serializer
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
from rp_api.errors import DeserializationError as DeserializationError
from rp_api.errors import SerializationError as SerializationError
from rp_api.functions import deserialize_bson as deserialize_bson
from rp_api.functions import deserialize_file as deserialize_file
from rp_api.functions import deserialize_obj as deserialize_obj
from rp_api.functions import serialize_bson as serialize_bson
from rp_api.functions import serialize_file as serialize_file
from rp_api.functions import serialize_obj as serialize_obj
from rp_api.platforms.load import get_resource_config as get_resource_config
from rp_api.platforms.load import get_resource_configs as get_resource_configs
from rp_api.platforms.load import get_resource_fs_url as get_resource_fs_url
from rp_api.platforms.load import get_resource_job_url as get_resource_job_url

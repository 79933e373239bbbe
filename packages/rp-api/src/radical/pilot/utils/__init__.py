"""`radical.pilot.utils`: functions for serialisation, analysis and platform definitions."""

from radical.pilot.utils import misc
from rp_api.analytics import (
    PILOT_DURATIONS,
    PILOT_DURATIONS_DEBUG,
    PILOT_DURATIONS_DEBUG_SHORT,
    TASK_DURATIONS_APP,
    TASK_DURATIONS_DEBUG,
    TASK_DURATIONS_DEBUG_SHORT,
    TASK_DURATIONS_DEFAULT,
    get_consumed_resources,
    get_provided_resources,
    get_session_description,
    get_session_profile,
)
from rp_api.errors import DeserializationError, SerializationError
from rp_api.functions import (
    deserialize_bson,
    deserialize_file,
    deserialize_obj,
    serialize_bson,
    serialize_file,
    serialize_obj,
)
from rp_api.platforms.load import (
    get_resource_config,
    get_resource_configs,
    get_resource_fs_url,
    get_resource_job_url,
)

__all__ = [
    'PILOT_DURATIONS',
    'PILOT_DURATIONS_DEBUG',
    'PILOT_DURATIONS_DEBUG_SHORT',
    'TASK_DURATIONS_APP',
    'TASK_DURATIONS_DEBUG',
    'TASK_DURATIONS_DEBUG_SHORT',
    'TASK_DURATIONS_DEFAULT',
    'DeserializationError',
    'SerializationError',
    'deserialize_bson',
    'deserialize_file',
    'deserialize_obj',
    'get_consumed_resources',
    'get_provided_resources',
    'get_resource_config',
    'get_resource_configs',
    'get_resource_fs_url',
    'get_resource_job_url',
    'get_session_description',
    'get_session_profile',
    'misc',
    'serialize_bson',
    'serialize_file',
    'serialize_obj',
]

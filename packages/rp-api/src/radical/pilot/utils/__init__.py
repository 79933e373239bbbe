"""`radical.pilot.utils`: functions that applications call apart from the objects of a session."""

from radical.pilot.utils import misc
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
    'DeserializationError', 'SerializationError', 'deserialize_bson', 'deserialize_file', 'deserialize_obj',
    'get_resource_config', 'get_resource_configs', 'get_resource_fs_url', 'get_resource_job_url', 'misc',
    'serialize_bson', 'serialize_file', 'serialize_obj',
]

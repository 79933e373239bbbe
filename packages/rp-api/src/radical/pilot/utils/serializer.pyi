"""The names of `radical.pilot.utils.serializer` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.errors import DeserializationError as DeserializationError
from rp_api.errors import SerializationError as SerializationError
from rp_api.functions import deserialize_bson as deserialize_bson
from rp_api.functions import deserialize_file as deserialize_file
from rp_api.functions import deserialize_obj as deserialize_obj
from rp_api.functions import serialize_bson as serialize_bson
from rp_api.functions import serialize_file as serialize_file
from rp_api.functions import serialize_obj as serialize_obj

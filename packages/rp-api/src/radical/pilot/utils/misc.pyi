"""The names of `radical.pilot.utils.misc` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.platforms.load import get_resource_config as get_resource_config
from rp_api.platforms.load import get_resource_configs as get_resource_configs
from rp_api.platforms.load import get_resource_fs_url as get_resource_fs_url
from rp_api.platforms.load import get_resource_job_url as get_resource_job_url
from rp_api.version_1 import convert_slots_to_new as convert_slots_to_new
from rp_api.version_1 import convert_slots_to_old as convert_slots_to_old
from rp_api.version_1 import create_tar as create_tar
from rp_api.version_1 import get_rusage as get_rusage
from rp_api.version_1 import tail as tail

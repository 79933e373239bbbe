"""The names of `radical.pilot.utils.misc` for type checkers, as in `radical/pilot/_modules.py`."""

from rp_api.platforms.load import get_resource_config as get_resource_config
from rp_api.platforms.load import get_resource_configs as get_resource_configs
from rp_api.platforms.load import get_resource_fs_url as get_resource_fs_url
from rp_api.platforms.load import get_resource_job_url as get_resource_job_url

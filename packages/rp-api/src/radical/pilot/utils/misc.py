"""`radical.pilot.utils.misc`: platform definitions."""

from rp_api.platforms.load import (
    get_resource_config,
    get_resource_configs,
    get_resource_fs_url,
    get_resource_job_url,
)

__all__ = ['get_resource_config', 'get_resource_configs', 'get_resource_fs_url', 'get_resource_job_url']

"""Platforms: what is known about the machines that pilots run on, and where more can be said about them.

`get_platform('local.localhost')` gives the definition of a platform. Definitions are JSON data files of this
package; users add platforms, or override single values, in files of the same form below their home directory.
"""

from __future__ import annotations

from rp_api.platforms.definition import AccessSchema, RaptorConfig, ResourceConfig
from rp_api.platforms.load import (
    fill,
    filled,
    get_platform,
    get_resource_config,
    get_resource_configs,
    get_resource_fs_url,
    get_resource_job_url,
    list_platforms,
    load_config,
)

__all__ = [
    'AccessSchema', 'RaptorConfig', 'ResourceConfig', 'fill', 'filled', 'get_platform',
    'get_resource_config', 'get_resource_configs', 'get_resource_fs_url', 'get_resource_job_url', 'list_platforms',
    'load_config',
]

"""Platforms: definitions of the machines that pilots run on, and the table of batch systems and launch methods.

`get_platform('local.localhost')` returns the definition of a platform, from the data files of this package and from the
user's configuration directory. Definitions are imported on first use, because agents need only the table (`systems`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    module = 'definition' if name in ('AccessSchema', 'RaptorConfig', 'ResourceConfig') else 'load'
    return getattr(importlib.import_module(f'{__name__}.{module}'), name)

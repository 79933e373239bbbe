"""The agent's configuration, from the platform's definition and the pilot's description."""

from __future__ import annotations

import json
from typing import Any

from rp_api.description.pilot import PilotDescription
from rp_api.errors import DescriptionError
from rp_api.platforms.agent_config import check
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import load_config, merge


def agent_settings(platform: ResourceConfig, description: PilotDescription) -> dict[str, Any]:
    """Return the platform's `agent_config`, possibly from a file `agent_<name>.json`, merged with `_config`.

    The agent checks the result when it starts; numbers of clones and workers are checked here.
    """
    named = platform.agent_config
    settings = merge(load_config('agent', named) if isinstance(named, str) else named, description['_config'])
    try:
        json.dumps(settings)
    except (TypeError, ValueError) as error:
        raise DescriptionError(f'PilotDescription._config is {description["_config"]!r}, it must be valid JSON: '
                               f'{error}') from None
    check(settings)
    return settings

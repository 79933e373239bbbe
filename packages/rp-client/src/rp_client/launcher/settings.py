"""What an agent is told about itself: the platform's agent configuration, and over it the pilot description's."""

from __future__ import annotations

import json
from typing import Any

from rp_api.description.pilot import PilotDescription
from rp_api.errors import DescriptionError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.jsonfile import merge
from rp_api.platforms.load import load_config


def agent_settings(platform: ResourceConfig, description: PilotDescription) -> dict[str, Any]:
    """`agent_config` of the platform, as it stands there or in the user's file `agent_<name>.json`, and `_config`.

    What they may hold is known to the agent, which refuses anything else when it starts.
    """
    named = platform.agent_config
    settings = merge(load_config('agent', named) if isinstance(named, str) else named, description['_config'])
    try:
        json.dumps(settings)
    except (TypeError, ValueError) as error:
        raise DescriptionError(f'PilotDescription._config is {description["_config"]!r}, but it travels as JSON: '
                               f'{error}') from None
    return settings

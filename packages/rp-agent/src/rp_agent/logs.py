"""Log files of the agent's processes."""

from __future__ import annotations

import os
import sys
from functools import partial

from rp_api.logger import set_up_by

LOG = 'radical.pilot.agent'
"""Name of the logger of the agent."""


def start(path: str) -> None:
    """Write the log to a file, at the level that RADICAL_PILOT_LOG_LVL names (default: INFO)."""
    import logging

    level = logging.getLevelName(os.environ.get('RADICAL_PILOT_LOG_LVL', '').upper().partition('_')[0])
    logging.basicConfig(filename=path, format='%(asctime)s %(levelname)s %(name)s %(message)s',
                        level=level if isinstance(level, int) else logging.INFO)


def start_with_first_message(path: str) -> None:
    """Write the log to a file that is created with the first message, unless `logging` is loaded already."""
    if 'logging' in sys.modules:
        start(path)
    else:
        set_up_by(partial(start, path))

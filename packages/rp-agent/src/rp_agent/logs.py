"""The log files of the agent's processes."""

from __future__ import annotations

import os
import sys
from functools import partial

from rp_api.logger import set_up_by

LOG = 'radical.pilot.agent'
"""The logger of whatever belongs to an agent."""


def start(path: str) -> None:
    """Write a log to that file, of the level that RADICAL_PILOT_LOG_LVL asks for."""
    import logging

    level = logging.getLevelName(os.environ.get('RADICAL_PILOT_LOG_LVL', '').upper().partition('_')[0])
    logging.basicConfig(filename=path, format='%(asctime)s %(levelname)s %(name)s %(message)s',
                        level=level if isinstance(level, int) else logging.INFO)


def start_with_first_message(path: str) -> None:
    """The same, but there is no file before there is a message, if nothing was loaded that may log by itself."""
    if 'logging' in sys.modules:
        start(path)
    else:
        set_up_by(partial(start, path))

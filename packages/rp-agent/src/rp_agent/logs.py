"""The log files of the agent's processes."""

from __future__ import annotations

import logging
import os


def start(path: str) -> None:
    """Write a log to that file, of the level that RADICAL_PILOT_LOG_LVL asks for."""
    logging.basicConfig(filename=path, format='%(asctime)s %(levelname)s %(name)s %(message)s',
                        level=_level(os.environ.get('RADICAL_PILOT_LOG_LVL', '')))


def _level(name: str) -> int:
    """The level of that name, such as `DEBUG`, `debug` or `DEBUG_3`; INFO for a name that is not known here."""
    level = logging.getLevelName(name.upper().partition('_')[0])
    return level if isinstance(level, int) else logging.INFO

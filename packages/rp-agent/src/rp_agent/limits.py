"""Limits of the operating system: checks those of an agent or sub-agent, and sets those of its tasks."""

from __future__ import annotations

from typing import Any

from rp_agent.executor.processes.launch import limit_files
from rp_agent.executor.processes.launchloop import OWN, SPARE
from rp_api.system import limits

DESCRIPTORS = OWN + SPARE
"""File descriptors that an agent needs in addition to those that it starts with: its own, and a few for the processes
of tasks, which need one each."""

THREADS = 3
"""Threads that an agent needs: two of ZeroMQ and one for staging."""


def prepare(config: dict[str, Any], who: str) -> None:
    """Raise this process' limit of open files to the hard limit; programs that it starts keep the user's limit.

    The user's limit is stored in the configuration, for sub-agents. Raises LimitError if a limit is too low.
    """
    files = limits.raise_descriptors(config.get('descriptors', ()))
    limits.require_descriptors(who, DESCRIPTORS)
    limits.require_threads(who, THREADS)
    limit_files(files.own if files.own != files.raised else 0)
    config['descriptors'] = list(files)

"""What an agent, or a sub-agent, needs of the operating system, and what its tasks get of it."""

from __future__ import annotations

from typing import Any

from rp_agent.executor.processes.launch import limit_files
from rp_agent.executor.processes.launchloop import OWN, SPARE
from rp_api.system import limits

DESCRIPTORS = OWN + SPARE
"""Files that an agent needs to open besides those that it starts with, which leaves a few for tasks: one for each of
their processes."""

THREADS = 3
"""Two of ZeroMQ, and one that stages."""


def prepare(config: dict[str, Any], who: str) -> None:
    """Let this process open as many files as it may, but the programs that it starts as many as the user has allowed.

    What that was is kept in the configuration, for those that are started by this process. Raises LimitError if there
    is too little of something.
    """
    files = limits.raise_descriptors(config.get('descriptors', ()))
    limits.require_descriptors(who, DESCRIPTORS)
    limits.require_threads(who, THREADS)
    limit_files(files.own if files.own != files.raised else 0)
    config['descriptors'] = list(files)

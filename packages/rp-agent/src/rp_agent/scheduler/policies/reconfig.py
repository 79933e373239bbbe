"""The policy CONTINUOUS_RECONFIG: a file that may change at any time sets the size of tasks."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rp_agent import sandbox
from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.policies.continuous import Continuous
from rp_agent.scheduler.slotmap import SlotMap
from rp_agent.task import AgentTask
from rp_api.errors import ResourceError

_log = logging.getLogger('radical.pilot.agent')

NAMES = ('ranks', 'cores_per_rank')


class Reconfig(Continuous):
    """Places tasks as CONTINUOUS does, with `ranks` and `cores_per_rank` from a file.

    The pilot description names the file as `reconfig_src`. It is a JSON object with one or both of these names, and
    applies to tasks that arrive after it has changed. Without the file, descriptions apply. If the file is malformed,
    the policy logs an error and uses the last valid content.
    """

    def __init__(self, slots: SlotMap, allocation: Allocation, config: Mapping[str, Any]) -> None:
        super().__init__(slots, allocation, config)
        source = config.get('reconfig_src')
        self._path = os.path.join(sandbox.of_pilot(config), source) if source else ''
        self._version: tuple[int, ...] = ()
        self._sizes: dict[str, int] = {}

    def admit(self, task: AgentTask) -> Sequence[AgentTask]:
        """Return the task with the sizes of the file."""
        self._read_if_new()
        task.description.update(self._sizes)
        return (task,)

    def _read_if_new(self) -> None:
        try:
            status = os.stat(self._path)
        except OSError:
            self._version, self._sizes = (), {}
            return
        version = status.st_mtime_ns, status.st_ino, status.st_size
        if version != self._version:
            self._version = version
            try:
                self._sizes = read(self._path)
            except (OSError, ValueError) as error:
                _log.error('%s is not used: %s', self._path, error)


def read(path: str) -> dict[str, int]:
    """Return the sizes in the file; raise `ValueError` if it is malformed."""
    with open(path, encoding='utf-8') as file:
        sizes = json.load(file)
    if not isinstance(sizes, dict) or not set(sizes) <= set(NAMES):
        raise ResourceError(f'it must be a JSON object with the names {" and ".join(NAMES)}, not {sizes!r:.100}')
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ResourceError(f'{name} must be a whole number of at least 1, not {size!r}')
    return sizes

"""The named environments of a pilot: starts their builders, and reports which environments exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rp_agent.environments.published import Built
from rp_api.loop.event_loop import Loop

Done = Callable[[], object]
Failed = Callable[[str, str], object]
"""Called with the reason of a failure in a sentence, and its details."""

Distribute = Callable[[Built, Done, Failed], None]
"""Copies an environment to the nodes, then calls back."""


class Environments:
    """Prepares environments, each once.

    `config` is the agent's configuration, `base` the environment of tasks. `distribute` is called for each environment
    that was built, before tasks may use it; None if tasks use it where it was built.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, base: Mapping[str, str]) -> None:
        self._config = config
        self._loop = loop
        self._base = base
        self.distribute: Distribute | None = None

    def prepare(self, name: str, spec: Mapping[str, Any], done: Done, failed: Failed) -> None:
        """Prepare an environment, then call `done()` or `failed(reason, detail)`."""
        raise NotImplementedError

    def close(self) -> None:
        """Kill all builders."""

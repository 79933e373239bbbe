"""Reads workloads: files with tasks or function calls, or recorded sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from rp_api.errors import PlatformError
from rp_client.simulation.platform import Platform
from rp_client.simulation.result import Summary
from rp_client.simulation.simulate import simulate
from rp_client.simulation.workload import Workload


class Run(Protocol):
    """Simulates one workload."""

    def __call__(self, platform: Platform, model: str, *, directory: str | None = None, seed: int = 0) -> Summary:
        """Return the result of the workload on a platform, by the model of that name."""


def read(path: str) -> Run:
    """Return the function that simulates the workload of a file, or of a session's directory.

    A file with function calls is one JSON object with `calls`, their number, `duration`, `masters`, `workers` per
    master and `ranks` per worker. Other files have a task description in each line.
    """
    if Path(path).is_dir():
        return _of_tasks(Workload.recorded(path))
    text = Path(path).read_text()
    try:
        values = json.loads(text)
    except ValueError:   # several lines
        values = None
    if not isinstance(values, dict) or 'calls' not in values:
        return _of_tasks(Workload.read(path))
    try:
        from rp_client.simulation.calls import Calls, simulate_calls
    except ImportError as error:
        raise PlatformError("function calls can be simulated with: pip install 'rp-client[simulation]'") from error
    calls = Calls.of(values)
    return lambda platform, model, **more: simulate_calls(platform, calls, model, **more)


def _of_tasks(workload: Workload) -> Run:
    return lambda platform, model, **more: simulate(platform, workload, model, **more)

"""Errors of an executor."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor


class BrokenPilotExecutor(BrokenExecutor):
    """The executor cannot run anything any more: its pilot or its workers have failed, or the initializer has."""

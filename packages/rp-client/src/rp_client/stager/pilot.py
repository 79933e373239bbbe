"""Staging between the client and the sandbox of a pilot."""

from __future__ import annotations

from typing import Any

from rp_api.staging.directive import expand
from rp_api.staging.run import run
from rp_client.pilot import Pilot
from rp_client.stager.base import INWARDS, OUTWARDS, pilot_sandboxes
from rp_profiling.tracer import Tracer


def stage(pilot: Pilot, sds: Any, tracer: Tracer, *, inwards: bool) -> list[str]:
    """Carry out staging directives; gives the absolute targets. Raises `StagingError` for the first that fails."""
    bases, name = (INWARDS, 'staging_in') if inwards else (OUTWARDS, 'staging_out')
    return run(pilot.uid, expand(sds), bases, pilot_sandboxes(pilot), tracer, name)

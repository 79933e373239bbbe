"""Staging between the client and the sandbox of a pilot."""

from __future__ import annotations

from typing import Any

from rp_api.staging.directive import expand
from rp_api.staging.run import check_locations, run
from rp_client.pilot import Pilot
from rp_client.stager.base import INWARDS, OUTWARDS, pilot_sandboxes
from rp_profiling.tracer import Tracer


def stage(pilot: Pilot, sds: Any, tracer: Tracer, *, inwards: bool) -> list[str]:
    """Carry out staging directives; gives the absolute targets.

    Raises `DescriptionError` if one is wrong, and `StagingError` for the first that fails.
    """
    directives = expand(sds)
    check_locations(directives)   # before any of them is carried out
    bases, name = (INWARDS, 'staging_in') if inwards else (OUTWARDS, 'staging_out')
    return run(pilot.uid, directives, bases, pilot_sandboxes(pilot), tracer, name)

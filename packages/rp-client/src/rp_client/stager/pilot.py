"""Staging between the client and the sandbox of a pilot."""

from __future__ import annotations

from typing import Any

from rp_api.errors import StagingError
from rp_api.staging.directive import expand
from rp_api.staging.run import check_locations
from rp_client.core.pilot import PilotRecord
from rp_client.stager.base import INWARDS, OUTWARDS, pilot_files
from rp_profiling.write.tracer import Tracer


def stage(pilot: PilotRecord, sds: Any, tracer: Tracer, *, inwards: bool) -> list[str]:
    """Execute staging directives, and return their absolute targets.

    Raises `DescriptionError` if one is not valid, and `StagingError` for the first that fails.
    """
    directives = expand(sds)
    check_locations(directives)   # before any of them is executed
    bases, name = (INWARDS, 'staging_in') if inwards else (OUTWARDS, 'staging_out')
    own = pilot.directories.pilot
    with pilot_files(pilot) as files:
        files.fetch([(own, directives)], bases)
        try:
            targets = files.of(own).run(pilot.uid, directives, bases, tracer, name)
        except StagingError as error:
            raise files.fault(error) from None
        files.finish()
        return targets

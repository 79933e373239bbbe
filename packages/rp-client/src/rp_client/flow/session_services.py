"""The interface of a session to its pilot managers, which lets them not import the session."""

from __future__ import annotations

from typing import Any, Protocol

from rp_client.engine.engine import Engine
from rp_client.flow.uids import Uids
from rp_client.pilot import Pilot
from rp_profiling.write.tracer import Tracer


class SessionServices(Protocol):
    """The attributes and methods of a session that pilot managers use."""

    uid: str
    path: str
    _uids: Uids
    _engine: Engine

    @property
    def reg_addr(self) -> str: ...
    def _agent_config(self) -> dict[str, Any]: ...
    def _make_tracer(self, name: str) -> Tracer: ...
    def _pilot_ended(self, pilot: Pilot) -> None: ...
    def _pilot_left(self, pilot: Pilot) -> None: ...
    def _places_changed(self, pilot: Pilot) -> None: ...

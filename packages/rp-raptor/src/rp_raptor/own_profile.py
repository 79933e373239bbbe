"""The profiles that the masters and workers of applications write themselves."""

from __future__ import annotations

from rp_profiling.write.detail import chosen
from rp_profiling.write.tracer import Tracer


class Profile(Tracer):
    """A profile in a directory, with the interface that existing masters and workers use; inert if profiles are off."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(f'{directory}/{name}.prof' if directory else None, name, detail=chosen())

    def prof(self, event: str, uid: str = '', state: str = '', msg: str = '') -> None:
        """Record an event."""
        self.record(event, uid=uid or '', state=state or '', msg=msg or '')

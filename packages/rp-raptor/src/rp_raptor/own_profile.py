"""The profiles that the masters and workers of applications write themselves."""

from __future__ import annotations

from rp_profiling.write.detail import Detail, chosen
from rp_profiling.write.tracer import Tracer

WORKER = 'raptor_worker'
"""The name of workers' ranks as a component: RADICAL_PILOT_RAPTOR_WORKER_PROFILE sets their detail."""


def worker_detail() -> Detail:
    """Return the detail of the traces of ranks."""
    return chosen(name=WORKER)


class Profile(Tracer):
    """A profile in a directory, with the interface that existing masters and workers use; inert if profiles are off."""

    def __init__(self, directory: str, name: str, comp: str = '', detail: Detail | None = None) -> None:
        super().__init__(f'{directory}/{name}.prof' if directory else None, comp or name,
                         detail=chosen() if detail is None else detail)

    def prof(self, event: str, uid: str = '', state: str = '', msg: str = '') -> None:
        """Record an event."""
        self.record(event, uid=uid or '', state=state or '', msg=msg or '')

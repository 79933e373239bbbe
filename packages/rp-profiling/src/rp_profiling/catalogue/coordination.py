"""Events of the coordination service: the hub of a session, or the client of a database."""

from __future__ import annotations

from rp_profiling.catalogue.model import OWN, Recorder

_coordination = Recorder('Coordination', 'task or pilot', ('hub.prof', 'mongodb.prof'))

EVENTS = (
    _coordination(
        'update_refused',
        'an agent has reported on a task or pilot that is not (or no longer) bound to its pilot; the report is ignored',
        msg='pilot of the agent',
        condition='RUNTIME',
        origin=OWN,
    ),
)

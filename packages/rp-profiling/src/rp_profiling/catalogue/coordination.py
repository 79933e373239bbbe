"""Events of what stands between application and agents: the hub of a session, or the client's hold on a database."""

from __future__ import annotations

from rp_profiling.catalogue.model import OWN, Recorder

_coordination = Recorder('Coordination', 'task or pilot', ('hub.prof', 'mongodb.prof'))

EVENTS = (
    _coordination(
        'update_refused',
        'an agent has reported on what is not bound to its pilot, or no longer: it has no effect',
        msg='pilot of the agent',
        condition='RUNTIME',
        origin=OWN,
    ),
)

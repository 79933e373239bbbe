"""The Leiden Grid Infrastructure (LGI): jobs of an adaptor of radical.saga that is installed separately."""

from __future__ import annotations

from rp_client.launcher.batch.systems.base import Delegated


class Lgi(Delegated):
    """LGI. Sandboxes have the same paths on this host and where the jobs run."""

    name = 'LGI'
    lacks = frozenset({'qos', 'reservation', 'requeue'})

"""The parts that client, agent and RAPTOR share: descriptions, states, resources, platforms, messaging, coordination.

Modules are imported one by one (`from rp_api.states import DONE`). The package itself holds only the version, so that
importing it costs nothing.
"""

__version__ = '2.0.0'

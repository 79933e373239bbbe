"""What client, agent and RAPTOR share: descriptions, states, resources, platforms, messaging, coordination.

The modules are imported one by one (`from rp_api.states import DONE`); this one holds the version alone, so that
importing it costs nothing.
"""

__version__ = '2.0.0'

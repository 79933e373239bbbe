"""Sub-agents on the nodes of a pilot: `node_launch` starts them, `sub_agents` watches them and notices lost ones.

Imports components, executors and stagers; the pipeline stands above.
"""
